// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Hierarchical algorithms: collectives over a grid of nodes, composed of a
// collective within each node and one across nodes. How ranks speak across is
// another family's, named by its builder; a row of the catalog names both.
// Picture and figures are in hierarchical.cc and hierarchical_all_to_all.cc.
//
// Thread rule: pure functions. The shape has a grid.
//
//   Shape shape = {.ranks = 4, .rank = 2, .grid = &grid};
//   Program program = hierarchical::AllReduce<ring::AllReduce>(shape);
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::hierarchical {

using Builder = Program (*)(const Shape& shape);

// Several nodes are known.
bool HasNodes(const Shape& shape);
// And one of them has several ranks: else it's the flat algorithm.
bool HasLevels(const Shape& shape);

Program AllReduceBy(Builder across, const Shape& shape);
Program ReduceScatterBy(Builder across, const Shape& shape);
Program AllGatherBy(Builder across, const Shape& shape);
Program BroadcastBy(Builder across, const Shape& shape);
Program ReduceBy(Builder across, const Shape& shape);

template <Builder kAcross>
Program AllReduce(const Shape& shape) {
  return AllReduceBy(kAcross, shape);
}
template <Builder kAcross>
Program ReduceScatter(const Shape& shape) {
  return ReduceScatterBy(kAcross, shape);
}
template <Builder kAcross>
Program AllGather(const Shape& shape) {
  return AllGatherBy(kAcross, shape);
}
template <Builder kAcross>
Program Broadcast(const Shape& shape) {
  return BroadcastBy(kAcross, shape);
}
template <Builder kAcross>
Program Reduce(const Shape& shape) {
  return ReduceBy(kAcross, shape);
}

// The large-message forms: a part for each node, gathered in the end.
Program BroadcastScatterGather(const Shape& shape);
Program ReduceScatterGather(const Shape& shape);

Program AllToAll(const Shape& shape);

}  // namespace trnccl::hierarchical
