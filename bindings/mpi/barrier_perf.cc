// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Returns when all ranks have called it: no bytes, whatever the size.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class Barrier : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {.name = "barrier",
                                       .call = "Barrier",
                                       .moves_data = false,
                                       .has_in_place = false};
    return kTraits;
  }

  Shape Plan(const Problem& problem) override {
    static_cast<void>(problem);
    return {};
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclBarrier(a.comm, requests);
  }

  void CallMpi(const MpiArguments& a) override { MPI_Barrier(a.comm); }
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::Barrier>(argc, argv);
}
