// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/communicator.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/base/status_macros.h"
#include "ccl/planner/engine_cost.h"

namespace trnccl {
namespace {

constexpr std::string_view kNoAlgorithm = "";

// The longest sleep: deadlines and aborts are looked at this often even if
// nobody rings.
constexpr int64_t kSleepNs = 100'000'000;

int64_t UntilNs(int64_t patience_ms) {
  if (patience_ms < 0) return INT64_MAX;
  const int64_t now_ns = NowNs();
  return patience_ms > (INT64_MAX - now_ns) / 1'000'000
             ? INT64_MAX
             : now_ns + patience_ms * 1'000'000;
}

class WaiterCount {
 public:
  explicit WaiterCount(std::atomic<int>* waiters) : waiters_(waiters) {
    waiters_->fetch_add(1);
  }
  ~WaiterCount() { waiters_->fetch_sub(1); }
  WaiterCount(const WaiterCount&) = delete;
  WaiterCount& operator=(const WaiterCount&) = delete;

 private:
  std::atomic<int>* waiters_;
};

int SleepMs(int64_t until_ns) {
  const int64_t left_ns = std::clamp<int64_t>(until_ns - NowNs(), 0, kSleepNs);
  return static_cast<int>((left_ns + 999'999) / 1'000'000);
}

}  // namespace

uint32_t MixCookie(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdu;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53u;
  return static_cast<uint32_t>(value >> 32);
}

uint32_t Communicator::NextCookie(int color) {
  ++splits_;
  return MixCookie((static_cast<uint64_t>(parts_.cookie) << 32 | splits_) ^
                   static_cast<uint64_t>(color) << 16);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    Parts parts) {
  auto communicator =
      std::unique_ptr<Communicator>(new Communicator(std::move(parts)));
  const Parts& made = communicator->parts_;
  Planner::Options options{.membership = made.membership,
                           .grid = &made.topology.grid,
                           .routes = &made.transports->routes(),
                           .settings = &made.settings,
                           .model = made.model,
                           .slice_bytes = made.slice_bytes,
                           .lanes = made.collective_lanes};
  ASSIGN_OR_RETURN(communicator->planner_, Planner::Create(options));
  if (made.watch.vigil != nullptr) {
    made.watch.vigil->Attend(made.cookie);
    RETURN_IF_ERROR(communicator->UseProgressThread());
  }
  return communicator;
}

Communicator::Communicator(Parts parts)
    : parts_(std::move(parts)),
      needs_calls_(parts_.transports->NeedsCalls()),
      policy_(WaitPolicy::For(parts_.settings, parts_.topology.own_core
                                                   ? Cores::kOwn
                                                   : Cores::kShared)),
      timeout_ms_(parts_.settings.timeout_ms),
      checker_(parts_.membership),
      executor_(
          {.ranks = parts_.membership.ranks, .rank = parts_.membership.rank},
          parts_.transports->routes()),
      last_algorithm_(&kNoAlgorithm),
      next_sequence_(parts_.first_sequence),
      short_run_(parts_.membership.rank) {
  const Routes& routes = parts_.transports->routes();
  if (Engine* engine = parts_.transports->engine())
    engine_stage_.emplace(parts_.membership, routes, engine);
  point_to_point_ = std::make_unique<PointToPoint>(PointToPoint::Options{
      .membership = parts_.membership,
      .routes = &routes,
      .control_lane = parts_.collective_lanes,
      .data_lane = parts_.collective_lanes + 1,
      .cookie = parts_.cookie,
      .first_id = parts_.first_sequence,
      .unmapped_min_bytes = PeerCopyMinBytes(parts_.model),
      .gone = [this](int rank) { return Gone(rank); }});
  health_ = std::make_unique<Health>(
      Health::Options{.membership = parts_.membership,
                      .routes = &routes,
                      .lane = parts_.collective_lanes + 2,
                      .cookie = parts_.cookie});
  recorder_ = std::make_unique<Recorder>(Recorder::Options{
      .owner = {.membership = parts_.membership,
                .name = parts_.name,
                .description = parts_.name,
                .hostname =
                    parts_.topology.hosts[parts_.membership.rank].hostname,
                .cookie = parts_.cookie,
                .timeout_ms = parts_.settings.timeout_ms},
      .calls = static_cast<uint32_t>(parts_.settings.recorder_calls),
      .dump_prefix = parts_.settings.dump_on_failure});
  progress_thread_ = parts_.progress_thread;
  if (progress_thread_ != nullptr) progress_thread_->Add(this);
}

Communicator::~Communicator() {
  if (progress_thread_ != nullptr) progress_thread_->Remove(this);
  aborted_.store(true);
  while (!TryAcquire()) sched_yield();
  // Leaving is no failure. Who couldn't be told of one has a last chance to be.
  const absl::Status cause = failure();
  if (cause.ok()) {
    Leave(current_ != nullptr ? current_->sequence : next_sequence_);
  } else {
    TellPeers(cause);
  }
  if (parts_.watch.vigil != nullptr)
    parts_.watch.vigil->Unattend(parts_.cookie);
  End(cause.ok() ? absl::AbortedError("the communicator was destroyed")
                 : cause);
  Tell(std::exchange(notices_, {}));
}

bool Communicator::TryAcquire() {
  return !token_.load(std::memory_order_relaxed) &&
         !token_.exchange(true, std::memory_order_acquire);
}

void Communicator::Release() {
  // Who is told may make calls, and so take the token.
  std::vector<Notice*> notices;
  if (!notices_.empty()) [[unlikely]]
    notices.swap(notices_);
  token_.store(false);
  if (waiters_.load() > 0) [[unlikely]]
    parts_.sleepers->WakeAll();
  Tell(notices);
}

void Communicator::Tell(std::span<Notice* const> notices) {
  for (Notice* notice : notices) {
    notice->notify(notice->context);
    delete notice;
  }
}

absl::Status Communicator::RunAll(std::span<Operation* const> operations) {
  if (!TryAcquire()) [[unlikely]] {
    // Another thread waits for an asynchronous call: these join its queue.
    RETURN_IF_ERROR(Submit(operations));
    return WaitForAll(operations);
  }
  if (failed_.load(std::memory_order_acquire)) [[unlikely]] {
    Release();
    return failure();
  }
  if (armed_) Disarm();
  if (submitted_.load(std::memory_order_relaxed)) TakeSubmissions();
  for (Operation* operation : operations) Enqueue(operation);
  Drive({.operation = operations.front()});
  absl::Status status = WaitForAll(operations);
  if (unfinished_.load(std::memory_order_relaxed) > 0) [[unlikely]]
    progress_thread_->Notify();
  return status;
}

absl::Status Communicator::WaitForAll(std::span<Operation* const> operations) {
  absl::Status status;
  for (Operation* operation : operations) {
    WaitFor({.operation = operation});
    status.Update(std::move(operation->status));
  }
  return status;
}

absl::Status Communicator::UseProgressThread() {
  const absl::StatusOr<ProgressThread*> thread = ProgressThread::OfProcess();
  if (!thread.ok()) return InCall(thread.status());
  progress_thread_ = *thread;
  progress_thread_->Add(this);
  return absl::OkStatus();
}

absl::Status Communicator::Submit(std::span<Operation* const> operations) {
  if (progress_thread_ == nullptr) RETURN_IF_ERROR(UseProgressThread());
  const int64_t now_ns = NowNs();
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    for (Operation* operation : operations) {
      operation->asynchronous = true;
      if (operation->on_heap) operation->references.fetch_add(1);
      operation->started_ns = now_ns;
      submissions_.push_back(operation);
    }
    unfinished_.fetch_add(static_cast<int>(operations.size()));
    submitted_.store(true);
  }
  // What can be done at once is done here; the rest goes on by itself.
  if (TryAcquire()) {
    if (armed_) Disarm();
    while (Advance()) {
    }
    Release();
  }
  if (unfinished_.load() > 0) progress_thread_->Notify();
  return absl::OkStatus();
}

bool Communicator::Wait(Operation* operation, int64_t patience_ms) {
  const Goal goal{.operation = operation, .until_ns = UntilNs(patience_ms)};
  WaitFor(goal);
  return operation->done.load(std::memory_order_acquire);
}

absl::Status Communicator::Finalize() {
  WaitFor({});
  return failure();
}

void Communicator::WaitFor(const Goal& goal) {
  if (Reached(goal)) return;
  if (Acquire(goal)) Drive(goal);
  if (unfinished_.load() > 0) progress_thread_->Notify();
}

bool Communicator::Reached(const Goal& goal) const {
  return goal.operation == nullptr
             ? unfinished_.load() == 0
             : goal.operation->done.load(std::memory_order_acquire);
}

bool Communicator::Acquire(const Goal& goal) {
  // The holder may be in the middle of a long fold: that's worth a few yields
  // before sleeping.
  constexpr int kYields = 64;
  const WaiterCount counted(&waiters_);
  for (int round = 0;; ++round) {
    if (Reached(goal)) return false;
    if (TryAcquire()) {
      if (armed_) Disarm();
      return true;
    }
    if (NowNs() >= goal.until_ns) return false;
    if (round < kYields) {
      sched_yield();
      continue;
    }
    Sleepers::Announcement announcement(parts_.sleepers);
    if (!Reached(goal) && token_.load())
      announcement.SleepOn({}, SleepMs(goal.until_ns));
  }
}

void Communicator::Drive(const Goal& goal) {
  Backoff backoff(policy_);
  for (;;) {
    const bool moved = Advance();
    if (Reached(goal)) break;
    if (!notices_.empty()) [[unlikely]] {
      Release();
      if (!Acquire(goal)) return;
      continue;
    }
    if (moved) {
      backoff.Reset();
      continue;
    }
    const Backoff::Action action = backoff.Next();
    if (action == Backoff::kSpin) continue;
    CheckClocks();
    if (goal.until_ns != INT64_MAX && NowNs() >= goal.until_ns) break;
    if (action == Backoff::kSleep && !SleepOnce(goal)) return;
  }
  Release();
}

bool Communicator::SleepOnce(const Goal& goal) {
  {
    // The progress thread leaves a communicator to those who wait for it.
    const WaiterCount counted(&waiters_);
    Sleepers::Announcement announcement(parts_.sleepers);
    Arm();
    if (Advance() || Reached(goal)) {
      Disarm();
      return true;
    }
    // Not Release(): this thread still sees to all that happens, so that the
    // others sleep on.
    token_.store(false);
    if (!aborted_.load() && !submitted_.load())
      announcement.SleepOn(parts_.transports->wake_fds(),
                           SleepMs(goal.until_ns));
  }
  if (Acquire(goal)) return true;
  // Now another must see to it.
  if (waiters_.load() > 0) parts_.sleepers->WakeAll();
  return false;
}

// What arrives from now on rings; the next Advance() sees all that's there.
void Communicator::Arm() {
  parts_.transports->SetPresence(Presence::kAsleep);
  armed_ = true;
  quiet_rounds_ = 0;
}

void Communicator::Disarm() {
  parts_.transports->SetPresence(Presence::kAwake);
  armed_ = false;
  quiet_rounds_ = 0;
}

Drivable::Drive Communicator::DriveOnce() {
  HearLosses();
  if (!HasWork() || !TryAcquire()) return Drive::kNoWork;
  if (armed_) Disarm();
  const bool moved = Advance();
  if (!moved) CheckClocks();
  owes_word_.store(point_to_point_->busy());
  Release();
  return moved ? Drive::kMoved : Drive::kIdle;
}

Drivable::Drive Communicator::PrepareSleep(std::vector<int>* wake_fds) {
  if (!HasWork() || !TryAcquire()) return Drive::kNoWork;
  Arm();
  const bool moved = Advance();
  if (moved) {
    Disarm();
  } else {
    const std::vector<int>& fds = parts_.transports->wake_fds();
    wake_fds->insert(wake_fds->end(), fds.begin(), fds.end());
  }
  Release();
  return moved ? Drive::kMoved : Drive::kIdle;
}

void Communicator::Abort() {
  aborted_.store(true);
  Stop(absl::AbortedError(absl::StrCat("communicator ", parts_.name,
                                       ": aborted on rank ",
                                       parts_.membership.rank)));
}

void Communicator::Watch() {
  // Whoever waits, or the progress thread, finds out by itself.
  if (failed_.load() || waiters_.load() > 0 || unfinished_.load() > 0 ||
      !TryAcquire())
    return;
  // Looks at once who has died.
  Disarm();
  const absl::Status status = parts_.transports->Progress();
  if (!status.ok()) {
    FailInCall(InCall(status));
  } else {
    Listen();
  }
  Release();
}

absl::Status Communicator::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

}  // namespace trnccl
