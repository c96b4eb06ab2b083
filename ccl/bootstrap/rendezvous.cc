// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/acceptor.h"
#include "ccl/bootstrap/hello.h"
#include "ccl/bootstrap/roster.h"
#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

constexpr size_t kMaxReplyBytes = 2 << 10;
constexpr char kOrigin[] = "; origin: ";

// Ranks whose link the root watches for at once. Of more, the first are left to
// the deadline.
constexpr size_t kMostJoiners = 256;

// After a deadline, what is left for telling the ranks that did come.
constexpr int kLastWordMs = 500;

// After the loss of a rank, or of what it needs, how long those that haven't
// come are waited for.
constexpr int kLossMs = 500;

// The root judges before the first rank's own deadline, so that the verdict
// reaches all in time.
Deadline JudgingTime(int remaining_ms) {
  return Deadline::After(remaining_ms - std::min(1'000, remaining_ms / 4));
}

// The root's last word, as it goes down the tree.
struct Verdict {
  absl::Status status;
  int arrived = 0;  // so that each rank knows which children will still link
};

TreeFrame VerdictFrame(const Verdict& verdict) {
  WireWriter writer;
  writer.U32(static_cast<uint32_t>(verdict.arrived));
  if (!verdict.status.ok()) writer.Raw(ErrorFrame(verdict.status).body);
  return {TreeFrame::Kind::kDown, 0, writer.bytes()};
}

Verdict ParseVerdict(const TreeFrame& frame) {
  WireReader reader(frame.body);
  Verdict verdict;
  verdict.arrived = static_cast<int>(reader.U32());
  if (!reader.Finished()) {
    TreeFrame error = frame;
    error.body.erase(0, std::min<size_t>(sizeof(uint32_t), error.body.size()));
    verdict.status = StatusOf(error);
  }
  return verdict;
}

// Most who reach the root reach this rank by the interface that does; some
// only by another one.
absl::StatusOr<std::vector<Socket>> ListenWhere(const Socket& root,
                                                const InterfaceChoice& choice) {
  ASSIGN_OR_RETURN(SocketAddress address, root.LocalAddress());
  address.port = 0;
  std::vector<SocketAddress> addresses = {address};
  if (!address.IsLoopback()) {
    ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
    const auto others = ChooseAddresses(interfaces, choice);
    for (const SocketAddress& other :
         others.ok() ? *others : std::vector<SocketAddress>()) {
      if (other != address) addresses.push_back(other);
    }
  }
  return ListenOnOnePort(FirstThatFit(addresses));
}

class Rendezvous {
 public:
  Rendezvous(const UniqueId& id, Membership me, const BootstrapOptions& options)
      : id_(id), me_(me), options_(options), judging_(Deadline::Never()) {}

  absl::StatusOr<Tree> Run(std::vector<Socket> listeners);

 private:
  bool is_root() const { return roster_.has_value(); }
  int arrived() const {
    if (verdict_) return verdict_->arrived;
    return is_root() ? roster_->arrived() : me_.ranks;
  }

  JoinHello OwnHello(std::vector<SocketAddress> addresses) const;
  absl::Status EnterAsRoot(std::vector<Socket> listeners);
  absl::Status EnterAsMember();
  absl::Status LinkToParent(const JoinReply& reply);
  void Report(const Socket& root, const Hello& outcome) const;

  void Step();
  void HandleGuest(Guest guest);
  void HandleJoin(JoinHello hello, Socket socket);
  void HandleJoiner(size_t joiner);
  void HandleLink(const LinkHello& hello, Socket socket);
  void HandleFrameOf(int child);
  void HandleParentFrame(const TreeFrame& frame);

  bool ChildrenLinked() const;
  bool ChildrenReady() const;
  void Judge();
  void TakeNote(absl::Status trouble);
  absl::Status LostPatience() const;
  absl::StatusOr<Tree> Pronounce();

  const UniqueId& id_;
  const Membership me_;
  const BootstrapOptions& options_;
  std::optional<Acceptor> acceptor_;
  std::optional<Roster> roster_;  // the root's
  struct Joiner {
    int rank = 0;
    std::string host;
    int parent_rank = 0;
    Socket socket;
  };
  std::vector<Joiner> joiners_;  // the root's: who hasn't said how it went
  Tree tree_;
  std::vector<bool> linked_ = {false, false};  // child 2i+1, child 2i+2
  int ready_children_ = 0;                     // whose whole subtrees stand
  bool told_parent_ = false;
  Deadline judging_;                     // the root's
  absl::Status trouble_;                 // the first that this rank has seen
  Deadline linger_ = Deadline::Never();  // until a trouble is pronounced
  std::optional<Verdict> verdict_;
};

absl::StatusOr<Tree> Rendezvous::Run(std::vector<Socket> listeners) {
  if (listeners.empty()) listeners = TakeListeners(id_);
  if (!listeners.empty()) {
    RETURN_IF_ERROR(EnterAsRoot(std::move(listeners)));
  } else {
    RETURN_IF_ERROR(EnterAsMember());
  }
  while (true) {
    Judge();
    if (verdict_ && (ChildrenLinked() || linger_.expired())) {
      return Pronounce();
    }
    Step();
  }
}

JoinHello Rendezvous::OwnHello(std::vector<SocketAddress> addresses) const {
  return {.member = me_,
          .remaining_ms = options_.patience.deadline.remaining_ms(),
          .host = options_.host,
          .agreement = options_.agreement,
          .addresses = std::move(addresses)};
}

absl::Status Rendezvous::EnterAsRoot(std::vector<Socket> listeners) {
  acceptor_.emplace(std::move(listeners), id_.secret);
  roster_.emplace(OwnHello(id_.addresses));
  judging_ = JudgingTime(options_.patience.deadline.remaining_ms());
  return absl::OkStatus();
}

absl::Status Rendezvous::EnterAsMember() {
  ASSIGN_OR_RETURN(const auto addresses,
                   WithScopes(id_.addresses, options_.interfaces));
  ASSIGN_OR_RETURN(Socket root,
                   Visit(addresses, id_.secret, options_.patience));
  ASSIGN_OR_RETURN(std::vector<Socket> listeners,
                   ListenWhere(root, options_.interfaces));
  ASSIGN_OR_RETURN(const auto own_addresses, AddressesOf(listeners));
  acceptor_.emplace(std::move(listeners), id_.secret);
  RETURN_IF_ERROR(SendFrame(root, SerializeHello(OwnHello(own_addresses)),
                            options_.patience));
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReceiveFrame(root, kMaxReplyBytes, options_.patience));
  const std::optional<JoinReply> reply = ParseReply(bytes);
  if (!reply) {
    return absl::InternalError(
        absl::StrCat(root.peer(),
                     " sent a malformed reply; use the same "
                     "version of trnccl on all ranks"));
  }
  const absl::Status linked = LinkToParent(*reply);
  if (linked.ok()) {
    Report(root, LinkHello{reply->index, me_.rank, options_.host});
  } else {
    Report(root, ReportHello{me_.rank, std::string(linked.message())});
  }
  return linked;
}

absl::Status Rendezvous::LinkToParent(const JoinReply& reply) {
  tree_.index = reply.index;
  tree_.parent.rank = reply.parent_rank;
  tree_.parent.host = reply.parent_host;
  const auto link = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto addresses,
                     WithScopes(reply.parent_addresses, options_.interfaces));
    ASSIGN_OR_RETURN(tree_.parent.socket,
                     Visit(addresses, id_.secret, options_.patience));
    return SendFrame(
        tree_.parent.socket,
        SerializeHello(LinkHello{reply.index, me_.rank, options_.host}),
        options_.patience);
  };
  const absl::Status linked = link();
  if (linked.ok()) return linked;
  // A parent that doesn't answer any more, or this rank, which can't ask it.
  const bool is_own =
      absl::IsResourceExhausted(linked) || absl::IsAborted(linked);
  return absl::Status(
      linked.code(),
      absl::StrCat("rank ", me_.rank, " cannot reach rank ", reply.parent_rank,
                   ": ", linked.message(), kOrigin,
                   is_own ? RankText(me_.rank, options_.host)
                          : RankText(reply.parent_rank, reply.parent_host)));
}

