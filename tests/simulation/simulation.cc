// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/simulation/simulation.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/simulation/mistakes.h"
#include "tests/simulation/stepped_call.h"
#include "tests/simulation/world.h"

namespace trnccl {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

// The longest sleep, as the progress thread's.
constexpr int64_t kSleepNs = 100 * kNsPerMs;

// What may pass between a call's deadline and its end: the peers' time to
// answer, sleeps, and looking whether who left has died.
constexpr int64_t kGraceMs = 2'000;

// After so many rounds a blocking call has looked for all that it looks for
// from time to time alone.
constexpr int kRoundsPerLook = 65;

// Far beyond what any call takes: in so many steps one ends somewhere, however
// long the run.
constexpr int64_t kMostStepsToAnEnd = 3'000'000;

// Far beyond any pause and any delay: once no message has been sent or taken
// for so long, none will be.
constexpr int64_t kMostStillNs = 60'000 * kNsPerMs;

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

// Of two that don't reach each other, either may be taken for the one that
// doesn't come.
bool NamesCulprit(absl::string_view text, const Fault& fault) {
  return NamesRank(text, fault.rank) ||
         (fault.kind == FaultKind::kCutPair && NamesRank(text, fault.other));
}

bool AnyWire(const Scenario& scenario,
             const std::function<bool(const SimOptions&)>& is) {
  return is(scenario.within) || is(scenario.across);
}

bool AnyMessage(const Scenario& scenario,
                const std::function<bool(const SimMessage&)>& is) {
  for (const SimSubmission& submission : scenario.script)
    for (const SimCall& call : submission)
      if (std::ranges::any_of(call.messages, is)) return true;
  return false;
}

bool HasWildMessages(const Scenario& scenario) {
  return AnyMessage(scenario, [](const auto& one) { return one.is_wild(); });
}

bool HasMessages(const Scenario& scenario) {
  return AnyMessage(scenario, [](const auto&) { return true; });
}

bool AnyLinkOfOne(const Scenario& scenario) {
  return AnyWire(
      scenario, [](const SimOptions& wire) { return wire.form.capacity == 1; });
}

// A refused collective doesn't end waits for messages, which may still come.
// Of a call that doesn't match, the others learn by words that may be lost
// where a link takes one message alone. Over wires that deliver, leaving is
// told by the watch, which isn't played here; and who takes messages of anybody
// doesn't miss one.
bool IsAnnounced(const Scenario& scenario) {
  switch (scenario.fault.kind) {
    case FaultKind::kMismatch:
      return !AnyLinkOfOne(scenario);
    case FaultKind::kRefusal:
      return !AnyLinkOfOne(scenario) && !HasMessages(scenario);
    case FaultKind::kLeave:
      return !HasWildMessages(scenario) &&
             !AnyWire(scenario, [](const SimOptions& wire) {
               return wire.form.delivers;
             });
    default:
      return scenario.fault.kind == FaultKind::kAbort ||
             scenario.fault.kind == FaultKind::kKill;
  }
}

// From the fault to the last rank's error.
int64_t NoticeMs(const Scenario& scenario) {
  constexpr int64_t kAnnouncedMs = 2'100;
  return IsAnnounced(scenario) ? kAnnouncedMs
                               : scenario.settings.timeout_ms + kGraceMs;
}

// Whether all errors name the culprit, or one of them at least. A deadline that
// comes before the words says who didn't send, and so where to look next; so it
// does where two ranks don't reach each other, but all others.
enum class Naming : uint8_t { kByAll, kByOne, kByNone };
Naming NamingOf(const Scenario& scenario) {
  const bool in_time =
      scenario.settings.timeout_ms > 2'000 && !AnyLinkOfOne(scenario);
  switch (scenario.fault.kind) {
    case FaultKind::kMismatch:
      return in_time ? Naming::kByAll : Naming::kByNone;
    case FaultKind::kRefusal:
      return in_time && !HasMessages(scenario) ? Naming::kByAll
                                               : Naming::kByNone;
    case FaultKind::kLeave:
      return HasWildMessages(scenario) ? Naming::kByNone : Naming::kByAll;
    case FaultKind::kCutPair:
      return HasWildMessages(scenario) ? Naming::kByNone : Naming::kByOne;
    default:
      return Naming::kByAll;
  }
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
    // Of a blocking one, which is the last of its rank.
    std::unique_ptr<SteppedCall> blocking;

    bool done() const {
      return blocking != nullptr ? blocking->ended() : calls->done();
    }
  };
  struct Rank {
    size_t next = 0;  // of the script
    std::vector<UnderWay> under_way;
    bool gone = false;       // dead, or stopped for good
    bool quit = false;       // makes no more calls
    int64_t resumes_ns = 0;  // isn't stepped before
    absl::Status cause;      // of its communicator's failure

