// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every rank gets all ranks' parts, S bytes in all.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class AllGather : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {.name = "all_gather",
                                       .call = "AllGather"};
    return kTraits;
  }

  // Each rank copies every part to itself; in place it has its own.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.part();
    const size_t n = static_cast<size_t>(problem.ranks);
    Shape shape = {count, count, n * count, n * count};
    shape.in_place_send = static_cast<size_t>(problem.rank) * count;
    shape.bus_factor = ShareOfOthers(problem.ranks);
    for (int rank = 0; rank < problem.ranks; ++rank)
      shape.result.push_back({.source = rank,
                              .at = static_cast<size_t>(rank) * count,
                              .count = count});
    shape.work = {.outputs = problem.ranks, .elements = count};
    shape.in_place_work = {.outputs = problem.ranks - 1, .elements = count};
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclAllGather(a.send, a.recv, a.count, a.type, a.comm, requests);
  }

  void CallMpi(const MpiArguments& a) override {
    MPI_Allgather(a.in_place ? MPI_IN_PLACE : a.send, a.count, a.type, a.recv,
                  a.count, a.type, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::AllGather>(argc, argv);
}
