// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The two buffers of a rank, and what lies in them for one row: where send and
// recv are, in place and out of place; filling them for the check and for the
// time; counting what's wrong afterwards.
//
// Thread rule: an object belongs to one rank, that is one thread.
//
//   ASSIGN_OR_RETURN(Buffers buffers, Buffers::Make(bytes, Backing::kHeap));
//   RowMemory memory(buffers, shape, {recipe, rank, Place::kIn});
//   memory.FillForCheck(recipe);
//   ... the call on memory.send(), memory.recv() ...
//   int64_t wrong = memory.CountWrong(recipe);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bindings/mpi/collective.h"
#include "bindings/mpi/data.h"

namespace trnccl::perf {

enum class Backing { kHeap, kMemAlloc };
enum class Place { kOut = 0, kIn = 1 };

// Behind each buffer: what a call must leave alone.
inline constexpr size_t kGuardElements = 16;

class Buffers {
 public:
  // Two of `bytes` and a guard, page-aligned.
  static absl::StatusOr<Buffers> Make(size_t bytes, Backing backing);

  std::byte* first() const { return first_.get(); }
  std::byte* second() const { return second_.get(); }

 private:
  using Memory = std::unique_ptr<std::byte[], void (*)(std::byte*)>;

  Buffers(Memory first, Memory second);
  static absl::StatusOr<Memory> MakeOne(size_t bytes, Backing backing);

  Memory first_;
  Memory second_;
};

struct RowPlace {
  Recipe recipe;
  int rank = 0;
  Place place = Place::kOut;
  size_t unaligned_elements = 0;
};

class RowMemory {
 public:
  RowMemory(const Buffers& buffers, const Shape& shape, const RowPlace& row);

  void* send() const { return send_; }
  void* recv() const { return recv_; }
  // The one buffer of a call in place; null out of place.
  void* in_place() const;

  // A seed of its own for each check, so that an old result is a wrong one.
  void FillForCheck(uint64_t seed);
  int64_t CountWrong() const;

  // Random data everywhere, then as much of it as calls use up.
  void FillForTime();
  void RefillForTime();
  // The whole input, another way each time.
  void RewriteInput(int64_t iteration);

  LocalWorkCall local_work() const;

 private:
  void FillPattern(std::byte* target, size_t bytes, size_t turn) const;
  bool is_in_place() const { return row_.place == Place::kIn; }
  std::vector<Piece> Expected() const;

  const Shape& shape_;
  RowPlace row_;
  size_t element_bytes_;
  std::byte* base_;  // what a call may write
  std::byte* send_;
  std::byte* recv_;
  std::vector<std::byte> pattern_;
};

}  // namespace trnccl::perf