    bool blocked() const {
      return !under_way.empty() && under_way.back().blocking != nullptr;
    }
  };

  const Fault& fault() const { return scenario_.fault; }
  int64_t now_ns() { return world_.network().now_ns(); }
  bool Finished(const Rank& rank) const {
    return rank.gone || (rank.under_way.empty() &&
                         (rank.quit || rank.next == scenario_.script.size()));
  }
  bool MayCall(const Rank& rank) const {
    return !rank.quit && !rank.blocked() &&
           rank.next < scenario_.script.size() &&
           static_cast<int>(rank.under_way.size()) < scenario_.window;
  }
  bool Runs(const Rank& rank) {
    return !rank.gone && rank.resumes_ns <= now_ns();
  }
  void Wrong(int rank, const std::string& what);

  void Turn();
  // Whether the ranks get on: calls end, if not at once, and messages pass.
  void CheckProgress();
  // True if anything moved.
  bool Step(int rank);
  // Of a blocking call, until it has yielded so often.
  bool Drive(int rank, int yields = 1);
  void MaybeSubmit(int rank);
  void Submit(int rank, const SimSubmission& submission);
  void Reap(int rank);
  void Judge(int rank, const UnderWay& ended);
  void JudgeError(int rank, const absl::Status& status);
  void MaybeStrike(int rank);
  void Strike(int rank);
  void KeepCause(int rank);
  void Refuse(int rank);
  void Leave(int rank);
  // Blocking calls of ranks that are never stepped again return.
  void EndBlocked();
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
  int64_t calls_ended_ = 0;  // when last looked at
  int64_t steps_to_an_end_ = 0;
  int64_t traffic_ = 0;  // when last looked at
  int64_t still_since_ns_ = 0;
  int64_t struck_ns_ = 0;
  bool named_ = false;  // by an error of another rank than the fault's
};

void Simulation::Wrong(int rank, const std::string& what) {
  if (!outcome_.wrong.empty()) return;
  outcome_.wrong =
      absl::StrCat("rank ", rank, ": ", what, "\n  in ", Describe(scenario_));
}

SimOutcome Simulation::Run() {
  while (outcome_.wrong.empty() &&
         !std::ranges::all_of(
             ranks_, [this](const Rank& rank) { return Finished(rank); })) {
    Turn();
    CheckProgress();
  }
  if (outcome_.wrong.empty()) JudgeEnd();
  EndBlocked();
  return outcome_;
}

void Simulation::CheckProgress() {
  if (std::exchange(calls_ended_, outcome_.calls) != outcome_.calls)
    steps_to_an_end_ = 0;
  if (++steps_to_an_end_ > kMostStepsToAnEnd)
    Wrong(0, "messages pass, but no call ends");
  const int64_t traffic = world_.network().traffic();
  if (std::exchange(traffic_, traffic) != traffic) still_since_ns_ = now_ns();
  if (now_ns() - still_since_ns_ > kMostStillNs)
    Wrong(0, "nothing moves any more");
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
  const bool moved = Drive(rank);
  Reap(rank);
  KeepCause(rank);
  if (fault().kind == FaultKind::kSlow && rank == fault().rank)
    mine.resumes_ns = now_ns() + draw_.Below(3 * kNsPerMs);
  Mark(static_cast<uint64_t>(now_ns()) * 64 + static_cast<uint64_t>(rank) * 4 +
       static_cast<uint64_t>(moved));
  return moved;
}

