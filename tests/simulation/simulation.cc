// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/simulation/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/simulation/mistakes.h"
#include "tests/simulation/world.h"

namespace trnccl {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

// The longest sleep, as the progress thread's.
constexpr int64_t kSleepNs = 100 * kNsPerMs;

// What may pass between a call's deadline and its end: the peers' time to
// answer, sleeps, and looking whether who left has died.
constexpr int64_t kGraceMs = 2'000;

// Far beyond what any run takes: one that gets there makes no progress.
constexpr int64_t kMaxSteps = 3'000'000;

// Whether a text has "rank N", also in a list as "rank 1, 4".
bool NamesRank(absl::string_view text, int rank) {
  constexpr absl::string_view kWord = "rank ";
  const std::string wanted = absl::StrCat(rank);
  for (size_t at = text.find(kWord); at != text.npos;
       at = text.find(kWord, at + 1)) {
    const absl::string_view list =
        text.substr(at + kWord.size(),
                    text.find_first_not_of("0123456789, ", at + kWord.size()) -
                        at - kWord.size());
    for (absl::string_view number : absl::StrSplit(list, ','))
      if (absl::StripAsciiWhitespace(number) == wanted) return true;
  }
  return false;
}

// Kinds of which ranks can know whose they are: of the others, all that shows
// may be that somebody doesn't send.
bool MustBeNamed(FaultKind kind) {
  return kind == FaultKind::kKill || kind == FaultKind::kStop;
}

class Simulation {
 public:
  explicit Simulation(const Scenario& scenario)
      : scenario_(scenario),
        draw_(scenario.seed ^ 0x5eed),
        ranks_(static_cast<size_t>(scenario.ranks)),
        world_(scenario) {}

  SimOutcome Run();

 private:
  struct UnderWay {
    std::unique_ptr<RankCalls> calls;
    int64_t since_ns = 0;
  };
  struct Rank {
    size_t next = 0;  // of the script
    std::vector<UnderWay> under_way;
    bool gone = false;       // dead, or stopped for good
    bool quit = false;       // makes no more calls
    int64_t resumes_ns = 0;  // isn't stepped before
    absl::Status cause;      // of its communicator's failure
  };

  const Fault& fault() const { return scenario_.fault; }
  int64_t now_ns() { return world_.network().now_ns(); }
  bool Finished(const Rank& rank) const {
    return rank.gone || (rank.under_way.empty() &&
                         (rank.quit || rank.next == scenario_.script.size()));
  }
  bool MayCall(const Rank& rank) const {
    return !rank.quit && rank.next < scenario_.script.size() &&
           static_cast<int>(rank.under_way.size()) < scenario_.window;
  }
  bool Runs(const Rank& rank) {
    return !rank.gone && rank.resumes_ns <= now_ns();
  }
  void Wrong(int rank, const std::string& what);

  void Turn();
  // True if anything moved.
  bool Step(int rank);
  void MaybeSubmit(int rank);
  void Submit(int rank, const SimSubmission& submission);
  void Reap(int rank);
  void Judge(int rank, const UnderWay& ended);
  void JudgeError(int rank, const absl::Status& status);
  void MaybeStrike(int rank);
  void Strike(int rank);
  void KeepCause(int rank);
  void Refuse(int rank);
  // Everybody goes to sleep; false if somebody finds something to do instead.
  bool AllSleep();
  // To when something happens to ranks that sleep since then.
  void Jump(int64_t asleep_ns);
  void JudgeEnd();
  void Mark(uint64_t value) {
    outcome_.trace = (outcome_.trace ^ value) * 0x9e3779b97f4a7c15;
    outcome_.trace ^= outcome_.trace >> 29;
  }

