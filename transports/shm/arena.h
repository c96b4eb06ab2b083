// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which bytes of a sender's arena its next message takes. Knows numbers only,
// not the memory.
//
// The arena is cut into slices. Messages are packed one after another into the
// current slice, then into the next one in turn that holds none, so that even
// small messages walk through all of it: writing a line again that the reader
// still has in its cache is the dear part. One slice a link stands apart for
// links that hold nothing while the walk is stuck: such a link always finds
// one, since whoever has taken one isn't empty.
//
// Thread rule: thread-compatible.
//
//   if (auto piece = arena.Next(bytes)) arena.Hold(*piece, {.bytes, .links =
//   2}); arena.Drop(piece->slice);  // once for each link
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace trnccl::shm {

class Arena {
 public:
  struct Shape {
    size_t slice_bytes = 0;
    uint32_t walked = 0;  // slices
    uint32_t apart = 0;   // slices

    size_t bytes() const { return slice_bytes * (walked + apart); }
  };
  // The same on all ranks that say the same. At least `arena_bytes` where that
  // gives each link a slice.
  static Shape ShapeFor(size_t arena_bytes, size_t links);

  explicit Arena(const Shape& shape);

  struct Piece {
    uint32_t slice = 0;
    size_t offset = 0;  // in the arena
  };
  // Where a message would go; nothing is taken before Hold().
  std::optional<Piece> Next(size_t bytes);
  // Only for a message whose links all hold none. Never fails then.
  Piece Apart() const;

  struct Use {
    size_t bytes = 0;
    uint32_t links = 0;
  };
  void Hold(const Piece& piece, const Use& use);
  void Drop(uint32_t slice);

 private:
  Shape shape_;
  std::vector<uint32_t> holds_;  // by slice: messages times links
  uint32_t current_ = 0;
  size_t used_bytes_ = 0;  // of the current slice
};

}  // namespace trnccl::shm
