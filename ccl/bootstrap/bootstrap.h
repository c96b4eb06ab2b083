// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The ranks of a communicator before it has any transport: they find each other
// by a unique id, check that they fit, and exchange small blobs over a tree of
// TCP sockets, in O(log n) rounds with O(1) sockets a rank. Slow by design:
// for set up and for control, never for a collective's data.
//
// Calls are collective: every rank makes the same ones in the same order. An
// error on one rank reaches all, and is final.
//
// Thread rule: one thread at a time drives it; it has none of its own.
//
//   ASSIGN_OR_RETURN(auto bootstrap, Bootstrap::Connect(id, membership,
//   options)); ASSIGN_OR_RETURN(std::vector<std::string> all,
//                    bootstrap->AllGather(my_addresses, deadline));
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "ccl/bootstrap/rendezvous.h"
#include "ccl/bootstrap/tree.h"

namespace trnccl {

inline constexpr size_t kMaxBlobBytes = size_t{64} << 20;
inline constexpr size_t kMaxGatheredBytes = size_t{192} << 20;

class Bootstrap {
 public:
  // Waits for all ranks. An error names the ranks that are missing, came twice,
  // are out of range, or differ in version or settings; or that there's no
  // server, with the addresses tried. With listeners this rank serves the
  // others (MeetingPlace); without, the first of the process that made the id.
  static absl::StatusOr<std::unique_ptr<Bootstrap>> Connect(
      const UniqueId& id, Membership me, const BootstrapOptions& options,
      std::vector<Socket> listeners = {});

  // Everyone's blob, by rank. One is at most kMaxBlobBytes, all together at
  // most kMaxGatheredBytes.
  absl::StatusOr<std::vector<std::string>> AllGather(std::string_view mine,
                                                     Deadline deadline);
  absl::Status Barrier(Deadline deadline);
  // The blob of rank `root`; what the others pass isn't looked at.
  absl::StatusOr<std::string> Broadcast(int root, std::string_view mine,
                                        Deadline deadline);

  Membership membership() const { return me_; }

  // The parent's link is not open on the root; none are after an error.
  const TreeLink& parent() const { return tree_.parent; }
  const std::vector<TreeLink>& children() const { return tree_.children; }

  // Instead of any further exchange, for a watch on the neighbours' lives
  // (ccl/health/vigil.h).
  Tree TakeTree() { return std::move(tree_); }

 private:
  enum class Call : uint8_t { kAllGather = 1, kBarrier = 2, kBroadcast = 3 };

  // What of an exchange this rank has so far.
  struct Blobs {
    std::vector<std::string> of_rank;
    std::vector<bool> has;
    size_t bytes = 0;
  };

  Bootstrap(Membership me, Tree tree, const std::atomic<bool>* abort)
      : me_(me), tree_(std::move(tree)), abort_(abort) {}

  static const char* Name(Call call);

  absl::StatusOr<std::vector<std::string>> Exchange(Call call,
                                                    std::string_view mine,
                                                    Deadline deadline);
  absl::Status GatherUp(Call call, Deadline deadline, Blobs* blobs);
  absl::Status BroadcastDown(Call call, Deadline deadline, Blobs* blobs);
  std::string Serialize(Call call, const Blobs& blobs) const;
  absl::Status Merge(Call call, const TreeFrame& frame, Blobs* blobs) const;
  absl::Status Checked(const Tree::Incoming& incoming,
                       TreeFrame::Kind wanted) const;
  absl::Status Blame(const absl::Status& status,
                     const std::vector<const TreeLink*>& late) const;

  const Membership me_;
  Tree tree_;
  const std::atomic<bool>* abort_;
  uint32_t sequence_ = 1;  // 0 was the rendezvous
  absl::Status status_;    // the first error, for good
};

}  // namespace trnccl
