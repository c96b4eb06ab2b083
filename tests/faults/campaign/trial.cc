// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/faults/campaign/trial.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"
#include "tests/faults/campaign/board.h"
#include "tests/faults/campaign/nodes.h"
#include "tests/faults/campaign/rank.h"

namespace trnccl {
namespace {

constexpr int64_t kStartMs = 40'000;
// Beyond the time to notice: later calls, another communicator, the end.
constexpr int64_t kEndMs = 20'000;
constexpr int64_t kExitMs = 5'000;

class Trial {
 public:
  Trial(const Fault& fault, const TrialOptions& options)
      : fault_(fault), options_(options) {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (memory) Board();
  }
  ~Trial() { munmap(board_, sizeof(Board)); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  Verdict Run() {
    const auto files = FilesOfNodes();
    for (int rank = 0; rank < fault_.ranks; ++rank) pids_.push_back(Fork(rank));
    board_->victim_pid.store(pids_[fault_.victim]);
    const auto everybody = [](int) { return true; };
    const auto survivors = [&](int rank) { return !fault_.IsVictim(rank); };
    if (Await(Stage::kReady, everybody, kStartMs)) {
      board_->go.store(true);
      usleep(static_cast<useconds_t>(fault_.delay_us));
      Inject();
      const int64_t limit_ms = NoticeLimitMs(fault_) + options_.slack_ms;
      if (Await(Stage::kDone, survivors, limit_ms + kEndMs)) {
        board_->over.store(true);
        kill(pids_[fault_.victim], SIGCONT);
        if (fault_.kind != FaultKind::kKill)
          Await(Stage::kDone, everybody, limit_ms + kEndMs);
      }
    }
    if (fault_.kind == FaultKind::kCut) {
      SetLink(options_.nodes.back(), Link::kUp);
      for (const pid_t node : options_.nodes) AwaitNetwork(node);
    }
    for (int rank = 0; rank < fault_.ranks; ++rank) Reap(rank);
    for (int rank = 0; rank < fault_.ranks; ++rank) Collect(rank);
    if (FilesOfNodes() != files)
      verdict_.failures.push_back("left behind: files in /dev/shm");
    return verdict_;
  }

 private:
  std::vector<std::vector<std::string>> FilesOfNodes() const {
    std::vector<std::vector<std::string>> files;
    for (const pid_t node : options_.nodes) files.push_back(MemoryFiles(node));
    return files;
  }

  pid_t Fork(int rank) {
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!options_.nodes.empty()) EnterNode(options_.nodes[fault_.NodeOf(rank)]);
    LiveAsRank(fault_, rank, board_);
    _exit(0);
  }

  // Also the end of a process that should live ends it.
  bool Await(Stage stage, const std::function<bool(int rank)>& of,
             int64_t limit_ms) {
    const Deadline deadline = Deadline::After(limit_ms);
    for (int rank = 0; rank < fault_.ranks; ++rank) {
      if (!of(rank)) continue;
      const Board::Rank& on_board = board_->ranks[rank];
      while (on_board.stage.load() < stage && !deadline.expired()) {
        if (HasEnded(rank) && on_board.stage.load() < stage) {
          Fail(rank, absl::StrCat("ended in ", on_board.at));
          return false;
        }
        usleep(200);
      }
      if (on_board.stage.load() < stage)
        Fail(rank, absl::StrCat("hangs in ", on_board.at, "; its error: \"",
                                on_board.error, "\""));
    }
    return verdict_.failures.empty();
  }

  bool HasEnded(int rank) const {
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(pids_[rank]), &info,
           WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid != 0;
  }

  void Inject() {
    const pid_t victim = pids_[fault_.victim];
    const int64_t now_ns = NowNs();
    switch (fault_.kind) {
      case FaultKind::kKill:
        board_->fault_ns.store(now_ns);
        kill(victim, SIGKILL);
        break;
      case FaultKind::kStop:
        board_->fault_ns.store(now_ns);
        kill(victim, SIGSTOP);
        break;
      case FaultKind::kStarve:
      case FaultKind::kLeave:
        board_->fault_ns.store(now_ns);
        break;
      case FaultKind::kCut:
        board_->fault_ns.store(now_ns);
        SetLink(options_.nodes.back(), Link::kDown);
        break;
    }
  }

  void Reap(int rank) {
    const pid_t pid = pids_[rank];
    const Deadline deadline = Deadline::After(kExitMs);
    while (verdict_.failures.empty() && !HasEnded(rank) && !deadline.expired())
      usleep(200);
    const bool ended = HasEnded(rank);
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    if (!verdict_.failures.empty()) return;
    if (!ended) Fail(rank, "doesn't end");
    const bool killed =
        fault_.kind == FaultKind::kKill && rank == fault_.victim;
    if (status != 0 && !killed)
      Fail(rank, absl::StrCat("ended with wait status ", status));
  }

  void Collect(int rank) {
    const Board::Rank& on_board = board_->ranks[rank];
    if (on_board.complaint[0] != 0) Fail(rank, on_board.complaint);
    const int64_t noticed_ns = on_board.noticed_ns.load();
    if (noticed_ns == 0 || fault_.IsVictim(rank)) return;
    // Who never came is missed at a deadline, before which nobody can tell.
    const bool by_deadline =
        fault_.IsByDeadline() || absl::StrContains(on_board.error, "missing:");
    const int64_t deadline_ms = !by_deadline ? 0
                                : fault_.phase == "init"
                                    ? fault_.bootstrap_timeout_ms
                                    : fault_.timeout_ms;
    const double ms = std::max(
        0.0, static_cast<double>(noticed_ns - board_->fault_ns.load()) / 1e6 -
                 static_cast<double>(deadline_ms));
    verdict_.notice_ms.push_back(ms);
    const int64_t limit_ms = NoticeLimitMs(fault_) + options_.slack_ms;
    if (ms > static_cast<double>(limit_ms))
      Fail(rank,
           absl::StrCat("noticed it after ", ms, " ms: ", on_board.error));
  }

  void Fail(int rank, const std::string& why) {
    verdict_.failures.push_back(absl::StrCat("rank ", rank, " ", why));
  }

  const Fault& fault_;
  const TrialOptions& options_;
  Board* board_;
  std::vector<pid_t> pids_;
  Verdict verdict_;
};

}  // namespace

int64_t NoticeLimitMs(const Fault& fault) {
  constexpr int64_t kOfTheMachineMs = 1'000;
  constexpr int64_t kAcrossMs = 3'000;
  const int64_t death_ms = fault.nodes == 1 ? kOfTheMachineMs : kAcrossMs;
  switch (fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kLeave:
      return death_ms;
    case FaultKind::kStop:
    case FaultKind::kStarve:
      // A split makes a communicator.
      return std::max(fault.bootstrap_timeout_ms - fault.timeout_ms,
                      int64_t{0}) +
             death_ms;
    case FaultKind::kCut:
      return 2 * kAcrossMs;
  }
  return death_ms;
}

Verdict Try(const Fault& fault, const TrialOptions& options) {
  return Trial(fault, options).Run();
}

}  // namespace trnccl