// The link, or this rank's own error, is what counts, so a failing report is no
// error.
void Rendezvous::Report(const Socket& root, const Hello& outcome) const {
  SendFrame(root, SerializeHello(outcome),
            {Deadline::After(kLastWordMs), options_.patience.abort})
      .IgnoreError();
}

void Rendezvous::Step() {
  std::vector<pollfd> fds = {{tree_.parent.socket.fd(), POLLIN, 0}};
  for (const TreeLink& child : tree_.children) {
    fds.push_back({child.socket.fd(), POLLIN, 0});
  }
  const size_t neighbours = fds.size();
  for (const Joiner& joiner : joiners_)
    fds.push_back({joiner.socket.fd(), POLLIN, 0});
  const size_t known = fds.size();
  acceptor_->AppendPollFds(&fds);
  PollSlice(fds.data(), fds.size(), {Deadline::Never()});
  for (size_t i = known; i > neighbours; --i) {
    if (fds[i - 1].revents != 0) HandleJoiner(i - 1 - neighbours);
  }
  absl::StatusOr<std::vector<Guest>> guests = acceptor_->Progress();
  if (guests.ok()) {
    for (Guest& guest : *guests) HandleGuest(std::move(guest));
  } else {
    TakeNote(absl::Status(
        guests.status().code(),
        absl::StrCat("rank ", me_.rank, ": ", guests.status().message(),
                     kOrigin, RankText(me_.rank, options_.host))));
  }
  for (size_t i = 0; i < neighbours; ++i) {
    if (fds[i].revents != 0) HandleFrameOf(static_cast<int>(i) - 1);
  }
}

