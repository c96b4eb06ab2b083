// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every rank gets the root's S bytes.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class Broadcast : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "broadcast", .call = "Broadcast", .rooted = true};
    return kTraits;
  }

  // Each rank copies S bytes that all of them read. As many bytes of its own
  // memory as it would read alone stand for them: a part, n times.
  Shape Plan(const Problem& problem) override {
    const size_t count = problem.elements;
    Shape shape = {count, count, count, count};
    shape.result = {{.source = problem.root, .count = count}};
    shape.work = {.outputs = problem.ranks, .elements = problem.part()};
    shape.in_place_work = {.outputs = problem.ranks - 1,
                           .elements = problem.part()};
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclBroadcast(a.send, a.recv, a.count, a.type, a.root, a.comm,
                           requests);
  }

  // MPI has one buffer: the root sends its input.
  void CallMpi(const MpiArguments& a) override {
    void* buffer = a.rank == a.root ? const_cast<void*>(a.send) : a.recv;
    MPI_Bcast(buffer, a.count, a.type, a.root, a.comm);
  }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::Broadcast>(argc, argv);
}
