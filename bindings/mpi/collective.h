// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a collective tells the shared sweep: how much each rank sends and
// receives, where, what the result is, how it's called, how MPI is called for
// the same, and what its bus bandwidth is. One small file a collective
// implements it; nothing here times or checks.
//
// Thread rule: an object belongs to one rank, that is one thread.
//
//   const Shape shape = collective.Plan({elements, rank, ranks, root});
//   collective.Call(arguments, nullptr);
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "bindings/mpi/check.h"
#include "bindings/mpi/limit.h"
#include "bindings/mpi/traits.h"
#include "ccl/trnccl.h"

namespace trnccl::perf {

// What one row asks for, as one rank sees it.
struct Problem {
  size_t elements;  // that fit the row's size
  int rank;
  int ranks;
  int root;

  size_t part() const { return elements / static_cast<size_t>(ranks); }
  bool is_root() const { return rank == root; }
};

struct Shape {
  size_t count = 0;  // the call's argument
  size_t send_elements = 0;
  size_t recv_elements = 0;
  size_t row_elements = 0;   // the larger of both, on the busiest rank
  size_t in_place_send = 0;  // where send lies in the one buffer, in elements
  size_t in_place_recv = 0;
  double bus_factor = 1;
  std::vector<Piece> result;  // what recv holds after the call
  LocalWork work;             // out of place
  LocalWork in_place_work;
};

struct Arguments {
  const void* send;
  void* recv;
  size_t count;
  trncclDataType_t type;
  trncclRedOp_t op;
  int root;
  trncclComm_t comm;
};

struct MpiArguments {
  const void* send;
  void* recv;
  void* in_place;  // the one buffer's start if the call is in place, else null
  int count;
  MPI_Datatype type;
  MPI_Op op;
  int root;
  int rank;
  MPI_Comm comm;
};

class Collective {
 public:
  virtual ~Collective() = default;

  virtual const Traits& traits() const = 0;

  // The calls that follow are of this problem.
  virtual Shape Plan(const Problem& problem) = 0;

  // Blocking if `requests` is null; else it has requests_per_call entries.
  virtual trncclResult_t Call(const Arguments& arguments,
                              trncclRequest_t* requests) = 0;

  // An MPI error ends the program.
  virtual void CallMpi(const MpiArguments& arguments) = 0;
};

// The part of a buffer that crosses the bus when it's spread over all ranks.
inline double ShareOfOthers(int ranks) {
  return static_cast<double>(ranks - 1) / ranks;
}

}  // namespace trnccl::perf