  const Scenario scenario_;
  Draw draw_;
  SimOutcome outcome_;
  // Outlive the communicators that borrow their calls.
  std::vector<Rank> ranks_;
  SimWorld world_;
  int64_t idle_ = 0;
  int64_t steps_since_due_ = 0;
  int64_t struck_ns_ = 0;
};

void Simulation::Wrong(int rank, const std::string& what) {
  if (!outcome_.wrong.empty()) return;
  outcome_.wrong =
      absl::StrCat("rank ", rank, ": ", what, "\n  in ", Describe(scenario_));
}

SimOutcome Simulation::Run() {
  int64_t steps = 0;
  while (outcome_.wrong.empty() &&
         !std::ranges::all_of(
             ranks_, [this](const Rank& rank) { return Finished(rank); })) {
    if (++steps > kMaxSteps) {
      Wrong(0, "the ranks make no progress and find no end");
      break;
    }
    Turn();
  }
  if (outcome_.wrong.empty()) JudgeEnd();
  return outcome_;
}

void Simulation::Turn() {
  const auto rank = static_cast<int>(draw_.Below(scenario_.ranks));
  if (!Runs(ranks_[static_cast<size_t>(rank)])) {
    ++idle_;
  } else {
    idle_ = Step(rank) ? 0 : idle_ + 1;
    world_.network().Pass(draw_.Below(2'000));
  }
  if (idle_ < 3 * scenario_.ranks) return;
  idle_ = 0;
  const int64_t asleep_ns = now_ns();
  if (AllSleep()) Jump(asleep_ns);
}

bool Simulation::Step(int rank) {
  Rank& mine = ranks_[static_cast<size_t>(rank)];
  MaybeStrike(rank);
  if (mine.gone) return true;
  MaybeSubmit(rank);
  if (mine.under_way.empty() && draw_.Percent(10)) world_[rank].Watch();
  const Drivable::Drive drive = world_[rank].DriveOnce();
  Reap(rank);
  KeepCause(rank);
  if (fault().kind == FaultKind::kSlow && rank == fault().rank)
    mine.resumes_ns = now_ns() + draw_.Below(3 * kNsPerMs);
  Mark(static_cast<uint64_t>(now_ns()) * 64 + static_cast<uint64_t>(rank) * 4 +
       static_cast<uint64_t>(drive));
  return drive == Drivable::Drive::kMoved;
}

void Simulation::MaybeSubmit(int rank) {
  Rank& mine = ranks_[static_cast<size_t>(rank)];
  if (!MayCall(mine) || draw_.Percent(40)) return;
  const bool errs = rank == fault().rank && static_cast<int64_t>(mine.next) >=
                                                fault().after_submissions;
  SimSubmission submission = scenario_.script[mine.next];
  if (errs && fault().kind == FaultKind::kRefusal) {
    Refuse(rank);
    return;
  }
  if (errs && fault().kind == FaultKind::kMismatch && !outcome_.struck &&
      MakeMistake(scenario_.ranks, &draw_, &submission))
    Strike(rank);
  ++mine.next;
  Submit(rank, submission);
}

void Simulation::Submit(int rank, const SimSubmission& submission) {
  Rank& mine = ranks_[static_cast<size_t>(rank)];
  auto calls = std::make_unique<RankCalls>(submission, rank, &world_.oracle());
  if (calls->operations().empty()) return;
  const absl::Status status = world_[rank].Submit(calls->operations());
  KeepCause(rank);
  if (status.ok()) {
    mine.under_way.push_back({std::move(calls), now_ns()});
    return;
  }
  if (status != mine.cause)
    Wrong(rank, absl::StrCat("a later call fails with ", status.ToString(),
                             ", not with ", mine.cause.ToString()));
  mine.quit = true;
}

void Simulation::Refuse(int rank) {
  Strike(rank);
  std::byte byte{};
  const CollectiveCall call{.collective = Collective::kBroadcast,
                            .root = scenario_.ranks,
                            .input = &byte,
                            .output = &byte,
                            .input_counts = BlockCounts::Even(1),
                            .output_counts = BlockCounts::Even(1)};
  if (world_[rank].Check(call).ok()) Wrong(rank, "a call that can't be passed");
  ranks_[static_cast<size_t>(rank)].quit = true;
}

void Simulation::Reap(int rank) {
  Rank& mine = ranks_[static_cast<size_t>(rank)];
  std::erase_if(mine.under_way, [&](const UnderWay& under_way) {
    const int64_t waited_ms = (now_ns() - under_way.since_ns) / kNsPerMs;
    const bool late = waited_ms > scenario_.settings.timeout_ms + kGraceMs &&
                      mine.resumes_ns == 0;
    if (late)
      Wrong(rank, absl::StrCat("a call goes on for ", waited_ms, " ms"));
    if (!under_way.calls->done()) return false;
    Judge(rank, under_way);
    return true;
  });
}

void Simulation::Judge(int rank, const UnderWay& ended) {
  const std::string wrong = ended.calls->Check();
  if (!wrong.empty()) Wrong(rank, wrong);
  for (const Operation* operation : ended.calls->operations()) {
    ++outcome_.calls;
    Mark(static_cast<uint64_t>(operation->status.code()) + 1);
    if (operation->status.ok()) continue;
    ++outcome_.failed;
    JudgeError(rank, operation->status);
  }
}

void Simulation::JudgeError(int rank, const absl::Status& status) {
  KeepCause(rank);
  const std::string text(status.message());
  const absl::Status& cause = ranks_[static_cast<size_t>(rank)].cause;
  if (!outcome_.struck || !IsFatal(fault().kind)) {
    Wrong(rank, absl::StrCat("an error without a cause: ", text));
    return;
  }
  outcome_.notice_ns = std::max(outcome_.notice_ns, now_ns() - struck_ns_);
  if (!absl::StartsWith(text, cause.message()))
    Wrong(rank, absl::StrCat("fails with \"", text, "\", though the cause is ",
                             cause.ToString()));
  if (rank == fault().rank) return;
  if (outcome_.first_error.empty()) outcome_.first_error = text;
  if (NamesRank(text, fault().rank)) return;
  outcome_.unnamed = text;
  if (MustBeNamed(fault().kind))
    Wrong(rank, absl::StrCat("an error that doesn't name rank ", fault().rank,
                             ": ", text));
}

void Simulation::KeepCause(int rank) {
  absl::Status& cause = ranks_[static_cast<size_t>(rank)].cause;
  const absl::Status failure = world_[rank].failure();
  if (cause.ok()) cause = failure;
  if (failure != cause)
    Wrong(rank, absl::StrCat("the first cause was ", cause.ToString(),
                             ", now it's ", failure.ToString()));
}

void Simulation::MaybeStrike(int rank) {
  const FaultKind kind = fault().kind;
  const bool at_call = kind == FaultKind::kMismatch ||
                       kind == FaultKind::kRefusal || kind == FaultKind::kNone;
  const Rank& mine = ranks_[static_cast<size_t>(rank)];
  if (at_call || outcome_.struck || rank != fault().rank ||
      static_cast<int64_t>(mine.next) <= fault().after_submissions)
    return;
  if (steps_since_due_++ >= fault().after_steps) Strike(rank);
}

void Simulation::Strike(int rank) {
  Rank& mine = ranks_[static_cast<size_t>(rank)];
  outcome_.struck = true;
  struck_ns_ = now_ns();
  switch (fault().kind) {
    case FaultKind::kPause:
      mine.resumes_ns = now_ns() + fault().pause_ns;
      break;
    case FaultKind::kAbort:
      world_[rank].Abort();
      KeepCause(rank);
      break;
    case FaultKind::kKill:
      world_.network().Kill(rank);
      mine.gone = true;
      break;
    case FaultKind::kStop:
      mine.gone = true;
      break;
    case FaultKind::kCutPair:
      world_.network().Cut(rank, fault().other);
      break;
    case FaultKind::kCutRank:
      world_.network().Cut(rank, -1);
      break;
    default:
      break;
  }
}

bool Simulation::AllSleep() {
  bool moved = false;
  std::vector<int> wake_fds;
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    if (!Runs(ranks_[static_cast<size_t>(rank)])) continue;
    moved |= MayCall(ranks_[static_cast<size_t>(rank)]);
    moved |= world_[rank].PrepareSleep(&wake_fds) == Drivable::Drive::kMoved;
    Reap(rank);
  }
  return !moved;
}

void Simulation::Jump(int64_t asleep_ns) {
  int64_t until_ns =
      std::min(world_.network().NextArrivalNs(asleep_ns), now_ns() + kSleepNs);
  for (const Rank& rank : ranks_)
    if (!rank.gone && rank.resumes_ns > now_ns())
      until_ns = std::min(until_ns, rank.resumes_ns);
  if (until_ns > now_ns()) world_.network().Pass(until_ns - now_ns());
}

// Who has made all its calls without an error may go; who couldn't, has failed.
// A death is learned of even by those who wait for nobody.
void Simulation::JudgeEnd() {
  world_.network().Pass(scenario_.weather.detection_ns);
  const FaultKind kind = outcome_.struck ? fault().kind : FaultKind::kNone;
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    const Rank& mine = ranks_[static_cast<size_t>(rank)];
    if (mine.gone) continue;
    world_[rank].Watch();
    KeepCause(rank);
    const bool complete =
        mine.next == scenario_.script.size() && mine.cause.ok();
    if (kind == FaultKind::kKill && mine.cause.ok())
      Wrong(rank, "it doesn't know of the death");
    const bool erred = kind == FaultKind::kMismatch ||
                       (kind == FaultKind::kRefusal && rank != fault().rank);
    if (erred && complete) Wrong(rank, "calls that don't match all succeeded");
  }
}

}  // namespace

SimOutcome Simulate(const Scenario& scenario) {
  return Simulation(scenario).Run();
}

}  // namespace trnccl
