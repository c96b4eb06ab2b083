// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The schedule: what every rank does in a collective, as plain data. Builders
// write it, the verifier proves it, the interpreter and the executor play it.
// It names chunks, never addresses, and knows neither sizes nor transports.
//
// A chunk number is a name that means the same data on every rank. The spec
// (algorithms/spec.h) cuts a collective's data into blocks; a program cuts each
// block into `chunks_per_block` chunks, so chunk k is part k % chunks_per_block
// of block k / chunks_per_block. Where a chunk lies in a rank's buffer follows
// from the spec and the layout (algorithms/layout.h).
//
// A step waits until each operand that is a peer's message has arrived and
// each link it sends on is empty; then it folds its operands in the order
// listed (one operand is passed through) and delivers the result. A message
// carries the step's chunks in the order of the step's spans, and the
// receiving step must name the same chunks in the same order. Links are FIFOs,
// one per (sender, receiver, lane). Steps of one lane run in order; lanes of a
// program share nothing that one of them writes.
//
// Thread rule: plain values.
//
//   // Rank 1 of a chain adds its input to rank 0's message and passes it on.
//   Step step{.spans = {{.first = 0, .chunks = 1}},
//             .operands = {Operand::From(0), Operand::Of(Buffer::kInput)},
//             .send_to = {2},
//             .partial = true};
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace trnccl {

enum class Buffer : uint8_t { kInput, kOutput, kScratch };

// Chunks first, first + stride, ..., each modulo the schedule's chunk total.
struct Span {
  int64_t first = 0;
  int64_t chunks = 1;
  int64_t stride = 1;

  bool operator==(const Span&) const = default;
};

// Where a rank keeps the chunks of a step. Input and output have a place for
// every chunk that the spec says they hold. Scratch is slots of one chunk
// each: the step's i-th chunk lies in slot `slot + i`.
struct Place {
  Buffer buffer = Buffer::kInput;
  int64_t slot = 0;

  bool operator==(const Place&) const = default;
};

struct Operand {
  static constexpr int kNoPeer = -1;

  static Operand From(int peer) { return {.peer = peer}; }
  static Operand PartialFrom(int peer) {
    return {.peer = peer, .partial = true};
  }
  static Operand Of(Buffer buffer) { return {.place = {buffer}}; }
  static Operand Slot(int64_t slot) {
    return {.place = {Buffer::kScratch, slot}};
  }

  int peer = kNoPeer;  // whose message, or kNoPeer: this rank's `place`
  Place place;
  // The value is a fold of some but not all ranks' contributions. In strict
  // determinism partial values of narrow floats travel and rest as float32.
  // A rank's raw input is not partial: it's exact in either form.
  bool partial = false;

  bool operator==(const Operand&) const = default;
};

struct Step {
  // Empty: the step moves no data (barrier); its messages are empty.
  absl::InlinedVector<Span, 1> spans;
  // Reading Buffer::kInput in a reducing collective reads raw input: the
  // operator's prepare is applied there, and nowhere else.
  absl::InlinedVector<Operand, 2> operands;
  bool stores = false;
  Place store;
  absl::InlinedVector<int, 2> send_to;
  // The result is complete: every rank's contribution is in it, and the
  // operator's finish is applied here. Exactly once on the way of each chunk.
  bool completes = false;
  // As Operand::partial, for the result.
  bool partial = false;

  bool operator==(const Step&) const = default;
};

struct Lane {
  std::vector<Step> steps;
};

// One rank's part. `chunks_per_block`, the number of lanes and the scratch
// slots are the same on all ranks.
struct Program {
  int64_t chunks_per_block = 1;
  int64_t scratch_slots = 0;
  std::vector<Lane> lanes;
};

// All ranks' programs: programs[rank].
struct Schedule {
  std::vector<Program> programs;
};

// The number of chunks that a step's message or store has.
int64_t ChunkCount(const Step& step);

// The most chunks that one message of the program carries: what a slice must
// hold.
int64_t MostChunksPerMessage(const Program& program);

// Calls visit(chunk) for each chunk of the spans, in order; `total` is the
// schedule's chunk total.
template <typename Visit>
void ForEachChunk(const Step& step, int64_t total, Visit visit) {
  for (const Span& span : step.spans) {
    int64_t chunk = span.first % total;
    const int64_t stride = span.stride % total;
    for (int64_t i = 0; i < span.chunks; ++i) {
      visit(chunk);
      chunk += stride;
      if (chunk >= total) chunk -= total;
      if (chunk < 0) chunk += total;
    }
  }
}

// A text form for people: one line a step, as `trnccl plan` prints it:
//   [2 x2] from 3 + input => output -> 1, 2 (complete)
std::string Dump(const Step& step);
std::string Dump(const Program& program);

}  // namespace trnccl
