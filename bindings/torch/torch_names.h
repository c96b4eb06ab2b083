// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The one place that includes PyTorch's headers, and the names that differ
// between its releases. Written for 2.13.
//
// Thread rule: declarations only.
//
//   #include "bindings/torch/torch_names.h"
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

// What 2.13 calls the virtual functions of c10d::Backend that the next release
// names as the macros are.
#define C10D_ALL_GATHER_SINGLE _allgather_base
#define C10D_ALL_GATHER_SINGLE_COALESCED allgather_into_tensor_coalesced
#define C10D_REDUCE_SCATTER_SINGLE _reduce_scatter_base
#define C10D_REDUCE_SCATTER_SINGLE_COALESCED reduce_scatter_tensor_coalesced
#define C10D_ALL_TO_ALL_SINGLE alltoall_base
