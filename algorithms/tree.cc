// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Binary trees over places 1..n, read in order from left to right. A place's
// lowest set bit is its height: odd places are leaves.
//
//                 8           Up: fold left child, own input, right child, so
//          +------+-----+     the operands are in the order of places.
//          4            10    Down: the result, or what a broadcast sends.
//      +---+---+      +-+-+
//      2       6      9   11  n = 11: what would lie beyond n is left out.
//    +-+-+   +-+-+
//    1   3   5   7
//
// double_tree: lane 0 seats rank 0 at place 1; lane 1 seats the last rank
// there, so that the others move by one: no rank has children in both.
//
// Rounds, and what the busiest rank sends, in blocks (B) of n ranks:
//   double_tree all_reduce  2 floor(log2 n), 2 B
//   binary broadcast        floor(log2 n), 2 B
//   binary reduce           floor(log2 n), B
#include "algorithms/tree.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "algorithms/step_builder.h"

namespace trnccl::tree {
namespace {

struct Child {
  int rank = 0;
  Held held;  // when it has folded its own children's
};

struct Node {
  std::optional<int> parent;
  std::optional<Child> left;
  std::optional<Child> right;
  Held held;
};

int RootPlace(const Shape& shape) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(shape.ranks)));
}

// The rank's node when `first_rank` sits at place 1.
Node NodeOf(const Shape& shape, int first_rank) {
  const auto rank_at = [&](int place) {
    return RankAt(shape, first_rank + place - 1);
  };
  const auto child_at = [&](int place) {
    const int height = place & -place;
    const int last = std::min(place + height - 1, shape.ranks);
    return Child{.rank = rank_at(place),
                 .held = {.contributions = last - (place - height),
                          .ranks = shape.ranks}};
  };
  const int place = RankAt(shape, shape.rank - first_rank) + 1;
  const int height = place & -place;
  Node node{.held = child_at(place).held};
  if (place != RootPlace(shape)) {
    const int stump = place - height;  // an ancestor, if the parent is left out
    const int parent = stump | (2 * height);
    node.parent = rank_at(parent <= shape.ranks ? parent : stump);
  }
  if (height > 1) node.left = child_at(place - height / 2);
  for (int reach = height / 2; reach > 0 && !node.right; reach /= 2) {
    if (place + reach <= shape.ranks) node.right = child_at(place + reach);
  }
  return node;
}

Node RootedNodeOf(const Shape& shape) {
  return NodeOf(shape, shape.root - (RootPlace(shape) - 1));
}

void SendToChildren(StepBuilder step, const Node& node) {
  if (node.left) step.Send(node.left->rank);
  if (node.right) step.Send(node.right->rank);
}

// Folds the subtree and sends it to the parent; the root stores it.
StepBuilder AddUp(Lane& lane, int64_t chunk, const Node& node) {
  StepBuilder step = Add(lane, {.first = chunk});
  if (node.left) step.Take(Operand::From(node.left->rank), node.left->held);
  step.TakeInput();
  if (node.right) step.Take(Operand::From(node.right->rank), node.right->held);
  step.Holds(node.held);
  if (node.parent) return step.Send(*node.parent);
  return step.Store(Buffer::kOutput);
}

}  // namespace

Program DoubleTreeAllReduce(const Shape& shape) {
  Program program = WithLanes(2);
  program.chunks_per_block = 2;
  for (int chunk = 0; chunk < 2; ++chunk) {
    Lane& lane = program.lanes[chunk];
    const Node node = NodeOf(shape, -chunk);
    StepBuilder step = AddUp(lane, chunk, node);
    if (node.parent) {
      step = Add(lane, {.first = chunk})
                 .Take(Operand::From(*node.parent))
                 .Store(Buffer::kOutput);
    }
    SendToChildren(step, node);
  }
  return program;
}

Program Broadcast(const Shape& shape) {
  Program program = WithLanes(1);
  const Node node = RootedNodeOf(shape);
  SendToChildren(Add(program.lanes[0], {.first = 0})
                     .Take(node.parent ? Operand::From(*node.parent)
                                       : Operand::Of(Buffer::kInput))
                     .Store(Buffer::kOutput),
                 node);
  return program;
}

Program Reduce(const Shape& shape) {
  Program program = WithLanes(1);
  AddUp(program.lanes[0], 0, RootedNodeOf(shape));
  return program;
}

}  // namespace trnccl::tree
