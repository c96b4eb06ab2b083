// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/limit.h"

#include <cstdint>
#include <cstring>

namespace trnccl::perf {
namespace {

// The widest registers there are; the compiler splits it for others.
typedef uint64_t Vector __attribute__((vector_size(64)));

// Adds words: the cheapest fold there is, so the time is memory's.
// TRNCCL_EACH_CPU, from BUILD, compiles it for each generation of processors.
TRNCCL_EACH_CPU void FoldWords(const LocalWorkCall& call, size_t bytes) {
  const std::byte* source = static_cast<const std::byte*>(call.source);
  std::byte* target = static_cast<std::byte*>(call.target);
  for (size_t at = 0; at + sizeof(Vector) <= bytes; at += sizeof(Vector)) {
    Vector sum;
    std::memcpy(&sum, source + at, sizeof(sum));
    for (int input = 1; input < call.work.inputs; ++input) {
      Vector next;
      std::memcpy(&next, source + static_cast<size_t>(input) * bytes + at,
                  sizeof(next));
      sum += next;
    }
    for (int output = 0; output < call.work.outputs; ++output)
      std::memcpy(target + static_cast<size_t>(output) * bytes + at, &sum,
                  sizeof(sum));
  }
}

}  // namespace

void DoLocalWork(const LocalWorkCall& call) {
  const size_t bytes = call.work.elements * call.element_bytes;
  if (call.work.inputs > 1) return FoldWords(call, bytes);
  const std::byte* source = static_cast<const std::byte*>(call.source);
  std::byte* target = static_cast<std::byte*>(call.target);
  const bool in_place = source == target;
  for (int output = 0; output < call.work.outputs; ++output)
    std::memcpy(target + static_cast<size_t>(output + in_place) * bytes, source,
                bytes);
}

}  // namespace trnccl::perf
