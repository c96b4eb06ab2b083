// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A communicator: keeps the order of its calls, runs them on executor, engine
// or point-to-point, waits for them, and fails once. What it's made of knows
// nothing of each other; this is where they meet.
//
// Progress is made by whoever holds the token: the thread that waits, or the
// process's progress thread where nobody does. Everything but the token, the
// submissions and the failure belongs to its holder. A failure is sticky: the
// first cause wins, later calls return it.
//
// Thread rule: Run(), Submit() and the rest of the calls from one thread at a
// time; Wait(), Abort(), failure() from any. Destroy it when no call is on.
//
//   ASSIGN_OR_RETURN(auto communicator, MakeCommunicator(options));
//   Operation barrier;
//   barrier.call = {.collective = Collective::kBarrier};
//   RETURN_IF_ERROR(communicator->Run(&barrier));
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/cost.h"
#include "ccl/base/membership.h"
#include "ccl/base/mutex.h"
#include "ccl/base/settings.h"
#include "ccl/communicator/checks.h"
#include "ccl/communicator/operation.h"
#include "ccl/communicator/reunion.h"
#include "ccl/communicator/short_calls.h"
#include "ccl/executor/engine_stage.h"
#include "ccl/executor/executor.h"
#include "ccl/executor/short_program.h"
#include "ccl/health/health.h"
#include "ccl/health/vigil.h"
#include "ccl/planner/planner.h"
#include "ccl/point_to_point/point_to_point.h"
#include "ccl/progress/backoff.h"
#include "ccl/progress/progress_thread.h"
#include "ccl/progress/sleepers.h"
#include "ccl/recorder/call_log.h"
#include "ccl/recorder/recorder.h"
#include "ccl/topology/topology.h"
#include "ccl/transport_set/transport_set.h"

namespace trnccl {

// Spreads a number over the 32 bits of a cookie.
uint32_t MixCookie(uint64_t value);

// Who watches over the processes, where shared memory doesn't, and what ranks
// are called there.
struct JobWatch {
  std::shared_ptr<Vigil> vigil;
  std::vector<int> ranks;  // by the communicator's own
};

class Communicator : public Drivable {
 public:
  // What making one (ccl/communicator/create.h) has put together.
  struct Parts {
    Membership membership;
    std::string name;
    Settings settings;
    Topology topology;
    uint32_t cookie = 0;
    JobWatch watch;
    std::unique_ptr<Reunion> reunion;
    NetworkChoice network;  // the parent's, so that its endpoints serve
    std::unique_ptr<TransportSet> transports;
    Sleepers* sleepers = nullptr;
    // Null: the process's, once there's asynchronous work.
    ProgressThread* progress_thread = nullptr;
    LinkModel model;
    uint32_t first_sequence = 1;  // of its collectives and offers; it wraps
    int collective_lanes = 1;
    size_t slice_bytes = 0;  // the longest message between any two ranks
  };
  // The lanes after those of collectives: two of point-to-point, and health's.
  static constexpr int kOwnLanes = 2 + Health::kLanes;

  static absl::StatusOr<std::unique_ptr<Communicator>> Create(Parts parts);
  ~Communicator() override;

  // Refuses a collective that can't be meant: see CheckCall().
  absl::Status Check(const CollectiveCall& call) {
    return checker_.Check(call);
  }

  // A blocking call: returns its status when it's complete.
  absl::Status Run(Operation* operation) { return RunAll({&operation, 1}); }
  // Blocking calls as one submission, none of them on the heap: returns the
  // first error when all are complete.
  absl::Status RunAll(std::span<Operation* const> operations);

  // Tells the peers of a collective that Check() or the caller has refused, so
  // that those who wait for it fail soon, unless this rank makes it after all.
  void AnnounceRefusal(const absl::Status& refusal) {
    AnnounceRefusal(Refused{.why = std::string(refusal.message())});
  }
  // The same of a send or receive: the peer is told that it names.
  void AnnounceRefusal(const Transfer& transfer, const absl::Status& refusal) {
    AnnounceRefusal(
        Refused{.why = std::string(refusal.message()), .transfer = transfer});
  }

  // Runs a blocking collective if one of its shape has run before and was
  // small; false if not, and then nothing has happened.
  bool RunShort(const ShortKey& key, const CallBuffers& buffers,
                absl::Status* status);

  // Starts asynchronous calls, in this order, as one submission. Those on the
  // heap get a reference of the communicator's. None is started on an error.
  absl::Status Submit(std::span<Operation* const> operations);

  static constexpr int64_t kForever = -1;
  // Waits for a submitted call; false if patience ended first, which changes
  // nothing.
  bool Wait(Operation* operation, int64_t patience_ms);