void Rendezvous::HandleGuest(Guest guest) {
  std::optional<Hello> hello = ParseHello(guest.hello);
  if (!hello) {
    TakeNote(absl::FailedPreconditionError(absl::StrCat(
        "a rank at ", guest.socket.peer(),
        " says hello in another way; use the same version of trnccl on all")));
  } else if (auto* link = std::get_if<LinkHello>(&*hello)) {
    HandleLink(*link, std::move(guest.socket));
  } else if (auto* join = std::get_if<JoinHello>(&*hello); join && is_root()) {
    HandleJoin(std::move(*join), std::move(guest.socket));
  }
}

void Rendezvous::HandleJoin(JoinHello hello, Socket socket) {
  judging_ = Deadline::Earlier(judging_, JudgingTime(hello.remaining_ms));
  Joiner joiner{.rank = hello.member.rank, .host = hello.host};
  const int index = roster_->Add(std::move(hello));
  const JoinHello& parent = roster_->at((index - 1) / 2);
  // A small reply fits a fresh socket; who doesn't get it will be missing.
  SendFrame(socket,
            SerializeReply({.index = index,
                            .parent_rank = parent.member.rank,
                            .parent_host = parent.host,
                            .parent_addresses = parent.addresses}),
            {Deadline::After(0)})
      .IgnoreError();
  joiner.parent_rank = parent.member.rank;
  joiner.socket = std::move(socket);
  if (joiners_.size() == kMostJoiners) joiners_.erase(joiners_.begin());
  joiners_.push_back(std::move(joiner));
}

// It has linked, has failed to, or has died before either.
void Rendezvous::HandleJoiner(size_t joiner) {
  const Joiner done = std::move(joiners_[joiner]);
  joiners_.erase(joiners_.begin() + static_cast<ptrdiff_t>(joiner));
  const absl::StatusOr<std::string> bytes =
      ReceiveFrame(done.socket, kMaxHelloBytes, {Deadline::After(kLastWordMs)});
  const std::optional<Hello> hello =
      bytes.ok() ? ParseHello(*bytes) : std::nullopt;
  if (!hello) {
    const std::string name = RankText(done.rank, done.host);
    TakeNote(absl::UnavailableError(absl::StrCat(
        name, " died: it ended its connection before it had reached rank ",
        done.parent_rank, kOrigin, name)));
  } else if (const auto* report = std::get_if<ReportHello>(&*hello)) {
    TakeNote(absl::FailedPreconditionError(report->text));
  }
}

void Rendezvous::HandleLink(const LinkHello& hello, Socket socket) {
  const int64_t place = int64_t{hello.index} - (2 * int64_t{tree_.index} + 1);
  if (place < 0 || place > 1 || linked_[static_cast<size_t>(place)]) return;
  linked_[static_cast<size_t>(place)] = true;
  tree_.children.push_back({hello.rank, hello.host, std::move(socket)});
}

void Rendezvous::HandleFrameOf(int child) {
  const absl::StatusOr<TreeFrame> frame =
      ReceiveFrameFrom(tree_.link(child), options_.patience);
  if (!frame.ok()) {
    TreeLink& lost = child == Tree::kParent
                         ? tree_.parent
                         : tree_.children[static_cast<size_t>(child)];
    lost.socket.Close();
    TakeNote(frame.status());
    if (child == Tree::kParent) verdict_ = Verdict{trouble_, 0};
  } else if (child == Tree::kParent) {
    HandleParentFrame(*frame);
  } else if (frame->kind == TreeFrame::Kind::kUp) {
    ++ready_children_;
  } else {
    TakeNote(StatusOf(*frame));
  }
}

