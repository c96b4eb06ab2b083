// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Binomial tree: a rank's number counts from the root; taking its lowest set
// bit away gives its parent, and what the bit spans is its subtree.
//
//           0             The subtree of place p is p, p + 1, ...: for gather
//        /  |  \          and scatter one cyclic span of blocks, one message.
//       4   2   1         A broadcast sends to the greatest subtree first, a
//      / \  |             reduce folds child after child in one step.
//     6   5 3
//     |
//     7
//
// Rounds floor(log2 n). What the busiest rank sends, in blocks (B) of n ranks:
//   broadcast  ceil(log2 n) B   reduce   B
//   gather     up to n / 2 B    scatter  (n - 1) B
#include "algorithms/binomial.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "algorithms/step_builder.h"

namespace trnccl::binomial {
namespace {

struct Child {
  int rank = 0;
  int distance = 0;  // from this rank: the first place of the child's subtree
  int size = 0;      // ranks in its subtree
};

struct Node {
  int size = 0;
  int parent = 0;                          // meaningless at the root
  absl::InlinedVector<Child, 8> children;  // the smallest subtree first
};

Node NodeOf(const Shape& shape) {
  const int place = FromRoot(shape);
  const int room = place == 0 ? shape.ranks : place & -place;
  Node node{.size = std::min(room, shape.ranks - place),
            .parent = RankAt(shape, shape.rank - room)};
  for (int distance = 1; distance < node.size; distance *= 2) {
    node.children.push_back({.rank = RankAt(shape, shape.rank + distance),
                             .distance = distance,
                             .size = std::min(distance, node.size - distance)});
  }
  return node;
}

// The largest subtree below the root that has more than one rank: what a rank
// must hold for others.
int64_t SlotsToRelay(const Shape& shape) {
  int64_t most = 0;
  for (const Child& child :
       NodeOf({.ranks = shape.ranks, .rank = shape.root, .root = shape.root})
           .children) {
    if (child.size > 1) most = std::max<int64_t>(most, child.size);
  }
  return most;
}

Span BlocksOf(const Child& child) {
  return {.first = child.rank, .chunks = child.size};
}

}  // namespace

Program Broadcast(const Shape& shape) {
  Program program = WithLanes(1);
  const Node node = NodeOf(shape);
  StepBuilder step = Add(program.lanes[0], {.first = 0});
  step.Take(shape.rank == shape.root ? Operand::Of(Buffer::kInput)
                                     : Operand::From(node.parent))
      .Store(Buffer::kOutput);
  for (auto child = node.children.rbegin(); child != node.children.rend();
       ++child) {
    step.Send(child->rank);
  }
  return program;
}

Program Reduce(const Shape& shape) {
  Program program = WithLanes(1);
  const Node node = NodeOf(shape);
  StepBuilder step = Add(program.lanes[0], {.first = 0}).TakeInput();
  for (const Child& child : node.children) {
    step.Take(Operand::From(child.rank), Held::Of(shape, child.size));
  }
  step.Holds(Held::Of(shape, node.size));
  if (shape.rank == shape.root) {
    step.Store(Buffer::kOutput);
  } else {
    step.Send(node.parent);
  }
  return program;
}

Program Gather(const Shape& shape) {
  Program program = WithLanes(1);
  program.scratch_slots = SlotsToRelay(shape);
  Lane& lane = program.lanes[0];
  const Node node = NodeOf(shape);
  StepBuilder own = Add(lane, {.first = shape.rank}).TakeInput();
  if (shape.rank == shape.root) {
    own.Store(Buffer::kOutput);
    for (const Child& child : node.children) {
      Add(lane, BlocksOf(child))
          .Take(Operand::From(child.rank))
          .Store(Buffer::kOutput);
    }
    return program;
  }
  if (node.children.empty()) {
    own.Send(node.parent);
    return program;
  }
  own.StoreSlot(0);
  for (const Child& child : node.children) {
    Add(lane, BlocksOf(child))
        .Take(Operand::From(child.rank))
        .StoreSlot(child.distance);
  }
  Add(lane, {.first = shape.rank, .chunks = node.size})
      .Take(Operand::Slot(0))
      .Send(node.parent);
  return program;
}

Program Scatter(const Shape& shape) {
  Program program = WithLanes(1);
  program.scratch_slots = SlotsToRelay(shape);
  Lane& lane = program.lanes[0];
  const Node node = NodeOf(shape);
  const bool is_root = shape.rank == shape.root;
  const bool relays = !is_root && !node.children.empty();
  if (relays) {
    Add(lane, {.first = shape.rank, .chunks = node.size})
        .Take(Operand::From(node.parent))
        .StoreSlot(0);
  }
  for (auto child = node.children.rbegin(); child != node.children.rend();
       ++child) {
    Add(lane, BlocksOf(*child))
        .Take(is_root ? Operand::Of(Buffer::kInput)
                      : Operand::Slot(child->distance))
        .Send(child->rank);
  }
  const Operand own = is_root  ? Operand::Of(Buffer::kInput)
                      : relays ? Operand::Slot(0)
                               : Operand::From(node.parent);
  Add(lane, {.first = shape.rank}).Take(own).Store(Buffer::kOutput);
  return program;
}

}  // namespace trnccl::binomial
