// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/bootstrap.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/check.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/hello.h"
#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

// Ranks further from a rank that's late wait a little longer for it, so that
// the ones next to it speak first and name it.
constexpr int kGraceMsPerLevel = 100;

Deadline Later(Deadline deadline, int delay_ms) {
  return Deadline::After(int64_t{deadline.remaining_ms()} + delay_ms);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Bootstrap>> Bootstrap::Connect(
    const UniqueId& id, Membership me, const BootstrapOptions& options,
    std::vector<Socket> listeners) {
  TRNCCL_CHECK(options.agreement.size() <= kMaxAgreementChars);
  absl::StatusOr<Tree> tree = Join(id, me, options, std::move(listeners));
  if (!tree.ok()) {
    return absl::Status(
        tree.status().code(),
        absl::StrCat("bootstrap of rank ", me.rank, " of ", me.ranks, " by ",
                     id.ToString(), ": ", tree.status().message()));
  }
  return std::unique_ptr<Bootstrap>(
      new Bootstrap(me, *std::move(tree), options.patience.abort));
}

absl::StatusOr<std::vector<std::string>> Bootstrap::AllGather(
    std::string_view mine, Deadline deadline) {
  return Exchange(Call::kAllGather, mine, deadline);
}

absl::Status Bootstrap::Barrier(Deadline deadline) {
  return Exchange(Call::kBarrier, "", deadline).status();
}

absl::StatusOr<std::string> Bootstrap::Broadcast(int root,
                                                 std::string_view mine,
                                                 Deadline deadline) {
  TRNCCL_CHECK(root >= 0 && root < me_.ranks);
  if (root != me_.rank) mine = "";
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   Exchange(Call::kBroadcast, mine, deadline));
  return std::move(all[static_cast<size_t>(root)]);
}

const char* Bootstrap::Name(Call call) {
  switch (call) {
    case Call::kAllGather:
      return "all-gather";
    case Call::kBarrier:
      return "barrier";
    case Call::kBroadcast:
      return "broadcast";
  }
  return "unknown call";
}

absl::StatusOr<std::vector<std::string>> Bootstrap::Exchange(
    Call call, std::string_view mine, Deadline deadline) {
  RETURN_IF_ERROR(status_);
  TRNCCL_CHECK(mine.size() <= kMaxBlobBytes);
  const auto ranks = static_cast<size_t>(me_.ranks);
  const auto rank = static_cast<size_t>(me_.rank);
  Blobs blobs{std::vector<std::string>(ranks), std::vector<bool>(ranks)};
  blobs.of_rank[rank] = std::string(mine);
  blobs.has[rank] = true;
  blobs.bytes = mine.size();
  status_ = Blame(Patience{Deadline::Never(), abort_}.Check(), {});
  if (status_.ok()) status_ = GatherUp(call, deadline, &blobs);
  if (status_.ok()) status_ = BroadcastDown(call, deadline, &blobs);
  if (!status_.ok()) {
    tree_.Fail(status_);
    return status_;
  }
  ++sequence_;
  return std::move(blobs.of_rank);
}

absl::Status Bootstrap::GatherUp(Call call, Deadline deadline, Blobs* blobs) {
  const int levels = LevelsBelow(tree_.index, me_.ranks);
  const Patience patience{Later(deadline, levels * kGraceMsPerLevel), abort_};
  std::vector<bool> came(tree_.children.size());
  for (size_t left = came.size(); left > 0; --left) {
    const absl::StatusOr<Tree::Incoming> incoming = tree_.Next(patience);
    if (!incoming.ok()) {
      std::vector<const TreeLink*> late;
      for (size_t i = 0; i < came.size(); ++i) {
        if (!came[i]) late.push_back(&tree_.children[i]);
      }
      return Blame(incoming.status(), late);
    }
    RETURN_IF_ERROR(Checked(*incoming, TreeFrame::Kind::kUp));
    came[static_cast<size_t>(incoming->child)] = true;
    RETURN_IF_ERROR(Merge(call, incoming->frame, blobs));
  }
  if (tree_.index == 0) return absl::OkStatus();
  const TreeFrame frame{TreeFrame::Kind::kUp, sequence_,
                        Serialize(call, *blobs)};
  return Blame(SendFrameTo(tree_.parent, frame, patience), {&tree_.parent});
}

