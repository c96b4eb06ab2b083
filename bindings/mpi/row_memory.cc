// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/row_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bindings/mpi/library.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

constexpr size_t kPageBytes = 4096;
// Small enough to stay in the first cache while it's copied from.
constexpr size_t kPatternBytes = 16 << 10;
constexpr size_t kTurnBytes = 64;

void FreeHeap(std::byte* memory) { std::free(memory); }

void FreeMemAlloc(std::byte* memory) {
  // At the program's end there's nobody to tell of a failure.
  static_cast<void>(trncclMemFree(memory));
}

}  // namespace

Buffers::Buffers(Memory first, Memory second)
    : first_(std::move(first)), second_(std::move(second)) {}

absl::StatusOr<Buffers::Memory> Buffers::MakeOne(size_t bytes,
                                                 Backing backing) {
  void* memory = nullptr;
  if (backing == Backing::kMemAlloc) {
    RETURN_IF_ERROR(FromLibrary(trncclMemAlloc(&memory, bytes), {"MemAlloc"}));
    return Memory(static_cast<std::byte*>(memory), FreeMemAlloc);
  }
  const size_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  memory = std::aligned_alloc(kPageBytes, pages);
  if (memory == nullptr)
    return absl::InternalError(
        absl::StrCat("no memory for a buffer of ", pages, " bytes"));
  return Memory(static_cast<std::byte*>(memory), FreeHeap);
}

absl::StatusOr<Buffers> Buffers::Make(size_t bytes, Backing backing) {
  ASSIGN_OR_RETURN(Memory first, MakeOne(bytes, backing));
  ASSIGN_OR_RETURN(Memory second, MakeOne(bytes, backing));
  return Buffers(std::move(first), std::move(second));
}

RowMemory::RowMemory(const Buffers& buffers, const Shape& shape,
                     const RowPlace& row)
    : shape_(shape),
      row_(row),
      element_bytes_(RowOf(row.recipe.type).bytes),
      pattern_(2 * kPatternBytes) {
  const size_t offset = row.unaligned_elements * element_bytes_;
  base_ = buffers.second() + offset;
  send_ = is_in_place() ? base_ + shape.in_place_send * element_bytes_
                        : buffers.first() + offset;
  recv_ = base_ + (is_in_place() ? shape.in_place_recv * element_bytes_ : 0);
  MakeInput(row.recipe, row.rank, {0, pattern_.size() / element_bytes_},
            pattern_.data());
}

void* RowMemory::in_place() const { return is_in_place() ? base_ : nullptr; }

void RowMemory::FillForCheck(uint64_t seed) {
  row_.recipe.seed = seed;
  FillCanary(row_.recipe, {0, shape_.row_elements + kGuardElements}, base_);
  MakeInput(row_.recipe, row_.rank, {0, shape_.send_elements}, send_);
}

std::vector<Piece> RowMemory::Expected() const {
  std::vector<Piece> expected;
  const Piece input = {row_.rank, 0, shape_.in_place_send,
                       shape_.send_elements};
  size_t end = 0;
  for (Piece piece : shape_.result) {
    if (is_in_place()) piece.at += shape_.in_place_recv;
    end = std::max(end, piece.at + piece.count);
    if (piece.source != kUntouched || !is_in_place()) {
      expected.push_back(piece);
      continue;
    }
    // The input lies in the middle of what mustn't be touched.
    expected.push_back({kUntouched, 0, 0, input.at});
    expected.push_back(input);
    const size_t input_end = input.at + input.count;
    expected.push_back({kUntouched, 0, input_end, end - input_end});
  }
  if (is_in_place()) end = shape_.row_elements;
  expected.push_back({kUntouched, 0, end, kGuardElements});
  return expected;
}

int64_t RowMemory::CountWrong() const {
  int64_t wrong = perf::CountWrong(row_.recipe, Expected(), base_);
  const Piece input = {row_.rank, 0, 0, shape_.send_elements};
  if (!is_in_place())
    wrong += perf::CountWrong(row_.recipe, {&input, 1}, send_);
  return wrong;
}

void RowMemory::FillPattern(std::byte* target, size_t bytes,
                            size_t turn) const {
  const std::byte* source = pattern_.data() + turn * kTurnBytes % kPatternBytes;
  for (size_t at = 0; at < bytes; at += kPatternBytes)
    std::memcpy(target + at, source, std::min(kPatternBytes, bytes - at));
}

void RowMemory::FillForTime() {
  const size_t row_bytes = shape_.row_elements * element_bytes_;
  FillPattern(base_, row_bytes, 0);
  if (!is_in_place()) FillPattern(send_, row_bytes, 0);
}

void RowMemory::RefillForTime() {
  if (is_in_place())
    FillPattern(base_, shape_.row_elements * element_bytes_, 0);
}

void RowMemory::RewriteInput(int64_t iteration) {
  FillPattern(send_, shape_.send_elements * element_bytes_,
              static_cast<size_t>(iteration));
}

LocalWorkCall RowMemory::local_work() const {
  if (is_in_place())
    return {shape_.in_place_work, element_bytes_, base_, base_};
  return {shape_.work, element_bytes_, send_, base_};
}

}  // namespace trnccl::perf