  // Waits until every submitted call is complete.
  absl::Status Finalize();

  // Fails it with Aborted, from any thread, without blocking.
  void Abort();
  // OK while it's healthy, as far as is known.
  absl::Status failure() const;
  // Finds out what has happened to peers while no call is on.
  void Watch();

  // What's known of a peer, by its process, the watch, and what it has said;
  // also of a communicator that has failed. Any thread.
  struct Fate {
    enum class Kind : uint8_t { kPresent, kLeft, kLost };
    Kind kind = Kind::kPresent;
    std::string how;  // "died: ..."; "" while it's present
  };
  Fate FateOf(int rank);

  int64_t timeout_ms() const {
    return timeout_ms_.load(std::memory_order_relaxed);
  }
  void set_timeout_ms(int64_t timeout_ms) { timeout_ms_.store(timeout_ms); }
  const Membership& membership() const { return parts_.membership; }
  const Settings& settings() const { return parts_.settings; }
  const Topology& topology() const { return parts_.topology; }
  const NetworkChoice& network() const { return parts_.network; }
  const JobWatch& watch() const { return parts_.watch; }
  const Reunion& reunion() const { return *parts_.reunion; }
  const std::string& name() const { return parts_.name; }
  const std::string& transport_name() const {
    return parts_.transports->name();
  }
  // Of the last collective that was started; "" before any.
  std::string_view last_algorithm() const { return *last_algorithm_.load(); }
  Recorder& recorder() { return *recorder_; }
  // For errors: "rank 2 (host a, pid 7): stopped, its last call: ...". Any
  // thread.
  std::string DescribePeer(int rank);
  const std::atomic<bool>& aborted() const { return aborted_; }
  // The cookie of the next child of this color: alike on all its ranks, since
  // all ranks split alike.
  uint32_t NextCookie(int color);

  // Drivable: the progress thread's side.
  Drive DriveOnce() override;
  Drive PrepareSleep(std::vector<int>* wake_fds) override;

 private:
  explicit Communicator(Parts parts);

  // A call that was refused.
  struct Refused {
    std::string why;
    std::optional<Transfer> transfer = std::nullopt;  // else a collective
    size_t position = 0;  // among the submissions; those before it came first
  };
  void AnnounceRefusal(Refused refused);

  // What a wait is for: an operation's end, or, with none, the end of all that
  // were submitted.
  struct Goal {
    const Operation* operation = nullptr;
    int64_t until_ns = INT64_MAX;
  };
  bool Reached(const Goal& goal) const;
  void WaitFor(const Goal& goal);
  // The first error of all.
  absl::Status WaitForAll(std::span<Operation* const> operations);

  absl::Status UseProgressThread();
  // Whether the progress thread has to drive it.
  bool HasWork() const {
    return (unfinished_.load() > 0 || submitted_.load() || owes_word_.load() ||
            (needs_calls_ && !failed_.load())) &&
           waiters_.load() == 0;
  }
  // Nobody drives a communicator that has failed or ends: where wires need
  // their sender (Transport::unsent), what it told its peers leaves now or
  // never.
  void SendOff();
  bool TryAcquire();
  // Gives the token back; those who wait for it look again, and those who asked
  // for it are told what has completed.
  void Release();
  static void Tell(std::span<Notice* const> notices);
  // Takes the token, or not if the goal is reached or the time over first.
  bool Acquire(const Goal& goal);

  // The rest needs the token.

  // Drives until the goal is reached or the time is over; releases the token.
  void Drive(const Goal& goal);
  // Sleeps without the token; true if it was got back.
  bool SleepOnce(const Goal& goal);
  void Arm();
  void Disarm();
  // Runs whatever can run; true if anything moved. The first time after Arm()
  // it leaves no arrival unseen.
  bool Advance();
  bool AdvanceCollective();
  Advanced AdvanceRunner();
  const absl::Status& RunnerStatus() const;
  bool AdvanceTransfers();
  // Of the memory that it sends from or, where that's worth it, receives into.
  void FindRegion(Transfer* transfer);
  void TakeSubmissions();
  void Enqueue(Operation* operation);
  bool StartNext();
  absl::Status StartCollective();
  absl::Status StartProgram();
  void Complete(Operation* operation, absl::Status status);
  void DistrustReceived();
  void ReapTransfers();

  // What follows is in short.cc.

  struct StartedCall {
    uint32_t sequence = 0;
    uint64_t record = 0;
  };
  absl::Status FinishShort(const ShortCall& call, const CallBuffers& buffers,
                           const StartedCall& started);
  // Makes the current collective's shape one for RunShort(), if it's small.
  void LearnShort();

