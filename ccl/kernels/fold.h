// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Folding: out[i] = op(in_0[i], in_1[i], ...), in the order listed, each input
// read once. It's what a reduction does to bytes, and nothing else: no
// schedule, no transport, no memory of its own.
//
// The rules of every (type, operator) pair stand in ccl/kernels/README.md.
// 8- and 16-bit floats accumulate in float32 and are rounded once at the end.
//
// An operator has three parts. `prepare` makes a rank's raw input fit to be
// folded (premultiply; bool to 0 or 1), `fold` combines, `finish` makes a
// complete fold the result (average). One Fold() does all three in one pass.
//
// Thread rule: pure functions on the caller's memory; any thread. Results may
// be the very same array as an operand (in place) if both are wide or neither
// is; they never overlap it otherwise.
//
//   ASSIGN_OR_RETURN(Folder folder,
//                    MakeFolder({DataType::kFloat32, ReduceOp::kSum}));
//   const FoldOperand operands[] = {{peer_slice}, {input, true}};
//   void* const results[] = {output};
//   folder.Fold({operands, results, count});
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/types.h"

namespace trnccl {

// A factor of kPremulSum: of the element's own type for integers and floats
// up to 64 bits; the real or complex factor of complex types as two doubles.
struct PremulFactor {
  double real = 1;
  double imaginary = 0;
  int64_t integer = 1;  // used for the integer types
};

struct FoldSpec {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  PremulFactor factor;  // this rank's, kPremulSum only
  int64_t ranks = 1;    // kAvg divides by this
};

struct FoldOperand {
  const void* data = nullptr;
  bool raw = false;   // this rank's own input: apply prepare
  bool wide = false;  // holds float32 partials of this very fold
};

struct FoldCall {
  std::span<const FoldOperand> operands;  // at least one, folded in order
  std::span<void* const> results;         // one or two; each gets every element
  size_t count = 0;                       // elements
  bool finish = false;                    // the fold is complete: apply finish
  bool wide_result = false;               // write float32 partials
};

// Validated once, then called without checks: choosing is done at planning.
class Folder {
 public:
  Folder() = default;

  // operands.size() == 1 copies (with prepare, finish and conversion where
  // asked for). wide is for narrow floats only.
  void Fold(const FoldCall& call) const { function_(spec_, call); }

  // True if raw operands are changed by prepare: such an operand can't be sent
  // by reference.
  bool has_prepare() const { return has_prepare_; }
  // True if finish changes a complete fold.
  bool has_finish() const { return has_finish_; }

 private:
  using Function = void (*)(const FoldSpec&, const FoldCall&);
  friend absl::StatusOr<Folder> MakeFolder(const FoldSpec& spec);

  FoldSpec spec_;
  Function function_ = nullptr;
  bool has_prepare_ = false;
  bool has_finish_ = false;
};

// InvalidArgument, naming the pair and what is allowed, where the pair has no
// meaning (average of bool, bitwise on floats, min of complex, ...).
absl::StatusOr<Folder> MakeFolder(const FoldSpec& spec);

// Whether the pair has a meaning at all.
bool IsSupported(DataType type, ReduceOp op);

}  // namespace trnccl
