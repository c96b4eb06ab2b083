// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Binary trees: few rounds and at most two children a rank. Two of them, each
// for half of the data, keep every rank busy. Picture and figures are in
// tree.cc.
//
// Thread rule: pure functions.
//
//   Program program = tree::DoubleTreeAllReduce({.ranks = 4, .rank = 2});
#pragma once

#include "algorithms/schedule.h"
#include "algorithms/spec.h"

namespace trnccl::tree {

Program DoubleTreeAllReduce(const Shape& shape);
Program Broadcast(const Shape& shape);
Program Reduce(const Shape& shape);

}  // namespace trnccl::tree
