// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/mpi_side.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace trnccl::perf {
namespace {

bool IsRunning() {
  int started = 0;
  int finished = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finished);
  return started != 0 && finished == 0;
}

struct Processes {
  int rank = 0;
  int count = 0;

  Processes() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
  }
};

class MpiTeam : public Team {
 public:
  explicit MpiTeam(const Processes& processes)
      : Team(processes.rank, processes.count) {}

  absl::Status Barrier() override {
    MPI_Barrier(MPI_COMM_WORLD);
    return absl::OkStatus();
  }

  absl::Status GatherBytes(const void* mine, size_t bytes, void* all) override {
    const int count = static_cast<int>(bytes);
    MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD);
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status StartMpi(const Launch& launch) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  const Processes seen;
  if (seen.count == launch.processes && seen.rank == launch.process)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "MPI says process ", seen.rank, " of ", seen.count, ", the launcher's ",
      "environment ", launch.process, " of ", launch.processes,
      ": use the mpirun of the MPI that this program was built with"));
}

void FinishMpi() {
  if (IsRunning()) MPI_Finalize();
}

void AbortAll(int exit_code) {
  if (IsRunning()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  // Other threads of this process are in the middle of something.
  std::_Exit(exit_code);
}

void BroadcastFromFirst(void* data, size_t bytes) {
  MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}

MPI_Comm SplitMpi(int group, int rank) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, group, rank, &comm);
  return comm;
}

std::unique_ptr<Team> MakeMpiTeam() {
  return std::make_unique<MpiTeam>(Processes());
}

bool IsComparable(const Kind& kind) {
  return MpiType(kind.type) != MPI_DATATYPE_NULL &&
         (kind.op == Operator::kNone || MpiOperator(kind) != MPI_OP_NULL);
}

MPI_Datatype MpiType(trncclDataType_t type) {
  switch (type) {
    case trncclInt8:
      return MPI_INT8_T;
    case trncclUint8:
      return MPI_UINT8_T;
    case trncclInt16:
      return MPI_INT16_T;
    case trncclUint16:
      return MPI_UINT16_T;
    case trncclInt32:
      return MPI_INT32_T;
    case trncclUint32:
      return MPI_UINT32_T;
    case trncclInt64:
      return MPI_INT64_T;
    case trncclUint64:
      return MPI_UINT64_T;
    case trncclFloat32:
      return MPI_FLOAT;
    case trncclFloat64:
      return MPI_DOUBLE;
    case trncclBool:
      return MPI_C_BOOL;
    case trncclComplex64:
      return MPI_C_FLOAT_COMPLEX;
    case trncclComplex128:
      return MPI_C_DOUBLE_COMPLEX;
    case trncclFloat16:
    case trncclBfloat16:
    case trncclFloat8e4m3:
    case trncclFloat8e5m2:
      return MPI_DATATYPE_NULL;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op MpiOperator(const Kind& kind) {
  const bool boolean = kind.type == trncclBool;
  switch (kind.op) {
    case Operator::kSum:
      return boolean ? MPI_LOR : MPI_SUM;
    case Operator::kProd:
      return boolean ? MPI_LAND : MPI_PROD;
    case Operator::kMin:
      return boolean ? MPI_LAND : MPI_MIN;
    case Operator::kMax:
      return boolean ? MPI_LOR : MPI_MAX;
    case Operator::kBand:
      return boolean ? MPI_LAND : MPI_BAND;
    case Operator::kBor:
      return boolean ? MPI_LOR : MPI_BOR;
    case Operator::kBxor:
      return boolean ? MPI_LXOR : MPI_BXOR;
    case Operator::kNone:
    case Operator::kAvg:
    case Operator::kMulSum:
      break;
  }
  return MPI_OP_NULL;
}

}  // namespace trnccl::perf
