// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What each collective means: which blocks of data each rank brings, and which
// it must have at the end. A row each; no algorithm knows more about a
// collective than this, and the verifier proves against it.
//
// A block's number means the same data on every rank. All-reduce, broadcast
// and reduce have one block; gathering and scattering collectives one a rank;
// all-to-all one a (source, destination) pair: source * ranks + destination.
//
// Thread rule: pure functions.
//
//   const Spec& spec = SpecOf(Collective::kAllGather);
//   spec.input({.ranks = 4, .rank = 2});   // block 2
//   spec.output({.ranks = 4, .rank = 2});  // blocks 0..3
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/base/types.h"

namespace trnccl {

// The nodes of a communicator: nodes[i] lists the ranks of node i, ascending.
// Every rank is in exactly one node; empty means that nothing is known.
struct Grid {
  std::vector<std::vector<int>> nodes;
};

// Which rank of what a program is for.
struct Shape {
  int ranks = 1;
  int rank = 0;
  int root = 0;                // rooted collectives only
  const Grid* grid = nullptr;  // hierarchical algorithms only
};

// The blocks first, first + stride, ... of a buffer; the i-th lies at position
// i of the buffer. A rank's buffer that takes no part has count 0.
struct BlockRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 1;

  // The position of `block` in the buffer, or -1.
  int64_t PositionOf(int64_t block) const;
};

struct Spec {
  Collective collective;
  bool reduces;  // outputs are folds of all ranks' inputs of that block
  bool rooted;
  bool uneven;  // blocks have counts of their own (the v-variants)
  int64_t (*blocks)(int64_t ranks);
  BlockRange (*input)(const Shape& shape);
  BlockRange (*output)(const Shape& shape);
};

const Spec& SpecOf(Collective collective);

}  // namespace trnccl
