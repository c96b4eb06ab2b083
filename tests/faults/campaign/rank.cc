// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/faults/campaign/rank.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/clock.h"
#include "tests/faults/campaign/calls.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

// Calls on a communicator that has failed.
constexpr int64_t kFailFastMs = 1'000;
// What the kernel and threads may take to give back what was freed.
constexpr int64_t kGiveBackMs = 3'000;
constexpr int64_t kHeartbeatMs = 2'000;
constexpr int64_t kUnhurriedMs = 30'000;
constexpr int kMainId = 0;
constexpr int kWarmUpId = 1;

void AwaitSet(const std::function<bool()>& condition) {
  while (!condition()) usleep(100);
}

void Copy(const std::string& text, char* to, size_t size) {
  std::strncpy(to, text.c_str(), size - 1);
}

// What a process holds: more of any at the end is a leak.
struct Holdings {
  std::vector<std::string> descriptors;  // what they lead to
  int64_t threads = 0;
  int64_t shared_mappings = 0;

  static Holdings Now() {
    Holdings now;
    const std::filesystem::directory_iterator threads("/proc/self/task");
    now.threads = std::distance(begin(threads), end(threads));
    std::error_code gone;  // the one that reads the folder
    int64_t alarms = 0;    // that a thread has for good once it has slept
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      const std::string name = std::filesystem::read_symlink(entry, gone);
      if (name == "anon_inode:[eventfd]" && ++alarms <= now.threads) continue;
      now.descriptors.push_back(name);
    }
    std::ifstream maps("/proc/self/maps");
    std::string line;
    while (std::getline(maps, line))
      if (absl::StrContains(line, "/memfd:")) ++now.shared_mappings;
    return now;
  }

  bool Exceed(const Holdings& other) const {
    return descriptors.size() > other.descriptors.size() ||
           threads > other.threads || shared_mappings > other.shared_mappings;
  }

  std::string Text() const {
    return absl::StrCat(threads, " threads, ", shared_mappings,
                        " mappings of memory files, descriptors of ",
                        absl::StrJoin(descriptors, " "));
  }
};

class Life {
 public:
  Life(const Fault& fault, int rank, Board* board)
      : fault_(fault),
        rank_(rank),
        is_victim_(fault.IsVictim(rank)),
        board_(*board),
        me_(board->ranks[rank]) {}

  void Run() {
    ShareIds();
    if (fault_.warm) WarmUp();
    attempts_ = MakeAttempts(fault_, rank_);
    if (fault_.phase == "init") Begin();
    const Outcome init = OutcomeOf([&] { return Init(kMainId, &comm_); });
    if (init.result != trncclSuccess) {
      if (fault_.phase != "init") Complain("init failed: " + init.text);
      Notice(init.result, init.text);
    } else {
      LiveWithCommunicator();
    }
    attempts_ = nullptr;
    if (fault_.warm) ExpectNothingLeft();
    me_.stage.store(Stage::kDone);
  }

 private:
  void At(const std::string& what) { Copy(what, me_.at, sizeof(me_.at)); }

  void Complain(const std::string& what) {
    if (me_.complaint[0] == 0) Copy(what, me_.complaint, sizeof(me_.complaint));
  }

  void ExpectOk(const char* what, const std::function<trncclResult_t()>& call) {
    At(what);
    const Outcome outcome = OutcomeOf(call);
    if (outcome.result != trncclSuccess)
      Complain(absl::StrCat(what, " failed: ", outcome.text));
  }

  void ShareIds() {
    At("start");
    if (rank_ == 0) {
      for (trncclUniqueId& id : board_.ids)
        ExpectOk("get_unique_id", [&] { return trncclGetUniqueId(&id); });
      board_.has_ids.store(true);
    }
    AwaitSet([&] { return board_.has_ids.load(); });
  }

  trncclResult_t Init(int id, trncclComm_t* comm) {
    At("init");
    const std::string bootstrap = absl::StrCat(
        "TRNCCL_BOOTSTRAP_TIMEOUT_MS=",
        id == kMainId ? fault_.bootstrap_timeout_ms : kUnhurriedMs);
    const std::string heartbeat =
        absl::StrCat("TRNCCL_HEARTBEAT_MS=", kHeartbeatMs);
    const char* settings[] = {
        bootstrap.c_str(), heartbeat.c_str(),
        id == kMainId ? "TRNCCL_WAIT=auto" : "TRNCCL_WAIT=sleep"};
    trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
    config.timeout_ms = id == kMainId ? fault_.timeout_ms : kUnhurriedMs;
    config.settings = settings;
    config.settings_count = 3;
    return trncclCommInitRankConfig(comm, fault_.ranks, board_.ids[id], rank_,
                                    &config);
  }

