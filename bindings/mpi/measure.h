// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Measures and checks one row of the table in one place: ours, MPI in turn with
// it, the limit, and then the result.
//
// Thread rule: a session belongs to one rank, that is one thread; all ranks
// make the same calls.
//
//   Measurement measurement(session, {kind, op, elements, root});
//   ASSIGN_OR_RETURN(Result result, measurement.Take(Place::kOut));
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "bindings/mpi/collective.h"
#include "bindings/mpi/flags.h"
#include "bindings/mpi/report.h"
#include "bindings/mpi/row_memory.h"
#include "bindings/mpi/team.h"
#include "bindings/mpi/timing.h"

namespace trnccl::perf {

// What all rows of a rank share.
struct Session {
  const Options& options;
  Collective& collective;
  Team& team;         // all ranks
  trncclComm_t comm;  // the ranks of this rank's group
  int rank;           // in the group
  int ranks;          // of the group
  MPI_Comm mpi_comm;  // the same group; used with options.compare_mpi alone
  const Buffers& buffers;
};

struct RowRequest {
  Kind kind;
  trncclRedOp_t op;
  size_t elements;
  int root;
};

class Measurement {
 public:
  Measurement(const Session& session, const RowRequest& request);

  const Shape& shape() const { return shape_; }
  size_t row_bytes() const;

  absl::StatusOr<Result> Take(Place place);

 private:
  Arguments ArgumentsOf(const RowMemory& memory) const;
  MpiArguments MpiArgumentsOf(const RowMemory& memory) const;
  bool IsCompared() const;

  // As -z says; one call, or an iteration.
  absl::Status CallOnce(const Arguments& arguments);
  absl::Status CallIteration(const Arguments& arguments);
  absl::Status MakeCalls(const Arguments& arguments, int64_t calls,
                         trncclRequest_t* requests);
  absl::Status WaitForAll(int64_t calls);

  Timing TimingOfCalls() const;
  absl::Status TimeCalls(RowMemory& memory, Result& result);
  absl::Status TimeLimit(const RowMemory& memory, Result& result);
  absl::Status Check(RowMemory& memory, Result& result);

  double AverageOf(const std::vector<double>& seconds_by_rank) const;
  std::vector<double> TimesUs(const Stopwatch& stopwatch) const;
  void Summarise(const Stopwatch& ours, Result& result) const;
  void SummariseComparison(const Stopwatch& ours, const Stopwatch& theirs,
                           Result& result) const;
  absl::Status SummariseEach(const Stopwatch& ours, Result& result);

  const Session& session_;
  const RowRequest request_;
  const Shape shape_;
  std::vector<trncclRequest_t> requests_;
};

}  // namespace trnccl::perf
