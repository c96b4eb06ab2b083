// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Communicator that fails: deadlines, what peers say, the end of
// all operations. It needs the token.
#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/base/origin.h"
#include "ccl/communicator/communicator.h"

namespace trnccl {
namespace {

// After this long in one call a rank says which one it's in: two that wait for
// each other in different calls have sent nothing that would tell. And it looks
// what those call that it waits for; again when it has waited twice as long.
constexpr int64_t kFirstLookNs = 500'000'000;

// So long a rank whose call was refused may take to make it after all, and may
// messages of one that left take to arrive.
constexpr int64_t kRetryNs = 1'000'000'000;
constexpr int64_t kLastWordsNs = 1'000'000'000;

// A dying process loses its memory and descriptors before it counts as dead: so
// long may pass between the two.
constexpr int64_t kDyingNs = 20'000'000;

// How long a rank that fails, refuses or leaves stays to get its words on their
// way: abort must return soon.
constexpr int64_t kSendOffNs = 50'000'000;

// A wire may break before the word of its peer's death, or leaving, is here: so
// long that is waited for.
constexpr int64_t kWordOfDeathNs = 1'000'000'000;

// How long peers have to answer, once a deadline is over.
constexpr int64_t kAnswerNs = 500'000'000;

}  // namespace

void Communicator::Stop(const absl::Status& cause) {
  KeepFirst(cause);
  if (TryAcquire()) {
    CheckClocks();
    Release();
  }
  parts_.sleepers->WakeAll();
}

void Communicator::KeepFirst(const absl::Status& cause) {
  {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = cause;
  }
  failed_.store(true);
}

void Communicator::HearLosses() {
  const JobWatch& watch = parts_.watch;
  if (watch.vigil == nullptr) return;
  const size_t losses = watch.vigil->losses();
  if (losses == heard_losses_.load(std::memory_order_relaxed)) return;
  // Two threads may hear of the same one: the first cause stays.
  for (const Vigil::Loss& loss :
       watch.vigil->LossesFrom(heard_losses_.exchange(losses))) {
    const auto found =
        std::find(watch.ranks.begin(), watch.ranks.end(), loss.rank);
    if (found == watch.ranks.end()) continue;
    const auto rank = static_cast<int>(found - watch.ranks.begin());
    Stop(Named(WithOrigin(absl::UnavailableError(absl::StrCat(
                              "rank ", parts_.membership.rank, ": ",
                              NameOf(rank), " ", loss.reason)),
                          rank)));
  }
}

void Communicator::CheckClocks() {
  if (failed_.load(std::memory_order_relaxed)) {
    Fail(failure());
    return;
  }
  const int64_t now_ns = NowNs();
  if (!verdict_.ok()) {
    if (health_->Silent().empty() || now_ns >= answers_until_ns_)
      Fail(Judgement());
    return;
  }
  if (current_ != nullptr) CheckDeadline(current_, now_ns);
  for (size_t i = 0; i < transfers_.size() && verdict_.ok(); ++i)
    CheckDeadline(transfers_[i], now_ns);
  if (verdict_.ok()) CheckPeers(now_ns);
}

void Communicator::CheckPeers(int64_t now_ns) {
  if (current_ == nullptr && transfers_.empty()) return;
  HearDepartures();
  const int64_t stuck_ns = StuckForNs(now_ns);
  const Health::Notice* notice = health_->notice();
  if (notice != nullptr && stuck_ns >= kLastWordsNs) {
    const absl::Status cause = absl::UnavailableError(absl::StrCat(
        "rank ", parts_.membership.rank, ": ", DescribeWait(*current_),
        DescribeAwaited(*current_), "; meanwhile ", notice->cause.message()));
    Fail(Named(WithOrigin(cause, notice->origin)));
    return;
  }
  if (const std::optional<RankCall> other = LeaversCall()) {
    Fail(MismatchError({.rank = parts_.membership.rank, .envelope = envelope_},
                       *other));
    return;
  }
  if (const std::optional<int> rank = LostWordsOf(now_ns)) {
    const absl::Status cause = absl::UnavailableError(
        absl::StrCat("rank ", parts_.membership.rank, ": ",
                     DescribeWait(*current_), "; ", NameOf(*rank),
                     " has left, and what it sent hasn't all arrived; "
                     "destroy a communicator when all ranks are done"));
    Fail(Named(WithOrigin(cause, *rank)));
    return;
  }
  for (int rank = 0; rank < parts_.membership.ranks; ++rank) {
    const absl::Status why = WontCome(rank, now_ns);
    if (why.ok()) continue;
    Fail(InCall(WithOrigin(why, rank)));
    return;
  }
}

absl::Status Communicator::WontMatch(int rank, int64_t now_ns) const {
  for (const Operation* operation : transfers_) {
    const Transfer& transfer = operation->transfer;
    const Refusals::Heard* heard = point_to_point_->RefusalBy(rank, transfer);
    if (heard == nullptr ||
        now_ns - std::max(heard->heard_ns, operation->started_ns) < kRetryNs)
      continue;
    return absl::UnavailableError(
        absl::StrCat(TransferText(transfer), ": ", NameOf(rank),
                     " has refused its own call: ", heard->why));
  }
  return absl::OkStatus();
}

absl::Status Communicator::WontCome(int rank, int64_t now_ns) const {
  if (absl::Status refused = WontMatch(rank, now_ns); !refused.ok())
    return refused;
  if (const Health::Leaving* left = health_->LeftBy(rank)) {
    if (LeftBeforeCall(rank)) return Departed(rank);
    for (const Operation* operation : transfers_) {
      const int peer = operation->transfer.peer;
      const bool needs = peer == rank || (peer < 0 && AllOthersLeft());
      if (needs && now_ns - left->heard_ns >= kLastWordsNs)
        return Departed(rank);
    }
  }
  const Health::Refusal* refusal = health_->RefusedBy(rank);
  // A later call waits for it too: this rank may have done its part of the
  // refused one alone.
  if (refusal == nullptr || current_ == nullptr ||
      static_cast<int32_t>(current_->sequence - refusal->sequence) < 0 ||
      now_ns - std::max(refusal->heard_ns, current_->started_ns) < kRetryNs)
    return absl::OkStatus();
  // What all ranks refuse is nobody's to wait for.
  const uint32_t mine =
      refused_sequence_ == refusal->sequence ? refused_times_ : 0;
  if (refusal->times <= mine) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(NameOf(rank), " has refused its own call: ", refusal->text));
}

