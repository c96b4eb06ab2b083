// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/rank_memory.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

std::string Describe(const RankMemory::Access& access) {
  switch (access.place.buffer) {
    case Buffer::kInput:
      return absl::StrCat("input chunk ", access.chunk);
    case Buffer::kOutput:
      return absl::StrCat("output chunk ", access.chunk);
    case Buffer::kScratch:
      return absl::StrCat("chunk ", access.chunk, " in slot ",
                          access.place.slot + access.index);
  }
  return "unknown";
}

}  // namespace

RankMemory::RankMemory(const Program& program, const Spec& spec,
                       const Shape& shape, Aliasing aliasing)
    : reduces_(spec.reduces),
      chunks_per_block_(program.chunks_per_block),
      input_(spec.input(shape)),
      output_(spec.output(shape)),
      aliasing_(aliasing),
      output_cells_(static_cast<size_t>(output_.count * chunks_per_block_)),
      scratch_cells_(static_cast<size_t>(program.scratch_slots)) {}

absl::StatusOr<RankMemory::Held> RankMemory::Read(const Access& access) {
  if (access.place.buffer == Buffer::kInput) return ReadInput(access);
  ASSIGN_OR_RETURN(Cell * cell, Find(access));
  if (!cell->stored) {
    return absl::InternalError(
        absl::StrCat("reads ", Describe(access), " before it's written"));
  }
  if (cell->chunk != access.chunk) {
    return absl::InternalError(absl::StrCat(
        "reads ", Describe(access), ", which holds chunk ", cell->chunk));
  }
  RETURN_IF_ERROR(Touch(*cell, access));
  return Held{.value = cell->value, .cell = cell};
}

absl::StatusOr<RankMemory::Held> RankMemory::ReadInput(const Access& access) {
  const int64_t position = PositionOf(input_, access.chunk);
  if (position < 0) {
    return absl::InternalError(absl::StrCat("reads ", Describe(access),
                                            ", which this rank doesn't bring"));
  }
  if (aliasing_ == Aliasing::kOutOfPlace) return Held{};
  const int64_t alias = input_.count == output_.count
                            ? position
                            : PositionOf(output_, access.chunk);
  if (alias < 0) return Held{};
  Cell& cell = output_cells_[static_cast<size_t>(alias)];
  // Copying a chunk onto itself changes nothing, unless a prepare comes in.
  if (cell.stored && (reduces_ || cell.chunk != access.chunk)) {
    return absl::InternalError(absl::StrCat(
        "reads ", Describe(access),
        ", which in place was overwritten by output chunk ", cell.chunk));
  }
  RETURN_IF_ERROR(Touch(cell, access));
  return Held{.cell = &cell};
}

absl::StatusOr<RankMemory::Cell*> RankMemory::Find(const Access& access) {
  if (access.place.buffer == Buffer::kScratch) {
    const int64_t slot = access.place.slot + access.index;
    if (slot < 0 || slot >= static_cast<int64_t>(scratch_cells_.size())) {
      return absl::InternalError(
          absl::StrCat("touches ", Describe(access), ", but there are ",
                       scratch_cells_.size(), " scratch slots"));
    }
    return &scratch_cells_[static_cast<size_t>(slot)];
  }
  if (access.place.buffer == Buffer::kInput) {
    return absl::InternalError(
        absl::StrCat("writes ", Describe(access), ": inputs are read only"));
  }
  const int64_t position = PositionOf(output_, access.chunk);
  if (position < 0) {
    return absl::InternalError(absl::StrCat(
        "touches ", Describe(access), ", which isn't in this rank's output"));
  }
  return &output_cells_[static_cast<size_t>(position)];
}

absl::Status RankMemory::Store(Cell& cell, const Value& value,
                               const Access& access) {
  cell.stored = true;
  cell.chunk = access.chunk;
  cell.value = value;
  return Touch(cell, access);
}

absl::Status RankMemory::Touch(Cell& cell, const Access& access) {
  const int32_t other = cell.lane;
  if (other == kNone) {
    cell.lane = access.lane;
  } else if (other != access.lane) {
    cell.shared = true;
  }
  if (!cell.shared || !cell.stored) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("touches ", Describe(access),
                                          ", as does lane ", other,
                                          ", and one of them writes it"));
}

int64_t RankMemory::PositionOf(const BlockRange& range, int64_t chunk) const {
  const int64_t position = range.PositionOf(chunk / chunks_per_block_);
  if (position < 0) return position;
  return position * chunks_per_block_ + chunk % chunks_per_block_;
}

}  // namespace trnccl
