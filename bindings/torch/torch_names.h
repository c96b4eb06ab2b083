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
