// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The main program of every benchmark: flags, launcher, communicator, sweep,
// exit code. README.md is its contract.
//
//   int main(int argc, char** argv) {
//     return trnccl::perf::RunBenchmark<AllReduce>(argc, argv);
//   }
#pragma once

#include <memory>

#include "bindings/mpi/collective.h"

namespace trnccl::perf {

// Each rank of the process, that is each thread, gets a collective of its own.
using MakeCollective = std::unique_ptr<Collective> (*)();

// The process's exit code.
int RunBenchmark(MakeCollective make, int argc, char** argv);

template <typename Kind>
int RunBenchmark(int argc, char** argv) {
  return RunBenchmark(
      +[]() -> std::unique_ptr<Collective> { return std::make_unique<Kind>(); },
      argc, argv);
}

}  // namespace trnccl::perf
