// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Collectives that know the nodes: as little as possible crosses between them,
// and every rank carries its share of that. Composed of flat algorithms
// (algorithms/compose.h). The picture and the figures stand in the .cc.
//
// Thread rule: pure functions.
//
//   if (hierarchical::HasNodes(shape)) return hierarchical::AllReduce(shape);
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::hierarchical {

// Whether the grid is known and has several nodes.
bool HasNodes(const Shape& shape);

Program AllReduce(const Shape& shape);
Program ReduceScatter(const Shape& shape);
Program AllGather(const Shape& shape);
Program Broadcast(const Shape& shape);
Program Reduce(const Shape& shape);

}  // namespace trnccl::hierarchical
