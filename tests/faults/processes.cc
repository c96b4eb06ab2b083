// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/faults/processes.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "ccl/base/clock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr int kMostRanks = 8;
constexpr int64_t kLongMs = 60'000;

// Keeps for the test what failed in its child, however that ends.
class FailureKeeper : public testing::EmptyTestEventListener {
 public:
  explicit FailureKeeper(std::atomic<bool>* failed) : failed_(failed) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) failed_->store(true);
  }

 private:
  std::atomic<bool>* const failed_;
};

}  // namespace

void InChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "killed by " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

struct Processes::Shared {
  std::atomic<bool> has_id;
  trncclUniqueId id;
  std::atomic<int> stages[kMostRanks];
  std::atomic<bool> failed[kMostRanks];
  struct {
    std::atomic<bool> there;
    trncclResult_t result;
    int64_t took_ms;
    char text[4096];
  } reports[kMostRanks];
};

Processes::Processes(int ranks, const Body& body) : ranks_(ranks) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared_ = new (memory) Shared();
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      testing::UnitTest::GetInstance()->listeners().Append(
          new FailureKeeper(&shared_->failed[rank]));
      body(*this, rank);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    pids_.push_back(child);
  }
}

Processes::~Processes() {
  for (const pid_t pid : pids_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  for (int rank = 0; rank < ranks_; ++rank)
    EXPECT_FALSE(shared_->failed[rank].load()) << "in rank " << rank;
  munmap(shared_, sizeof(Shared));
}

trncclComm_t Processes::Init(int rank,
                             const std::vector<std::string>& settings) {
  if (rank == 0) {
    EXPECT_EQ(trncclGetUniqueId(&shared_->id), trncclSuccess);
    shared_->has_id.store(true);
  }
  while (!shared_->has_id.load()) sched_yield();
  std::vector<const char*> entries;
  for (const std::string& setting : settings)
    entries.push_back(setting.c_str());
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.timeout_ms = kLongMs;
  config.settings = entries.data();
  config.settings_count = static_cast<int>(entries.size());
  trncclComm_t comm = nullptr;
  if (trncclCommInitRankConfig(&comm, ranks_, shared_->id, rank, &config) !=
      trncclSuccess) {
    ADD_FAILURE() << "rank " << rank << ": " << trncclGetLastError(nullptr);
    _exit(1);
  }
  return comm;
}

void Processes::Stop(int rank) {
  EXPECT_EQ(kill(pids_[rank], SIGSTOP), 0);
  int status = 0;
  EXPECT_EQ(waitpid(pids_[rank], &status, WUNTRACED), pids_[rank]);
}

void Processes::Reach(int rank, int stage) {
  shared_->stages[rank].store(stage);
}

void Processes::Report(int rank, const Outcome& outcome) {
  auto& report = shared_->reports[rank];
  report.result = outcome.result;
  report.took_ms = outcome.took_ms;
  std::strncpy(report.text, outcome.text.c_str(), sizeof(report.text) - 1);
  report.there.store(true);
}

Outcome Processes::Result(int rank) {
  auto& report = shared_->reports[rank];
  const Deadline deadline = Deadline::After(kLongMs);
  while (!report.there.load() && !deadline.expired()) sched_yield();
  EXPECT_TRUE(report.there.load()) << "rank " << rank << " reported nothing";
  return {report.result, report.text, report.took_ms};
}

void Processes::Await(int rank, int stage) {
  const Deadline deadline = Deadline::After(kLongMs);
  while (shared_->stages[rank].load() < stage && !deadline.expired())
    sched_yield();
  EXPECT_GE(shared_->stages[rank].load(), stage) << "rank " << rank;
}

}  // namespace trnccl