void Communicator::AnnounceRefusal(Refused refused) {
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    refused.position = submissions_.size();
    refusals_.push_back(std::move(refused));
    submitted_.store(true);
  }
  if (TryAcquire()) {
    if (submitted_.load()) TakeSubmissions();
    SendOff();  // this rank may make no more calls
    owes_word_.store(point_to_point_->busy());
    Release();
    if (!owes_word_.load()) return;
  }
  // Whoever has the token, or that thread, takes it up; without one, this
  // rank's next call does.
  if (progress_thread_ == nullptr) UseProgressThread().IgnoreError();
  if (progress_thread_ != nullptr) progress_thread_->Notify();
}

void Communicator::TellRefusal(const Refused& refused) {
  if (refused.transfer.has_value()) {
    point_to_point_->Refuse(*refused.transfer, refused.why);
    return;
  }
  uint32_t sequence = next_sequence_;
  for (const Operation* queued = queue_head_; queued != nullptr;
       queued = queued->next)
    ++sequence;
  if (refused_sequence_ != sequence) refused_times_ = 0;
  refused_sequence_ = sequence;
  health_->SayRefused(
      {.sequence = sequence, .times = ++refused_times_, .text = refused.why});
}

void Communicator::CheckDeadline(Operation* operation, int64_t now_ns) {
  if (operation->started_ns == 0) operation->started_ns = now_ns;
  const int64_t waited_ns = now_ns - operation->started_ns;
  if (operation == current_ && waited_ns - looked_after_ns_ >=
                                   std::max(looked_after_ns_, kFirstLookNs)) {
    if (looked_after_ns_ == 0) health_->SayWaiting(envelope_);
    looked_after_ns_ = waited_ns;
    if (const std::optional<RankCall> other = OtherCall()) {
      Fail(MismatchError(
          {.rank = parts_.membership.rank, .envelope = envelope_}, *other));
      return;
    }
  }
  const int64_t waited_ms = waited_ns / 1'000'000;
  if (waited_ms < operation->timeout_ms) return;
  const absl::Status late = absl::DeadlineExceededError(absl::StrCat(
      "rank ", parts_.membership.rank, ": ", DescribeWait(*operation),
      " after ", waited_ms, " ms (its timeout is ", operation->timeout_ms,
      " ms); see whether all ranks live and make the same call, or raise "
      "TRNCCL_TIMEOUT_MS",
      DescribeAwaited(*operation)));
  const std::optional<int> suspect = Suspect(*operation);
  FailOnceAnswered(suspect.has_value() ? WithOrigin(late, *suspect) : late);
}

