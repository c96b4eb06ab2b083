// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/sweep.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/mpi/data.h"
#include "bindings/mpi/library.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

// The library's operator of a kind, for as long as this lives.
class RowOperator {
 public:
  RowOperator(const Session& session, const Kind& kind)
      : comm_(session.comm), created_(kind.op == Operator::kMulSum) {
    if (kind.op != Operator::kNone && !created_) op_ = BuiltIn(kind.op);
  }
  RowOperator(const RowOperator&) = delete;
  RowOperator& operator=(const RowOperator&) = delete;
  ~RowOperator() {
    if (created_) static_cast<void>(trncclRedOpDestroy(op_, comm_));
  }

  absl::Status Create(trncclDataType_t type, int rank) {
    if (!created_) return absl::OkStatus();
    std::byte factor[16];
    MakeNumber(type, MulSumFactor(rank), factor);
    return FromLibrary(trncclRedOpCreatePreMulSum(&op_, factor, type, comm_),
                       {"RedOpCreatePreMulSum", comm_});
  }

  trncclRedOp_t op() const { return op_; }

 private:
  trncclComm_t comm_;
  bool created_;
  trncclRedOp_t op_ = trncclSum;
};

std::vector<size_t> SizesOf(const Session& session) {
  const Options& options = session.options;
  std::vector<size_t> sizes;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    sizes.push_back(bytes);
    // The largest size may be the only one, and then nothing grows.
    if (bytes > options.max_bytes / options.step_factor) break;
    bytes = options.step_factor > 1
                ? bytes * options.step_factor
                : bytes + std::max<size_t>(options.step_bytes, 1);
  }
  if (!session.collective.traits().moves_data) sizes.resize(1);
  return sizes;
}

absl::StatusOr<std::vector<int>> RootsOf(const Session& session) {
  if (!session.collective.traits().rooted) return std::vector<int>{0};
  // Groups may differ in size; all make the same rows.
  ASSIGN_OR_RETURN(const std::vector<int> sizes,
                   session.team.Gather(session.ranks));
  const int ranks = std::ranges::min(sizes);
  const int root = session.options.root;
  if (root >= ranks)
    return absl::InvalidArgumentError(
        absl::StrCat("-r ", root, ": there are ", ranks, " ranks"));
  if (root != kAllRoots) return std::vector<int>{root};
  std::vector<int> roots;
  for (int each = 0; each < ranks; ++each) roots.push_back(each);
  return roots;
}

absl::StatusOr<Row> MakeRow(const Session& session, const RowRequest& request) {
  const Traits& traits = session.collective.traits();
  Measurement measurement(session, request);
  Row row;
  row.bytes = measurement.row_bytes();
  row.count = measurement.shape().count;
  row.kind = request.kind;
  if (traits.rooted) row.root = request.root;
  ASSIGN_OR_RETURN(row.places[0], measurement.Take(Place::kOut));
  if (traits.has_in_place) {
    ASSIGN_OR_RETURN(row.places[1], measurement.Take(Place::kIn));
  }
  return row;
}

absl::Status RunKind(const Session& session, const Kind& kind,
                     const std::function<void(const Row&)>& add) {
  RowOperator op(session, kind);
  RETURN_IF_ERROR(op.Create(kind.type, session.rank));
  ASSIGN_OR_RETURN(const std::vector<int> roots, RootsOf(session));
  for (int root : roots) {
    for (size_t bytes : SizesOf(session)) {
      const size_t elements = bytes / RowOf(kind.type).bytes;
      ASSIGN_OR_RETURN(const Row row,
                       MakeRow(session, {kind, op.op(), elements, root}));
      add(row);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunSweep(const Session& session,
                      const std::function<void(const Row&)>& add) {
  const Traits& traits = session.collective.traits();
  ASSIGN_OR_RETURN(std::vector<Kind> kinds, KindsOf(session.options, traits));
  if (!traits.moves_data) kinds.resize(1);
  const int64_t cycles = session.options.cycles;
  for (int64_t cycle = 0; cycles == 0 || cycle < cycles; ++cycle)
    for (const Kind& kind : kinds) RETURN_IF_ERROR(RunKind(session, kind, add));
  return absl::OkStatus();
}

}  // namespace trnccl::perf
