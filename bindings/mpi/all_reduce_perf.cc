// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every rank gets the fold of all ranks' buffers of S bytes.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class AllReduce : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "all_reduce", .call = "AllReduce", .reduces = true};
    return kTraits;
  }

  // Each rank folds its part of all inputs into all outputs.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.elements;
    const int n = problem.ranks;
    Shape shape = {count, count, count, count};
    shape.bus_factor = 2 * ShareOfOthers(n);
    shape.result = {{.source = kFolded, .count = count}};
    shape.work = {.inputs = n, .outputs = n, .elements = problem.part()};
    if (n > 1) shape.in_place_work = shape.work;
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclAllReduce(a.send, a.recv, a.count, a.type, a.op, a.comm,
                           requests);
  }

  void CallMpi(const MpiArguments& a) override {
    MPI_Allreduce(a.in_place ? MPI_IN_PLACE : a.send, a.recv, a.count, a.type,
                  a.op, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::AllReduce>(argc, argv);
}