bool Simulation::Drive(int rank, int yields) {
  const Rank& mine = ranks_[static_cast<size_t>(rank)];
  if (!mine.blocked())
    return world_[rank].DriveOnce() == Drivable::Drive::kMoved;
  const int64_t traffic = world_.network().traffic();
  return mine.under_way.back().blocking->Step(yields) ||
         world_.network().traffic() != traffic;
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
  if (draw_.Percent(scenario_.blocking_percent)) {
    const auto run = [this, rank, made = calls.get()] {
      outcome_.short_calls += made->RunOn(&world_[rank]) ? 1 : 0;
    };
    mine.under_way.push_back(
        {std::move(calls), now_ns(), std::make_unique<SteppedCall>(run)});
    return;
  }
  const absl::Status status = world_[rank].Submit(calls->operations());
  KeepCause(rank);
  if (status.ok()) {
    mine.under_way.push_back({std::move(calls), now_ns(), nullptr});
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
  const absl::Status refusal = world_[rank].Check(call);
  if (refusal.ok()) Wrong(rank, "a call that can't be passed");
  world_[rank].AnnounceRefusal(refusal);
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
    if (!under_way.done()) return false;
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
    if (ended.blocking != nullptr)
      ranks_[static_cast<size_t>(rank)].quit = true;
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
  if (!absl::StartsWith(text, cause.message()))
    Wrong(rank, absl::StrCat("fails with \"", text, "\", though the cause is ",
                             cause.ToString()));
  if (rank == fault().rank) return;
  const int64_t notice_ns = now_ns() - struck_ns_;
  outcome_.notice_ns = std::max(outcome_.notice_ns, notice_ns);
  if (notice_ns > NoticeMs(scenario_) * kNsPerMs)
    Wrong(rank, absl::StrCat("it learns of it after ", notice_ns / kNsPerMs,
                             " ms: ", text));
  if (outcome_.first_error.empty()) outcome_.first_error = text;
  const bool named = NamesCulprit(text, fault());
  named_ |= named;
  if (!named && NamingOf(scenario_) == Naming::kByAll)
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
  const bool may_not = kind == FaultKind::kLeave && mine.blocked();
  if (at_call || may_not || outcome_.struck || rank != fault().rank ||
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
    case FaultKind::kLeave:
      Leave(rank);
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

void Simulation::Leave(int rank) {
  Rank& mine = ranks_[static_cast<size_t>(rank)];
  world_.Destroy(rank);
  for (const UnderWay& under_way : mine.under_way) {
    if (!under_way.done()) Wrong(rank, "a call outlives its communicator");
    const std::string wrong = under_way.calls->Check();
    if (!wrong.empty()) Wrong(rank, wrong);
  }
  mine.under_way.clear();
  mine.gone = true;
}

void Simulation::EndBlocked() {
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    const Rank& mine = ranks_[static_cast<size_t>(rank)];
    if (!mine.blocked()) continue;
    world_[rank].Abort();
    while (!mine.under_way.back().blocking->Step()) {
    }
  }
}

bool Simulation::AllSleep() {
  bool moved = false;
  std::vector<int> wake_fds;
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    if (!Runs(ranks_[static_cast<size_t>(rank)])) continue;
    moved |= MayCall(ranks_[static_cast<size_t>(rank)]);
    if (ranks_[static_cast<size_t>(rank)].blocked()) {
      moved |= Drive(rank, kRoundsPerLook);
    } else {
      moved |= world_[rank].PrepareSleep(&wake_fds) == Drivable::Drive::kMoved;
    }
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
  if (!outcome_.first_error.empty() && !named_ &&
      NamingOf(scenario_) != Naming::kByNone)
    Wrong(fault().rank, "no error names it: " + outcome_.first_error);
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