absl::Status Bootstrap::BroadcastDown(Call call, Deadline deadline,
                                      Blobs* blobs) {
  const int depth = std::bit_width(static_cast<unsigned>(tree_.index) + 1) - 1;
  const int levels = LevelsBelow(0, me_.ranks) + depth;
  const Patience patience{Later(deadline, levels * kGraceMsPerLevel), abort_};
  if (tree_.index > 0) {
    const absl::StatusOr<Tree::Incoming> incoming = tree_.Next(patience);
    if (!incoming.ok()) return Blame(incoming.status(), {&tree_.parent});
    RETURN_IF_ERROR(Checked(*incoming, TreeFrame::Kind::kDown));
    const auto ranks = static_cast<size_t>(me_.ranks);
    *blobs = {std::vector<std::string>(ranks), std::vector<bool>(ranks)};
    RETURN_IF_ERROR(Merge(call, incoming->frame, blobs));
  }
  for (size_t rank = 0; rank < blobs->has.size(); ++rank) {
    if (blobs->has[rank]) continue;
    return absl::InternalError(
        absl::StrCat("bootstrap: nothing came of rank ", rank));
  }
  const TreeFrame frame{TreeFrame::Kind::kDown, sequence_,
                        Serialize(call, *blobs)};
  for (const TreeLink& child : tree_.children) {
    RETURN_IF_ERROR(Blame(SendFrameTo(child, frame, patience), {&child}));
  }
  return absl::OkStatus();
}

std::string Bootstrap::Serialize(Call call, const Blobs& blobs) const {
  WireWriter writer;
  writer.U8(static_cast<uint8_t>(call));
  for (size_t rank = 0; rank < blobs.has.size(); ++rank) {
    if (!blobs.has[rank]) continue;
    writer.U32(static_cast<uint32_t>(rank));
    writer.Text(blobs.of_rank[rank]);
  }
  return writer.bytes();
}

absl::Status Bootstrap::Merge(Call call, const TreeFrame& frame,
                              Blobs* blobs) const {
  WireReader reader(frame.body);
  const auto other = static_cast<Call>(reader.U8());
  if (other != call || frame.sequence != sequence_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "bootstrap: ranks make different calls: rank ", me_.rank, " makes ",
        Name(call), " number ", sequence_, ", another one ", Name(other),
        " number ", frame.sequence));
  }
  while (!reader.Finished()) {
    const size_t rank = reader.U32();
    const std::string_view blob = reader.Text(kMaxBlobBytes);
    if (!reader.ok() || rank >= blobs->has.size() || blobs->has[rank]) {
      return absl::InternalError("bootstrap: a rank passed on malformed blobs");
    }
    blobs->bytes += blob.size();
    if (blobs->bytes > kMaxGatheredBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("bootstrap: ", Name(call), " of more than ",
                       kMaxGatheredBytes, " bytes in all"));
    }
    blobs->of_rank[rank] = blob;
    blobs->has[rank] = true;
  }
  return absl::OkStatus();
}

// A neighbour's error, or a frame that isn't its turn.
absl::Status Bootstrap::Checked(const Tree::Incoming& incoming,
                                TreeFrame::Kind wanted) const {
  if (incoming.frame.kind == TreeFrame::Kind::kError) {
    return StatusOf(incoming.frame);
  }
  const bool from_parent = incoming.child == Tree::kParent;
  if (incoming.frame.kind == wanted &&
      from_parent == (wanted == TreeFrame::Kind::kDown)) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("bootstrap: rank ", tree_.link(incoming.child).rank,
                   " spoke out of turn to rank ", me_.rank));
}

// Says who was at what, for the errors that begin at this rank.
absl::Status Bootstrap::Blame(const absl::Status& status,
                              const std::vector<const TreeLink*>& late) const {
  if (status.ok()) return status;
  if (absl::IsAborted(status)) {
    return absl::AbortedError(
        absl::StrCat("bootstrap: rank ", me_.rank, " was aborted"));
  }
  if (absl::IsDeadlineExceeded(status)) {
    std::vector<std::string> names;
    for (const TreeLink* link : late)
      names.push_back(RankText(link->rank, link->host));
    // Who waits for ranks further down has more patience than who waits for
    // them directly: the first that's late itself is told.
    return absl::DeadlineExceededError(absl::StrCat(
        "bootstrap: rank ", me_.rank, " timed out waiting for ",
        absl::StrJoin(names, ", "),
        names.size() == 1 ? absl::StrCat("; origin: ", names[0]) : ""));
  }
  return absl::Status(status.code(), absl::StrCat("bootstrap: rank ", me_.rank,
                                                  " ", status.message()));
}

}  // namespace trnccl
