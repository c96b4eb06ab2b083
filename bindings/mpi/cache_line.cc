// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/cache_line.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"

namespace trnccl::perf {
namespace {

constexpr int kWindows = 50;
constexpr int64_t kTurns = 100;  // there and back, of a window
constexpr int64_t kPatienceMs = 2'000;
constexpr int kSpins = 2'000;  // before yielding: the two may share a core

// A line for each way.
struct Lines {
  alignas(128) std::atomic<int64_t> there;
  alignas(128) std::atomic<int64_t> back;
};

class SharedLines {
 public:
  SharedLines() = default;
  SharedLines(const SharedLines&) = delete;
  SharedLines& operator=(const SharedLines&) = delete;
  ~SharedLines() {
    if (lines_ != nullptr) munmap(lines_, sizeof(Lines));
    if (fd_ >= 0) close(fd_);
  }

  void Create() {
    fd_ = memfd_create("trnccl-cache-line", MFD_CLOEXEC);
    if (fd_ >= 0 && ftruncate(fd_, sizeof(Lines)) == 0) Map();
  }

  void Open(const std::string& path) {
    fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ >= 0) Map();
  }

  int fd() const { return fd_; }
  Lines* lines() const { return lines_; }

 private:
  void Map() {
    void* memory = mmap(nullptr, sizeof(Lines), PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd_, 0);
    if (memory != MAP_FAILED) lines_ = static_cast<Lines*>(memory);
  }

  int fd_ = -1;
  Lines* lines_ = nullptr;
};

// Where rank 0's memory is found: in its process, on its machine.
struct Offer {
  std::array<char, 64> machine = {};
  int process = 0;
  int fd = -1;
};

std::array<char, 64> Machine() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  std::string space(32, '\0');
  const ssize_t length =
      readlink("/proc/self/ns/pid", space.data(), space.size());
  space.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  std::array<char, 64> machine = {};
  absl::StrAppend(&id, space);
  id.copy(machine.data(), machine.size());
  return machine;
}

bool Await(const std::atomic<int64_t>& line, int64_t value, Deadline deadline) {
  for (int spins = 0; line.load(std::memory_order_acquire) != value; ++spins) {
    if (spins < kSpins) continue;
    if (deadline.expired()) return false;
    sched_yield();
  }
  return true;
}

// Nanoseconds one way, in the best window; the other end echoes.
std::optional<double> PingPong(Lines& lines, int rank) {
  const Deadline deadline = Deadline::After(kPatienceMs);
  double best_ns = std::numeric_limits<double>::max();
  int64_t turn = 0;
  for (int window = 0; window < kWindows; ++window) {
    const int64_t start_ns = NowNs();
    for (int64_t end = turn + kTurns; turn < end;) {
      ++turn;
      if (rank == 0) lines.there.store(turn, std::memory_order_release);
      if (!Await(rank == 0 ? lines.back : lines.there, turn, deadline))
        return std::nullopt;
      if (rank == 1) lines.back.store(turn, std::memory_order_release);
    }
    best_ns = std::min(best_ns, static_cast<double>(NowNs() - start_ns) /
                                    static_cast<double>(2 * kTurns));
  }
  return best_ns;
}

}  // namespace

absl::StatusOr<std::optional<double>> MeasureCacheLineNs(Team& team) {
  if (team.ranks() < 2) return std::nullopt;
  SharedLines shared;
  if (team.rank() == 0) shared.Create();
  Offer mine = {Machine(), getpid(), shared.fd()};
  ASSIGN_OR_RETURN(const std::vector<Offer> offers, team.Gather(mine));
  const Offer& offer = offers[0];
  if (team.rank() == 1 && offer.fd >= 0 && offer.machine == mine.machine)
    shared.Open(absl::StrCat("/proc/", offer.process, "/fd/", offer.fd));
  const bool ready = shared.lines() != nullptr;
  ASSIGN_OR_RETURN(const std::vector<char> all_ready,
                   team.Gather<char>(ready ? 1 : 0));
  std::optional<double> ns;
  if (all_ready[0] && all_ready[1] && team.rank() < 2)
    ns = PingPong(*shared.lines(), team.rank());
  ASSIGN_OR_RETURN(const std::vector<double> results,
                   team.Gather(ns.value_or(-1)));
  if (results[0] < 0) return std::nullopt;
  return results[0];
}

}  // namespace trnccl::perf
