// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Each rank gets its part of the fold of all ranks' buffers of S bytes.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class ReduceScatter : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "reduce_scatter", .call = "ReduceScatter", .reduces = true};
    return kTraits;
  }

  // Each rank folds its part of all inputs.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.part();
    const size_t n = static_cast<size_t>(problem.ranks);
    const size_t mine = static_cast<size_t>(problem.rank) * count;
    Shape shape = {count, n * count, count, n * count};
    shape.in_place_recv = mine;
    shape.bus_factor = ShareOfOthers(problem.ranks);
    shape.result = {{.source = kFolded, .begin = mine, .count = count}};
    shape.work = {problem.ranks, 1, count};
    if (n > 1) shape.in_place_work = shape.work;
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclReduceScatter(a.send, a.recv, a.count, a.type, a.op, a.comm,
                               requests);
  }

  // In place, MPI takes the whole input from recv and leaves the result at its
  // start.
  void CallMpi(const MpiArguments& a) override {
    MPI_Reduce_scatter_block(a.in_place ? MPI_IN_PLACE : a.send,
                             a.in_place ? a.in_place : a.recv, a.count, a.type,
                             a.op, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::ReduceScatter>(argc, argv);
}