const Health::Notice* Communicator::Heard() {
  health_->ListenForFailures();
  const Health::Notice* notice = health_->notice();
  if (notice == nullptr || current_ == nullptr) return notice;
  const uint32_t ahead = notice->sequence - current_->sequence;
  return static_cast<int32_t>(ahead) > 0 ? nullptr : notice;
}

void Communicator::Listen() {
  health_->Listen();
  if (!verdict_.ok()) return;
  if (const Health::Notice* notice = Heard()) {
    const bool late = absl::IsDeadlineExceeded(notice->cause);
    const absl::Status cause = WithCall(WithOrigin(
        late ? notice->cause : absl::UnavailableError(notice->cause.message()),
        notice->origin));
    if (late && (current_ != nullptr || !transfers_.empty())) {
      FailOnceAnswered(cause);
    } else {
      Fail(Named(cause));
    }
    return;
  }
  for (int rank = 0; rank < parts_.membership.ranks; ++rank) {
    const Envelope* other = health_->WaitingIn(rank);
    if (other == nullptr) continue;
    const Envelope* mine = CallOfSequence(*other);
    if (mine == nullptr || *mine == *other) continue;
    failed_sequence_ = static_cast<uint32_t>(mine->words[0]);
    Fail(MismatchError({.rank = parts_.membership.rank, .envelope = *mine},
                       {.rank = rank, .envelope = *other}));
    return;
  }
}

const Envelope* Communicator::CallOfSequence(const Envelope& other) const {
  const auto sequence = static_cast<uint32_t>(other.words[0]);
  const Envelope& past = past_calls_[sequence % kPastCalls];
  return past.words[0] == other.words[0] ? &past : nullptr;
}

bool Communicator::MayComplete() {
  if (!verdict_.ok()) {
    Fail(Judgement());
    return false;
  }
  if (Heard() != nullptr) [[unlikely]] {
    Listen();
    return false;
  }
  if (!health_->anyone_left()) [[likely]]
    return true;
  for (int rank = 0; rank < parts_.membership.ranks; ++rank) {
    if (!LeftBeforeCall(rank)) continue;
    Fail(InCall(WithOrigin(Departed(rank), rank)));
    return false;
  }
  return true;
}

void Communicator::FailOnceAnswered(const absl::Status& status) {
  verdict_ = status;
  answers_until_ns_ = NowNs() + kAnswerNs;
  TellPeers(status);
}

absl::Status Communicator::Judgement() const {
  std::vector<int> silent = health_->Silent();
  std::optional<int> origin = OriginOf(verdict_);
  if (!silent.empty()) {
    // Whoever has answered waits as well, unless it was suspected by what it
    // does; of those who haven't, the suspect comes first.
    const auto suspect = std::find(silent.begin(), silent.end(),
                                   origin.value_or(silent.front()));
    if (suspect != silent.end())
      std::rotate(silent.begin(), suspect, suspect + 1);
    origin = silent.front();
  }
  absl::string_view text = verdict_.message();
  const std::string mine = absl::StrCat("rank ", parts_.membership.rank, ": ");
  absl::ConsumePrefix(&text, mine);
  const absl::Status judged(verdict_.code(),
                            absl::StrCat(mine, DescribeSilent(silent), text));
  return origin.has_value() ? Named(WithOrigin(judged, *origin)) : judged;
}

void Communicator::FailInCall(const absl::Status& status) {
  if (verdict_.ok() && Heard() != nullptr) {
    Listen();
  } else {
    Fail(verdict_.ok() ? DeathOr(Named(status)) : Judgement());
  }
}

absl::Status Communicator::DeathOr(const absl::Status& status) {
  // A disagreement is a cause of its own; so is a wire's error, but for the
  // death that may have broken it.
  if (absl::IsUnavailable(status)) return LossOr(status);
  const int64_t until_ns = NowNs() + kDyingNs;
  do {
    // Waking up makes transports look at once whether their peers live.
    parts_.transports->SetPresence(Presence::kAwake);
    const absl::Status progress = parts_.transports->Progress();
    if (!progress.ok()) return InCall(progress);
    sched_yield();
  } while (NowNs() < until_ns);
  return status;
}

