// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/pair.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trnccl::cli {

struct Board {
  struct alignas(128) Side {
    std::atomic<uint32_t> meetings;
    uint32_t bytes;
    char text[Seat::kTextBytes];
  };
  std::array<Side, 2> sides;
};

namespace {

// Before the deadline is looked at.
constexpr int kSpinsPerPause = 4096;

absl::Status SystemFailure(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", strerror(errno)));
}

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

bool BindTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

void WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t now = write(fd, text.data() + written, text.size() - written);
    if (now < 0 && errno != EINTR) return;
    written += static_cast<size_t>(std::max<ssize_t>(now, 0));
  }
}

// One of the two, as its parent sees it. Gone with this object.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0 && !wait_status_.has_value()) {
      kill(pid_, SIGKILL);
      Reap(0);
    }
    if (fd_ >= 0) close(fd_);
  }

  // `body` runs in the child and gives the exit code; it writes to the
  // descriptor what read() then finds here.
  absl::Status Start(absl::FunctionRef<int(int fd)> body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return SystemFailure("pipe2");
    fd_ = ends[0];
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      // A parent that's gone already sends no signal.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(getppid() == parent ? body(ends[1]) : 1);
    }
    close(ends[1]);
    return pid_ > 0 ? absl::OkStatus() : SystemFailure("fork");
  }

  int fd() const { return fd_; }
  bool ended() const { return ended_; }
  const std::string& text() const { return text_; }

  // Some of what it wrote.
  void Read() {
    char buffer[4096];
    const ssize_t bytes = read(fd_, buffer, sizeof(buffer));
    if (bytes > 0) text_.append(buffer, static_cast<size_t>(bytes));
    if (bytes == 0 || (bytes < 0 && errno != EINTR)) ended_ = true;
  }

  // How it ended, if it has.
  std::optional<int> Reap(int flags) {
    int status = 0;
    if (!wait_status_.has_value() && waitpid(pid_, &status, flags) == pid_)
      wait_status_ = status;
    return wait_status_;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
  bool ended_ = false;
  std::string text_;
  std::optional<int> wait_status_;
};

using Children = std::array<Child, 2>;

// What went wrong: rather a death than what the other one made of it.
absl::Status Verdict(Children& children) {
  absl::Status verdict;
  for (size_t rank = 0; rank < children.size(); ++rank) {
    const std::optional<int> status =
        children[rank].Reap(children[rank].ended() ? 0 : WNOHANG);
    if (!status.has_value()) continue;
    if (WIFSIGNALED(*status))
      return absl::InternalError(absl::StrCat(
          "process ", rank, " died of signal ", WTERMSIG(*status)));
    if (WEXITSTATUS(*status) != 0)
      verdict.Update(absl::InternalError(
          absl::StrCat("process ", rank, ": ", children[rank].text())));
  }
  return verdict;
}

// Until both have ended well, or one badly.
absl::Status Collect(Children& children, Deadline deadline) {
  while (!children[0].ended() || !children[1].ended()) {
    std::array<pollfd, 2> fds;
    for (size_t rank = 0; rank < fds.size(); ++rank) {
      fds[rank] = {.fd = children[rank].ended() ? -1 : children[rank].fd(),
                   .events = POLLIN};
    }
    const int ready = poll(fds.data(), fds.size(), deadline.remaining_ms());
    if (ready < 0 && errno != EINTR) return SystemFailure("poll");
    for (size_t rank = 0; ready > 0 && rank < fds.size(); ++rank)
      if (fds[rank].revents != 0) children[rank].Read();
    if (children[0].ended() || children[1].ended())
      RETURN_IF_ERROR(Verdict(children));
    if (deadline.expired())
      return absl::DeadlineExceededError(
          "the two processes took too long; is the machine busy?");
  }
  return absl::OkStatus();
}

}  // namespace

Seat::Seat(int rank, Board* board, Deadline deadline)
    : rank_(rank),
      board_(board),
      deadline_(deadline),
      spins_per_pause_(kSpinsPerPause) {
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.size() < 2 || !BindTo(cpus[static_cast<size_t>(rank)]))
    spins_per_pause_ = 1;
}

absl::Status Seat::Pause() const {
  if (deadline_.expired())
    return absl::DeadlineExceededError("waited too long for the other one");
  if (spins_per_pause_ == 1) sched_yield();
  return absl::OkStatus();
}

absl::Status Seat::Meet() {
  Board::Side& mine = board_->sides[static_cast<size_t>(rank_)];
  const Board::Side& other = board_->sides[static_cast<size_t>(peer())];
  const uint32_t meeting = mine.meetings.load(std::memory_order_relaxed) + 1;
  mine.meetings.store(meeting, std::memory_order_release);
  return Await([&] {
    return other.meetings.load(std::memory_order_acquire) >= meeting;
  });
}

absl::StatusOr<std::string> Seat::Swap(const std::string& mine) {
  Board::Side& side = board_->sides[static_cast<size_t>(rank_)];
  if (mine.size() > kTextBytes)
    return absl::InternalError("the text is too long to swap");
  side.bytes = static_cast<uint32_t>(mine.size());
  mine.copy(side.text, mine.size());
  RETURN_IF_ERROR(Meet());
  const Board::Side& other = board_->sides[static_cast<size_t>(peer())];
  std::string theirs(other.text, std::min<size_t>(other.bytes, kTextBytes));
  // Nobody writes again before both have read.
  RETURN_IF_ERROR(Meet());
  return theirs;
}

absl::StatusOr<std::array<std::string, 2>> RunPairForBytes(
    absl::FunctionRef<absl::StatusOr<std::string>(Seat&)> body,
    Deadline deadline) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return SystemFailure("mmap");
  auto* board = new (memory) Board();
  Children children;
  absl::Status status;
  for (int rank = 0; rank < 2 && status.ok(); ++rank) {
    status = children[static_cast<size_t>(rank)].Start([&](int fd) {
      Seat seat(rank, board, deadline);
      const absl::StatusOr<std::string> result = body(seat);
      WriteAll(fd,
               result.ok() ? *result : std::string(result.status().message()));
      return result.ok() ? 0 : 1;
    });
  }
  if (status.ok()) status = Collect(children, deadline);
  munmap(memory, sizeof(Board));
  if (!status.ok()) return status;
  return std::array{children[0].text(), children[1].text()};
}

}  // namespace trnccl::cli
