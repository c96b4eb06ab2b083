// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/arena.h"

#include <algorithm>
#include <bit>

#include "ccl/base/check.h"

namespace trnccl::shm {
namespace {

constexpr size_t kMinSliceBytes = 4 << 10;
constexpr size_t kMaxSliceBytes = 256 << 10;
// Pairs of lines, as some processors fetch them.
constexpr size_t kAlignBytes = 128;

}  // namespace

Arena::Shape Arena::ShapeFor(size_t arena_bytes, size_t links) {
  links = std::max<size_t>(links, 1);
  // A quarter of the slices stands apart, so that most of the arena is walked.
  const size_t share = std::max<size_t>(arena_bytes / (4 * links), 1);
  const size_t slice_bytes =
      std::clamp(std::bit_floor(share), kMinSliceBytes, kMaxSliceBytes);
  const size_t slices = std::max(arena_bytes / slice_bytes, links + 1);
  return {.slice_bytes = slice_bytes,
          .walked = static_cast<uint32_t>(slices - links),
          .apart = static_cast<uint32_t>(links)};
}

Arena::Arena(const Shape& shape)
    : shape_(shape), holds_(shape.walked + shape.apart) {}

std::optional<Arena::Piece> Arena::Next(size_t bytes) {
  if (bytes > shape_.slice_bytes - used_bytes_) {
    uint32_t slice = current_;
    do {
      slice = slice + 1 == shape_.walked ? 0 : slice + 1;
      if (holds_[slice] == 0) break;
      if (slice == current_) return std::nullopt;
    } while (true);
    current_ = slice;
    used_bytes_ = 0;
  }
  return Piece{current_, current_ * shape_.slice_bytes + used_bytes_};
}

Arena::Piece Arena::Apart() const {
  for (uint32_t slice = shape_.walked; slice < holds_.size(); ++slice) {
    if (holds_[slice] == 0) return {slice, slice * shape_.slice_bytes};
  }
  TRNCCL_CHECK(false);
}

void Arena::Hold(const Piece& piece, const Use& use) {
  holds_[piece.slice] += use.links;
  if (piece.slice != current_) return;
  const size_t end = used_bytes_ + use.bytes + kAlignBytes - 1;
  used_bytes_ = std::min(end / kAlignBytes * kAlignBytes, shape_.slice_bytes);
}

void Arena::Drop(uint32_t slice) { --holds_[slice]; }

}  // namespace trnccl::shm