absl::Status Communicator::LossOr(const absl::Status& status) {
  if (parts_.watch.vigil == nullptr || OriginOf(status).has_value())
    return status;
  const int64_t until_ns = NowNs() + kWordOfDeathNs;
  while (!failed_.load() && NowNs() < until_ns) {
    // This may be the thread that would look otherwise.
    parts_.watch.vigil->LookNow();
    HearLosses();
    HearDepartures();
    if (const std::optional<int> rank = MissedLeaver())
      return InCall(WithOrigin(Departed(*rank), *rank));
    sched_yield();
  }
  return failed_.load() ? failure() : status;
}

int64_t Communicator::StuckForNs(int64_t now_ns) {
  if (current_ == nullptr) return 0;
  const StuckPlace place = {.moves = moves_,
                            .sequence = current_->sequence,
                            .notice = health_->notice()};
  if (std::exchange(stuck_at_, place) != place) stuck_since_ns_ = now_ns;
  return now_ns - stuck_since_ns_;
}

absl::Status Communicator::WithCall(const absl::Status& status) const {
  std::string text = absl::StrCat("rank ", parts_.membership.rank, ": ");
  if (current_ != nullptr)
    absl::StrAppend(&text, DescribeCall(envelope_), ": ");
  absl::StrAppend(&text, status.message());
  const std::optional<int> origin = OriginOf(status);
  const absl::Status in_call(status.code(), text);
  return origin.has_value() ? WithOrigin(in_call, *origin) : in_call;
}

absl::Status Communicator::Named(const absl::Status& status) const {
  const std::optional<int> origin = OriginOf(status);
  if (!origin.has_value() || absl::StrContains(status.message(), "origin: "))
    return status;
  return WithOrigin(
      absl::Status(status.code(), absl::StrCat(status.message(),
                                               "; origin: ", NameOf(*origin))),
      *origin);
}

void Communicator::Fail(const absl::Status& status) {
  KeepFirst(status);
  const absl::Status cause = failure();
  TellPeers(cause);
  recorder_->FailAll(cause);
  End(cause);
  if (!std::exchange(sent_notices_, true)) SendOff();
}

void Communicator::SendOff() {
  const int64_t until_ns = NowNs() + kSendOffNs;
  while (!parts_.transports->AllSent() && NowNs() < until_ns &&
         parts_.transports->Progress().ok())
    sched_yield();
}

absl::Status Communicator::LeaveBuffers(const absl::Status& cause) {
  parts_.transports->SetPresence(Presence::kLeft);
  absl::Status left = point_to_point_->Leave();
  if (current_ != nullptr && runner_ == Runner::kEngine)
    left.Update(engine_stage_->Leave());
  if (left.ok()) return cause;
  const absl::Status both(cause.code(),
                          absl::StrCat(cause.message(), "; ", left.message()));
  const std::optional<int> origin = OriginOf(cause);
  return origin.has_value() ? WithOrigin(both, *origin) : both;
}

void Communicator::TellPeers(const absl::Status& cause) {
  health_->Tell({.origin = OriginOf(cause).value_or(parts_.membership.rank),
                 .sequence = failed_sequence_.value_or(
                     current_ != nullptr ? current_->sequence : next_sequence_),
                 .cause = cause});
}

void Communicator::End(const absl::Status& first_cause) {
  const absl::Status cause = LeaveBuffers(first_cause);
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) failure_ = cause;
    transfers_.insert(transfers_.end(), submissions_.begin(),
                      submissions_.end());
    submissions_.clear();
    submitted_.store(false);
  }
  point_to_point_->FailAll(cause);
  std::vector<Operation*> ended;
  ended.swap(transfers_);
  if (current_ != nullptr) ended.push_back(std::exchange(current_, nullptr));
  for (Operation* queued = std::exchange(queue_head_, nullptr);
       queued != nullptr; queued = queued->next)
    ended.push_back(queued);
  queue_tail_ = nullptr;
  if (!ended.empty()) {
    TRNCCL_LOG(LogLevel::kError, LogContext(parts_.membership, parts_.name),
               cause.message());
  }
  for (Operation* operation : ended) {
    const bool finished = operation->kind == Operation::Kind::kTransfer &&
                          operation->transfer.done &&
                          operation->transfer.status.ok();
    Complete(operation, finished ? absl::OkStatus() : cause);
  }
}

}  // namespace trnccl
