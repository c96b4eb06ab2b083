// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Each rank gets its part of the root's S bytes.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class Scatter : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "scatter", .call = "Scatter", .rooted = true};
    return kTraits;
  }

  // Each rank copies its part; in place the root has its own.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.part();
    const size_t mine = static_cast<size_t>(problem.rank) * count;
    const size_t all = static_cast<size_t>(problem.ranks) * count;
    Shape shape = {count, all, count, all};
    shape.in_place_recv = mine;
    shape.bus_factor = ShareOfOthers(problem.ranks);
    shape.result = {{.source = problem.root, .begin = mine, .count = count}};
    shape.work = {.outputs = 1, .elements = count};
    if (problem.ranks > 1) shape.in_place_work = shape.work;
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclScatter(a.send, a.recv, a.count, a.type, a.root, a.comm,
                         requests);
  }

  void CallMpi(const MpiArguments& a) override {
    const bool in_place = a.in_place && a.rank == a.root;
    MPI_Scatter(a.send, a.count, a.type, in_place ? MPI_IN_PLACE : a.recv,
                a.count, a.type, a.root, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::Scatter>(argc, argv);
}
