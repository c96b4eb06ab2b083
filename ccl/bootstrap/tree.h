// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A rank's neighbours in the bootstrap's tree, and the frames between them:
// data up, data down, and errors either way. What an error says is composed
// once, by the rank that saw the cause, and passed on unchanged.
//
// Thread rule: one thread.
//
//   Tree tree = ...;   // made by Join, rendezvous.h
//   ASSIGN_OR_RETURN(Tree::Incoming incoming, tree.Next(patience));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "ccl/bootstrap/socket.h"

namespace trnccl {

inline constexpr size_t kMaxFrameBytes = size_t{256} << 20;

struct TreeLink {
  int rank = -1;
  std::string host;  // "a, pid 77"
  Socket socket;
};

// "rank 3 (host a, pid 77)".
std::string RankText(int rank, std::string_view host);

struct TreeFrame {
  enum class Kind : uint8_t {
    kUp = 1,
    kDown = 2,
    kError = 3,
    // Between exchanges, of ccl/health/vigil.h.
    kLost = 4,      // a process was lost
    kLeft = 5,      // the sender leaves in order
    kDeparted = 6,  // a rank has ended one of its communicators
  };

  Kind kind = Kind::kUp;
  uint32_t sequence = 0;  // of the exchange that it's part of
  std::string body;
};

// kError frames carry a status.
TreeFrame ErrorFrame(const absl::Status& status);
absl::Status StatusOf(const TreeFrame& error);

// The frame that the bytes hold, of any kind; nothing if they're too few.
std::optional<TreeFrame> ParseFrame(std::string_view bytes);

// Either fails with Unavailable, which names the rank, once the link is broken.
absl::Status SendFrameTo(const TreeLink& link, const TreeFrame& frame,
                         const Patience& patience);
absl::StatusOr<TreeFrame> ReceiveFrameFrom(const TreeLink& link,
                                           const Patience& patience);

struct Tree {
  int index = 0;    // in the order of arrival; 0 is the root
  TreeLink parent;  // of the root: not open
  std::vector<TreeLink> children;

  // The parent's kind of Incoming.
  static constexpr int kParent = -1;

  struct Incoming {
    int child = kParent;
    TreeFrame frame;
  };

  const TreeLink& link(int child) const {
    return child == kParent ? parent : children[static_cast<size_t>(child)];
  }

  // The next frame of any neighbour, so that an error is heard whoever sends
  // it. The code tells a lost link (Unavailable) from lost patience.
  absl::StatusOr<Incoming> Next(const Patience& patience) const;

  // Tells all neighbours, as far as their sockets take it at once, and closes
  // the links: nothing is left to wait for.
  void Fail(const absl::Status& status);
};

// How many levels a complete binary tree of `ranks` has below `index`.
int LevelsBelow(int index, int ranks);

}  // namespace trnccl
