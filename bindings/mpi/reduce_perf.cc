// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The root gets the fold of all ranks' buffers of S bytes.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class Reduce : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "reduce", .call = "Reduce", .reduces = true, .rooted = true};
    return kTraits;
  }

  // The ranks share the folding: each folds its part of all inputs.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.elements;
    Shape shape = {count, count, count, count};
    shape.result = {
        {.source = problem.is_root() ? kFolded : kUntouched, .count = count}};
    shape.work = {problem.ranks, 1, problem.part()};
    if (problem.ranks > 1) shape.in_place_work = shape.work;
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclReduce(a.send, a.recv, a.count, a.type, a.op, a.root, a.comm,
                        requests);
  }

  void CallMpi(const MpiArguments& a) override {
    const bool in_place = a.in_place && a.rank == a.root;
    MPI_Reduce(in_place ? MPI_IN_PLACE : a.send, a.recv, a.count, a.type, a.op,
               a.root, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::Reduce>(argc, argv);
}