  // What follows is in failure.cc.

  // Fails it, from any thread, without blocking.
  void Stop(const absl::Status& cause);
  // The cause of the failure from now on: this one, unless there's one.
  void KeepFirst(const absl::Status& cause);
  // Takes in whom the watch has lost; needs no token.
  void HearLosses();
  // "rank 3 (host a, pid 77)".
  std::string NameOf(int rank) const;
  // Looks at failures and deadlines.
  void CheckClocks();
  void CheckDeadline(Operation* operation, int64_t now_ns);
  // Tells the peers that this rank makes no collective from `sequence` on.
  void Leave(uint32_t sequence);
  // Waits until peers have taken what could be lost with this process.
  void AwaitTaken();
  // Takes in who has left on other nodes.
  void HearDepartures();
  // Looks for peers that won't do their part of what this rank is at.
  void CheckPeers(int64_t now_ns);
  // For how long nothing has moved in the current call, nor a peer failed; 0 if
  // there's none.
  int64_t StuckForNs(int64_t now_ns);
  // Whoever the current call waits for though it left long ago: what it sent
  // was lost.
  std::optional<int> LostWordsOf(int64_t now_ns) const;
  // What this rank tells of its last calls when it leaves.
  Health::LastCalls LastCalls(uint32_t sequence) const;
  // What a rank that has left called in place of the current collective, if
  // that's known and differs.
  std::optional<RankCall> LeaversCall() const;
  // Whether the peer has left without making the current collective.
  bool LeftBeforeCall(int rank) const;
  bool AllOthersLeft() const;
  // One that left and that this rank still needs.
  std::optional<int> MissedLeaver() const;
  // That the peer has left.
  absl::Status Departed(int rank) const;
  std::string HowDeparted(int rank) const;
  // Why what was read of the peer's memory can't be trusted, or OK.
  absl::Status Gone(int rank);
  // Why the peer won't, or OK.
  absl::Status WontCome(int rank, int64_t now_ns) const;
  // Why the peer won't do its part of a transfer that it has refused, or OK.
  absl::Status WontMatch(int rank, int64_t now_ns) const;
  // Tells the peers of a refusal.
  void TellRefusal(const Refused& refused);
  std::string DescribeWait(const Operation& operation) const;
  // The ranks whose data, or presence, it needs next.
  std::vector<int> WaitsFor(const Operation& operation) const;
  // What a rank of this machine has done; none if that can't be seen.
  std::optional<CallLog> LogOf(int rank) const;
  // Its process's state, and its last call.
  std::optional<std::string> WhereIs(int rank) const;
  // What a rank that the current collective waits for has called in its place,
  // where that can be seen and differs: it may have returned already, and be
  // in no call of this communicator.
  std::optional<RankCall> OtherCall() const;
  // Where ranks are that don't answer, and those that are waited for.
  std::string DescribeSilent(const std::vector<int>& ranks) const;
  std::string DescribeAwaited(const Operation& operation) const;
  // Where a peer is, seen from the current call: below 0, it hasn't come to it.
  int32_t CallsAhead(const CallLog& log) const;
  // Whom an operation that's late most likely waits for, if one stands out.
  std::optional<int> Suspect(const Operation& operation) const;
  // A peer's failure that ends what this rank is at: not if that's a call which
  // the peer had completed.
  const Health::Notice* Heard();
  // Acts on what peers say.
  void Listen();
  // This rank's call of a peer's sequence, or null if it has none or has
  // forgotten.
  const Envelope* CallOfSequence(const Envelope& other) const;
  // Whether the current collective may succeed: buffers of a peer that failed
  // were its own again, perhaps before they were read.
  bool MayComplete();
  // Fails as soon as the peers have answered, to name those who don't.
  void FailOnceAnswered(const absl::Status& status);
  // The verdict, with those who haven't answered: it began with one of them.
  absl::Status Judgement() const;
  // Fails with what a peer has said of its failure, if one has: what it left
  // behind, freed memory for one, is no cause of its own.
  void FailInCall(const absl::Status& status);
  // A peer's death, if that's behind the error; else the error.
  absl::Status DeathOr(const absl::Status& status);
  // The same where ranks of other nodes are watched over: the error of a wire
  // doesn't name whose death, or leaving, broke it.
  absl::Status LossOr(const absl::Status& status);
  // Says at whom it began, where that's known.
  absl::Status Named(const absl::Status& status) const;
  // Says whose error it is and in which call.
  absl::Status InCall(const absl::Status& status) const {
    return Named(WithCall(status));
  }
  absl::Status WithCall(const absl::Status& status) const;
  // Fails the communicator, unless it has failed before, and tells the peers.
  void Fail(const absl::Status& status);
  void TellPeers(const absl::Status& cause);
  // Peers touch buffers of unfinished calls no more; the cause, with that if
  // one may.
  absl::Status LeaveBuffers(const absl::Status& cause);
  // All operations are done with the cause.
  void End(const absl::Status& first_cause);