void Rendezvous::HandleParentFrame(const TreeFrame& frame) {
  verdict_ = frame.kind == TreeFrame::Kind::kDown ? ParseVerdict(frame)
                                                  : Verdict{StatusOf(frame), 0};
  // Children have linked if all is well; otherwise some may still come.
  linger_ = Deadline::After(kLastWordMs);
  // The last word: the parent's end that follows says nothing more.
  if (!verdict_->status.ok()) tree_.parent.socket.Close();
}

bool Rendezvous::ChildrenLinked() const {
  for (int place = 0; place < 2; ++place) {
    const int64_t child = 2 * int64_t{tree_.index} + 1 + place;
    if (child < arrived() && !linked_[static_cast<size_t>(place)]) return false;
  }
  return true;
}

bool Rendezvous::ChildrenReady() const {
  return ChildrenLinked() &&
         ready_children_ == static_cast<int>(tree_.children.size());
}

void Rendezvous::Judge() {
  if (verdict_) return;
  if (trouble_.ok() && is_root()) {
    if (!roster_->Judgement().ok()) TakeNote(roster_->Judgement());
  }
  if (trouble_.ok()) {
    const absl::Status lost = LostPatience();
    if (!lost.ok()) TakeNote(lost);
  }
  if (!trouble_.ok()) {
    if (absl::IsAborted(options_.patience.Check()))
      linger_ = Deadline::After(0);
    const bool all_hear = is_root() && roster_->complete();
    if (!all_hear && !linger_.expired()) return;
    verdict_ = Verdict{trouble_, arrived()};
    // Children that live link soon; the trouble may be that one doesn't.
    linger_ = Deadline::Earlier(linger_, Deadline::After(kLastWordMs));
    return;
  }
  if (is_root()) {
    if (roster_->complete() && ChildrenReady()) {
      verdict_ = Verdict{absl::OkStatus(), arrived()};
    }
  } else if (!told_parent_ && ChildrenReady()) {
    told_parent_ = true;
    const absl::Status told =
        SendFrameTo(tree_.parent, TreeFrame{}, options_.patience);
    if (!told.ok()) TakeNote(told);
  }
}

// The first trouble counts. It goes up at once, and the root's verdict on it is
// awaited for a while; an abort waits for nothing.
void Rendezvous::TakeNote(absl::Status trouble) {
  if (!trouble_.ok()) return;
  trouble_ = std::move(trouble);
  int linger_ms = options_.grace_ms;
  if (absl::IsDeadlineExceeded(trouble_)) {
    linger_ms = std::min(linger_ms, kLastWordMs);
  }
  // Those who have come are to know at once.
  const bool is_loss =
      absl::IsUnavailable(trouble_) || absl::IsResourceExhausted(trouble_);
  if (is_root() && is_loss) linger_ms = kLossMs;
  if (absl::IsAborted(trouble_)) linger_ms = 0;
  linger_ = Deadline::After(linger_ms);
  if (tree_.parent.socket.is_open()) {
    SendFrameTo(tree_.parent, ErrorFrame(trouble_), {Deadline::After(0)})
        .IgnoreError();
  }
}

absl::Status Rendezvous::LostPatience() const {
  const absl::Status status = options_.patience.Check();
  if (absl::IsAborted(status)) {
    return absl::AbortedError(absl::StrCat("rank ", me_.rank, " was aborted"));
  }
  if (is_root() && judging_.expired()) {
    return absl::DeadlineExceededError(
        roster_->complete()
            ? std::string("all ranks came, but not all reached each other")
            : roster_->MissingText());
  }
  if (status.ok()) return status;
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", me_.rank, " waited for the root's word through rank ",
      tree_.parent.rank,
      ": see whether that process, and those through which it "
      "hears of the root, are stopped"));
}

absl::StatusOr<Tree> Rendezvous::Pronounce() {
  const TreeFrame frame = VerdictFrame(*verdict_);
  for (const TreeLink& child : tree_.children) {
    if (!child.socket.is_open()) continue;
    const absl::Status told = SendFrameTo(child, frame, {Deadline::After(0)});
    // A child that's lost now is the first exchange's to notice.
    told.IgnoreError();
  }
  if (!verdict_->status.ok()) return verdict_->status;
  return std::move(tree_);
}

}  // namespace

absl::StatusOr<Tree> Join(const UniqueId& id, Membership me,
                          const BootstrapOptions& options,
                          std::vector<Socket> listeners) {
  return Rendezvous(id, me, options).Run(std::move(listeners));
}

}  // namespace trnccl
