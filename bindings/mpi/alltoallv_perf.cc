// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// As alltoall, with parts of different lengths: the k-th rank after a rank gets
// (2k + 1) / n times an equal part of it.
#include "bindings/mpi/benchmark.h"

namespace trnccl::perf {
namespace {

class AllToAllV : public Collective {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits = {
        .name = "alltoallv", .call = "AllToAllV", .has_in_place = false};
    return kTraits;
  }

  // Each rank copies the parts that are for it.
  Shape Plan(const Problem& problem) override {
    const size_t n = static_cast<size_t>(problem.ranks);
    const size_t rank = static_cast<size_t>(problem.rank);
    send_ = Parts(n);
    recv_ = Parts(n);
    std::vector<size_t> begins(n);  // of this rank's part, in each rank's send
    for (size_t peer = 0; peer < n; ++peer) {
      send_.counts[peer] = Length(problem, (peer + n - rank) % n);
      recv_.counts[peer] = Length(problem, (rank + n - peer) % n);
      for (size_t before = 0; before < rank; ++before)
        begins[peer] += Length(problem, (before + n - peer) % n);
    }
    const size_t all = send_.Place();
    recv_.Place();
    Shape shape = {problem.part(), all, all, all};
    shape.bus_factor = ShareOfOthers(problem.ranks);
    for (size_t peer = 0; peer < n; ++peer)
      shape.result.push_back({static_cast<int>(peer), begins[peer],
                              recv_.displacements[peer], recv_.counts[peer]});
    shape.work = {.outputs = 1, .elements = all};
    return shape;
  }

  trncclResult_t Call(const Arguments& a, trncclRequest_t* requests) override {
    return trncclAllToAllV(a.send, send_.counts.data(),
                           send_.displacements.data(), a.recv,
                           recv_.counts.data(), recv_.displacements.data(),
                           a.type, a.comm, requests);
  }

  void CallMpi(const MpiArguments& a) override {
    MPI_Alltoallv(a.send, send_.mpi_counts.data(),
                  send_.mpi_displacements.data(), a.type, a.recv,
                  recv_.mpi_counts.data(), recv_.mpi_displacements.data(),
                  a.type, a.comm);
  }

 private:
  // The lengths and places of the parts of one buffer, by peer.
  struct Parts {
    std::vector<size_t> counts, displacements;
    std::vector<int> mpi_counts, mpi_displacements;

    explicit Parts(size_t n = 0) : counts(n), displacements(n) {}

    // Lays the parts one after the other; returns the elements of all.
    size_t Place() {
      size_t end = 0;
      for (size_t peer = 0; peer < counts.size(); ++peer) {
        displacements[peer] = end;
        end += counts[peer];
      }
      // Sizes that MPI's int can't hold aren't compared.
      mpi_counts.assign(counts.begin(), counts.end());
      mpi_displacements.assign(displacements.begin(), displacements.end());
      return end;
    }
  };

  static size_t Length(const Problem& problem, size_t distance) {
    const size_t n = static_cast<size_t>(problem.ranks);
    const size_t odd = 2 * distance + 1;
    return problem.part() / n * odd + problem.part() % n * odd / n;
  }

  Parts send_;
  Parts recv_;
};

}  // namespace
}  // namespace trnccl::perf

int main(int argc, char** argv) {
  return trnccl::perf::RunBenchmark<trnccl::perf::AllToAllV>(argc, argv);
}
