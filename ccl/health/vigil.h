// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A watch over the processes of a job, on all nodes, by the sockets on which
// they met: a process that ends closes its sockets, and a node that's cut off
// doesn't answer the kernel's probes. Who sees it tells its neighbours in the
// tree, and they theirs. It costs nothing while nothing happens: the progress
// thread sleeps on the sockets.
//
// A rank that leaves in order says so, and isn't lost. What is lost counts only
// after a moment: the last words of a rank that ended with its work done may
// still be on their way to who waits for them.
//
// A forked child keeps none of the sockets: it would hide its parent's death.
//
// Not here: what a loss means to a communicator (ccl/communicator); what ranks
// tell each other of failures (health.h).
//
// Thread rule: thread-safe.
//
//   ASSIGN_OR_RETURN(auto vigil, Vigil::Start({.tree = std::move(tree), ...}));
//   if (vigil->losses() != seen) for (auto& loss : vigil->LossesFrom(seen)) ...
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/mutex.h"
#include "ccl/bootstrap/tree.h"
#include "ccl/progress/progress_thread.h"

namespace trnccl {

class Vigil : public Drivable {
 public:
  struct Options {
    Tree tree;  // after its last exchange
    int rank = 0;
    int ranks = 1;
    // A neighbour that gives no sign of life for so long is lost.
    int64_t silence_ms = 0;
  };
  static absl::StatusOr<std::shared_ptr<Vigil>> Start(Options options);
  // Leaves in order.
  ~Vigil() override;

  struct Loss {
    int rank = 0;
    std::string reason;  // "died: ..."
  };

  // Tells everyone of a rank that was found dead by other means.
  void Report(const Loss& loss);

  // Does the progress thread's part, for who can't wait for it.
  void LookNow();

  // That a rank has ended one communicator in order and makes no collective on
  // it from `sequence` on.
  struct Departure {
    uint32_t cookie = 0;  // the communicator's
    int rank = 0;
    uint32_t sequence = 0;
    std::string last_calls = {};  // Health::TextOf()
  };
  // Tells everyone.
  void Depart(const Departure& departure);
  // Departures from a communicator are kept while it's attended. A peer may be
  // done with it before this rank has made it: the last of others are kept,
  // too.
  void Attend(uint32_t cookie);
  void Unattend(uint32_t cookie);
  // How many were kept, of all communicators.
  size_t departures() const {
    return departed_.load(std::memory_order_acquire);
  }
  std::vector<Departure> DeparturesFrom(uint32_t cookie) const;

  // How many there have been; those from the `first` on, in the order in which
  // this rank learned of them.
  size_t losses() const { return published_.load(std::memory_order_acquire); }
  std::vector<Loss> LossesFrom(size_t first) const;

  // Drivable: the progress thread's side.
  Drive DriveOnce() override;
  Drive PrepareSleep(std::vector<int>* wake_fds) override;

 private:
  struct Neighbour {
    TreeLink link;
    std::string bytes;  // received of a frame
  };
  struct Pending {
    Loss loss;
    int64_t due_ns = 0;
  };

  explicit Vigil(Options options);

  // In a forked child, where no other thread is.
  void CloseInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  friend class VigilsOfProcess;

  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Read(Neighbour& neighbour) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes one frame out of what was received; false if it isn't complete.
  bool TakeFrame(Neighbour& neighbour) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeLoss(std::string_view word, const Neighbour& from)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeDeparture(std::string_view word, const Neighbour& from)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells all neighbours but one, which may be null.
  void PassOn(const TreeFrame& frame, const Neighbour* from)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lose(Neighbour& neighbour, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes a loss and passes it on, unless it's known.
  void Note(const Loss& loss, const Neighbour* from)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int rank_;
  const int ranks_;
  const int64_t silence_ms_;
  ProgressThread* progress_thread_ = nullptr;
  std::atomic<size_t> published_ = 0;
  std::atomic<size_t> departed_ = 0;
  std::atomic<bool> look_ = true;
  mutable Mutex mutex_;
  std::vector<Neighbour> neighbours_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> known_ ABSL_GUARDED_BY(mutex_);  // lost, by rank
  std::vector<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<Loss> losses_ ABSL_GUARDED_BY(mutex_);
  std::deque<Departure> early_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::vector<Departure>> departures_
      ABSL_GUARDED_BY(mutex_);  // by cookie
};

}  // namespace trnccl