  // Makes what a process makes once: its thread, its sockets to all others,
  // what its threads sleep on.
  void WarmUp() {
    trncclComm_t comm = nullptr;
    ExpectOk("init to warm up", [&] { return Init(kWarmUpId, &comm); });
    if (comm == nullptr) return;
    Fault asynchronous = fault_;
    asynchronous.phase = "asynchronous";
    asynchronous.count = 10;
    const Attempt attempt = MakeAttempts(asynchronous, rank_)(comm);
    if (attempt.result != trncclSuccess || !attempt.is_right)
      Complain("calls to warm up failed: " + attempt.text);
    for (int late = 0; late < 2; ++late) {
      if (rank_ % 2 == late) usleep(5'000);
      ExpectOk("barrier", [&] { return trncclBarrier(comm, nullptr); });
    }
    ExpectOk("finalize", [&] { return trncclCommFinalize(comm); });
    ExpectOk("destroy", [&] { return trncclCommDestroy(comm); });
    before_ = Holdings::Now();
  }

  // The other communicator has whoever can still meet afterwards.
  void MakeOther() {
    int color = is_victim_ ? TRNCCL_SPLIT_NOCOLOR : 0;
    if (fault_.kind == FaultKind::kCut) color = fault_.NodeOf(rank_);
    ExpectOk("split", [&] {
      return trncclCommSplit(comm_, color, rank_, &other_, nullptr);
    });
    if (other_ != nullptr) trncclCommSetTimeout(other_, kUnhurriedMs);
  }

  void Begin() {
    me_.stage.store(Stage::kReady);
    AwaitSet([&] { return board_.go.load(); });
  }

  void LiveWithCommunicator() {
    if (fault_.phase != "init") {
      MakeOther();
      Begin();
    }
    // Of the ends that are looked for in "destroy", some come after calls.
    const uint64_t most =
        fault_.phase == "destroy" ? fault_.seed / 7 % 4 : UINT64_MAX;
    Attempt last;
    for (uint64_t i = 0;
         i < most && last.result == trncclSuccess && !IsToLeave(); ++i)
      last = AttemptOnce();
    if (last.result != trncclSuccess) {
      Notice(last.result, last.text);
      ExpectLaterCallsToFail();
    } else {
      StarveIfToBe();
      At("finalize");
      const Outcome end = OutcomeOf([&] { return trncclCommFinalize(comm_); });
      if (end.result != trncclSuccess) {
        Notice(end.result, end.text);
      } else {
        me_.stage.store(Stage::kNoticed);
      }
    }
    Leave();
  }

  bool IsToLeave() const {
    return is_victim_ && fault_.kind == FaultKind::kLeave &&
           board_.fault_ns.load() != 0;
  }

  // A victim of kStarve makes no call from now on, until all is over.
  void StarveIfToBe() {
    if (!is_victim_ || fault_.kind != FaultKind::kStarve) return;
    if (fault_.phase == "destroy")
      AwaitSet([&] { return board_.fault_ns.load() != 0; });
    if (board_.fault_ns.load() != 0)
      AwaitSet([&] { return board_.over.load(); });
  }

  Attempt AttemptOnce() {
    StarveIfToBe();
    At(fault_.phase);
    const bool may_idle = fault_.kind == FaultKind::kKill ||
                          fault_.kind == FaultKind::kCut ||
                          board_.fault_ns.load() == 0;
    Attempt attempt;
    if (fault_.phase == "idle" && !may_idle) {
      attempt.result = trncclBarrier(comm_, nullptr);
      attempt.text = trncclGetLastError(nullptr);
    } else {
      attempt = attempts_(comm_);
      if (fault_.phase == "idle") usleep(100);
    }
    if (!attempt.is_right) Complain("a call succeeded with a wrong result");
    return attempt;
  }

  void Notice(trncclResult_t result, const std::string& text) {
    me_.noticed_ns.store(NowNs());
    Copy(text, me_.error, sizeof(me_.error));
    if (board_.fault_ns.load() == 0) {
      Complain("an error before the fault: " + text);
    } else if (!is_victim_) {
      Judge(result, text);
    }
    me_.stage.store(Stage::kNoticed);
  }

  void Judge(trncclResult_t result, const std::string& text) {
    if (result != trncclRemoteError && result != trncclTimeout)
      Complain(absl::StrCat("result ", result, ": ", text));
    if (!NamesVictim(text)) Complain("the victim isn't named: " + text);
  }

  // Whether a list of ranks after these words has the victim in it.
  bool Lists(const std::string& text, const std::string& words) const {
    return std::regex_search(
        text, std::regex(absl::StrCat("(", words, ") ranks? ([0-9]+, )*",
                                      fault_.victim, "\\b")));
  }

  bool NamesVictim(const std::string& text) const {
    const bool in_init = fault_.phase == "init" && comm_ == nullptr;
    // Who made the id is known by its address alone, and so is a whole node.
    const bool is_known_by_id =
        fault_.victim == 0 || fault_.kind == FaultKind::kCut;
    if (in_init && is_known_by_id && absl::StrContains(text, "unique id of"))
      return true;
    switch (fault_.kind) {
      case FaultKind::kKill:
        // Who isn't a part of the job yet is known by its number alone.
        return (Lists(text, "origin:") &&
                absl::StrContains(
                    text, absl::StrCat("pid ", board_.victim_pid.load()))) ||
               (in_init && Lists(text, "missing:|origin:|cannot reach|lost"));
      case FaultKind::kStop:
      case FaultKind::kStarve:
        return Lists(text, in_init ? "missing:|origin:|waiting for|through"
                                   : "no answer from|waits for|of|from|to");
      case FaultKind::kLeave:
        return Lists(text, "origin:") &&
               absl::StrContains(text, "destroyed its communicator");
      case FaultKind::kCut:
        break;
    }
    return NamesOtherNode(text);
  }

  // Each node sees the other one gone, and knows its ranks by the links to
  // them.
  bool NamesOtherNode(const std::string& text) const {
    const std::regex named("(origin:|missing:|with) ranks? ([0-9]+)");
    for (std::sregex_iterator it(text.begin(), text.end(), named), end;
         it != end; ++it)
      if (fault_.NodeOf(std::stoi((*it)[2])) != fault_.NodeOf(rank_))
        return true;
    return false;
  }

  void ExpectLaterCallsToFail() {
    At("later calls");
    const std::string cause = trncclGetLastError(comm_);
    uint32_t values[16] = {};
    const Outcome later = OutcomeOf([&] {
      trncclResult_t error = trncclSuccess;
      trncclCommGetAsyncError(comm_, &error);
      const std::vector<trncclResult_t> results = {
          error, trncclBarrier(comm_, nullptr),
          trncclAllReduce(values, values, 16, trncclUint32, trncclSum, comm_,
                          nullptr),
          trncclSend(values, 16, trncclUint32, fault_.victim, 0, comm_,
                     nullptr)};
      for (const trncclResult_t result : results)
        if (result != results[0]) return trncclSuccess;
      return error;
    });
    if (later.result == trncclSuccess)
      Complain("later calls end with another result than the first cause's");
    if (later.took_ms > kFailFastMs)
      Complain(absl::StrCat("later calls took ", later.took_ms, " ms"));
    if (trncclGetLastError(comm_) != cause)
      Complain(absl::StrCat("the cause was \"", cause, "\" and is now \"",
                            trncclGetLastError(comm_), "\""));
  }

  // In one order or the other.
  void Leave() {
    if (fault_.seed % 2 == 0) Destroy();
    if (other_ != nullptr) UseOther();
    if (fault_.seed % 2 != 0) Destroy();
  }

  void Destroy() {
    ExpectOk("destroy", [&] { return trncclCommDestroy(comm_); });
    comm_ = nullptr;
  }

  void UseOther() {
    At("the wait for the other survivors");
    for (int rank = 0; rank < fault_.ranks; ++rank)
      if (!fault_.IsVictim(rank))
        AwaitSet(
            [&] { return board_.ranks[rank].stage.load() >= Stage::kNoticed; });
    At("calls of another communicator");
    for (const size_t count : {1, 40'000}) {
      const auto works = Works(other_, count);
      // What DESIGN.md says of leaving: nobody may write any more into memory
      // that was given back, at that price.
      if (fault_.nodes > 1 && fault_.kind == FaultKind::kStop &&
          absl::StrContains(works.message(), "endpoints were closed"))
        break;
      if (!works)
        Complain(absl::StrCat("another communicator fails: ", works.message()));
    }
    At("finalize of the other");
    trncclCommFinalize(other_);
    ExpectOk("destroy of the other", [&] { return trncclCommDestroy(other_); });
  }

  void ExpectNothingLeft() {
    At("the wait for what it holds to be given back");
    const Deadline deadline = Deadline::After(kGiveBackMs);
    while (Holdings::Now().Exceed(before_) && !deadline.expired()) usleep(1000);
    if (Holdings::Now().Exceed(before_))
      Complain(absl::StrCat("left behind: ", Holdings::Now().Text(),
                            "; before: ", before_.Text()));
  }

  const Fault& fault_;
  const int rank_;
  const bool is_victim_;
  Board& board_;
  Board::Rank& me_;
  Attempts attempts_;
  Holdings before_;
  trncclComm_t comm_ = nullptr;
  trncclComm_t other_ = nullptr;
};

}  // namespace

void LiveAsRank(const Fault& fault, int rank, Board* board) {
  Life(fault, rank, board).Run();
}

}  // namespace trnccl
