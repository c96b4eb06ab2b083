// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The root gets all ranks' parts, S bytes in all.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class Gather : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "gather", .call = "Gather", .rooted = true};
    return kTraits;
  }

  // Each rank copies its part to the root; in place the root has its own.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.part();
    const size_t all = static_cast<size_t>(problem.ranks) * count;
    Shape shape = {count, count, all, all};
    shape.in_place_send = static_cast<size_t>(problem.rank) * count;
    shape.bus_factor = ShareOfOthers(problem.ranks);
    if (problem.is_root()) {
      for (int rank = 0; rank < problem.ranks; ++rank)
        shape.result.push_back({.source = rank,
                                .at = static_cast<size_t>(rank) * count,
                                .count = count});
    } else {
      shape.result = {{.source = kUntouched, .count = all}};
    }
    shape.work = {.outputs = 1, .elements = count};
    if (problem.ranks > 1) shape.in_place_work = shape.work;
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclGather(a.send, a.recv, a.count, a.type, a.root, a.comm,
                        requests);
  }

  void CallMpi(const MpiArguments& a) override {
    const bool in_place = a.in_place && a.rank == a.root;
    MPI_Gather(in_place ? MPI_IN_PLACE : a.send, a.count, a.type, a.recv,
               a.count, a.type, a.root, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::Gather>(argc, argv);
}