  absl::Status ChooseFolder(const CollectiveCall& call);
  // The name is the table's own, which outlives all calls.
  void RecordStart(const std::string_view& algorithm);
  static RecordedCall RecordedOf(const CollectiveCall& call);
  EngineCall EngineCallOf(const CollectiveCall& call) const;
  bool UsesEngine(const CollectiveCall& call) const;

  class FoldAdapter : public EngineFold {
   public:
    void Reset(const Folder* folder, size_t element_bytes);
    void Fold(std::span<const std::byte* const> inputs,
              std::span<std::byte* const> results, size_t count) const override;

   private:
    const Folder* folder_ = nullptr;
    size_t element_bytes_ = 1;
    mutable std::vector<FoldOperand> operands_;
  };

  Parts parts_;
  const bool needs_calls_;  // of its transports
  WaitPolicy policy_;
  std::atomic<int64_t> timeout_ms_;
  CallChecker checker_;
  std::unique_ptr<Planner> planner_;
  Executor executor_;
  std::optional<EngineStage> engine_stage_;
  std::unique_ptr<PointToPoint> point_to_point_;
  std::unique_ptr<Health> health_;
  std::unique_ptr<Recorder> recorder_;
  // Once there was a Submit(), or from the start where there's a watch.
  ProgressThread* progress_thread_ = nullptr;
  std::atomic<size_t> heard_losses_ = 0;

  std::atomic<bool> token_ = false;
  std::atomic<int> waiters_ = 0;     // threads that wait without the token
  std::atomic<int> unfinished_ = 0;  // submitted and not done
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> submitted_ = false;
  // A peer has no room yet for the word of a refusal.
  std::atomic<bool> owes_word_ = false;
  std::atomic<const std::string_view*> last_algorithm_;
  mutable Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<Operation*> submissions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Refused> refusals_ ABSL_GUARDED_BY(mutex_);  // to be told

  // The token holder's.
  bool armed_ = false;  // peers ring
  uint32_t quiet_rounds_ = 0;
  // After what wait in the current collective its peers were last looked after;
  // 0: not yet.
  int64_t looked_after_ns_ = 0;
  // Of a call that's over, where that one turns out to have failed.
  std::optional<uint32_t> failed_sequence_;
  // Of this rank's last, and whether it may still be waited for in vain.
  uint32_t refused_sequence_ = 0;
  uint32_t refused_times_ = 0;
  bool sent_notices_ = false;
  size_t heard_departures_ = 0;
  absl::Status verdict_;  // of a deadline; its origin is a suspect
  int64_t answers_until_ns_ = 0;
  uint64_t moves_ = 0;  // rounds in which anything moved
  // Where this rank was at the last look, and since when.
  struct StuckPlace {
    uint64_t moves = 0;
    uint32_t sequence = 0;
    const Health::Notice* notice = nullptr;

    bool operator==(const StuckPlace&) const = default;
  };
  StuckPlace stuck_at_;
  int64_t stuck_since_ns_ = 0;
  uint32_t next_sequence_;
  uint32_t splits_ = 0;
  // The fingerprints of the last collectives, by sequence.
  static constexpr uint32_t kPastCalls = 64;
  std::array<Envelope, kPastCalls> past_calls_ = {};
  Operation* current_ = nullptr;  // the collective that runs
  const Plan* plan_ = nullptr;    // its
  enum class Runner : uint8_t { kProgram, kEngine, kShort };
  Runner runner_ = Runner::kProgram;
  ShortCalls short_calls_;
  ShortRun short_run_;
  uint32_t calls_since_look_ = 0;    // RunShort() that didn't look around
  std::vector<Notice*> notices_;     // of completed calls, not told yet
  Operation* queue_head_ = nullptr;  // collectives to come
  Operation* queue_tail_ = nullptr;
  std::vector<Operation*> transfers_;  // unfinished
  Envelope envelope_;                  // of the current collective
  // Of the last reduction. No call asks for this operator with this type.
  FoldSpec folder_spec_{.type = DataType::kBool, .op = ReduceOp::kAvg};
  Folder folder_;
  FoldAdapter fold_adapter_;
};

}  // namespace trnccl
