// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A plan of a few short messages, made ready to the last offset for one shape
// of call: what a small call that's made again and again needs, and nothing
// else. One segment, one lane, one transport, no scratch; each step's elements
// lie in a row. Everything else is ccl/executor/executor.h's.
//
// Thread rule: a program is immutable; a run thread-compatible, owned with its
// communicator.
//
//   std::optional<ShortProgram> program = ShortProgram::Make(plan, folder);
//   run.Start({.program = &*program, ...});
//   while (run.Advance() == Advanced::kNothing) Wait();
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "ccl/base/types.h"
#include "ccl/executor/executor.h"
#include "ccl/executor/plan.h"
#include "ccl/kernels/fold.h"
#include "transports/transport.h"

namespace trnccl {

class ShortProgram {
 public:
  static constexpr size_t kMaxMessageBytes = 4096;
  static constexpr size_t kMaxOperands = 16;

  // Nothing if the plan is more than that. `folder` of reducing collectives,
  // else null.
  static std::optional<ShortProgram> Make(const Plan& plan, DataType type,
                                          const Folder* folder);
  // Moved only: its steps point into it.
  ShortProgram(ShortProgram&&) = default;
  ShortProgram& operator=(ShortProgram&&) = default;

 private:
  friend class ShortRun;

  struct ShortOperand {
    CompiledOperand::Kind kind = CompiledOperand::kInput;
    bool raw = false;
    int peer = -1;
    LinkId link;
    size_t offset = 0;  // bytes from the start of the buffer
  };
  struct ShortStep {
    uint32_t first_operand = 0;
    uint32_t first_link = 0;  // of those that it sends to
    std::span<const ShortOperand> operands;
    std::span<const LinkId> links;
    bool takes = false;  // messages
    bool folds = false;  // else it passes its operand on
    bool finishes = false;
    bool stores = false;  // to the output
    size_t store_offset = 0;
    size_t count = 0;
    size_t bytes = 0;
  };

  ShortProgram() = default;
  bool Add(const Plan& plan, size_t step_index, size_t element_bytes,
           const Folder* folder);
  bool AddOperands(const CompiledProgram& program, const CompiledStep& step,
                   const Piece& piece, size_t element_bytes);
  bool Uses(Transport* transport);
  // Points the steps to their operands and links, once all are there.
  void Point();

  Transport* transport_ = nullptr;
  bool delivers_ = false;  // as its Traits::delivers
  std::vector<ShortStep> steps_;
  std::vector<ShortOperand> operands_;
  std::vector<LinkId> links_;
  std::vector<int> receivers_;  // the ranks of the links
};

class ShortRun {
 public:
  struct Job {
    const ShortProgram* program = nullptr;
    const Folder* folder = nullptr;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };

  explicit ShortRun(int rank) : rank_(rank) {}

  void Start(const Job& job, const Envelope& envelope) {
    program_ = job.program;
    folder_ = job.folder;
    // Programs only read their input.
    buffers_ = {const_cast<std::byte*>(job.input), job.output};
    envelope_ = envelope;
    next_step_ = program_->steps_.data();
  }

  // Runs every step that can run; kDone once all have and everything has left
  // this rank, and ever after.
  Advanced Advance();

  // Why it failed.
  const absl::Status& status() const { return status_; }

  // The ranks that it waits for: those whose messages are missing, or, if none
  // are, those that don't take theirs.
  std::vector<int> WaitsFor() const;

 private:
  using Step = ShortProgram::ShortStep;
  using Operand = ShortProgram::ShortOperand;

  // The next step: false if it can't run yet, or failed.
  bool TryStep(const Step& step);
  bool PeekOperands(const Step& step);
  // Notes why the message isn't what's due; false.
  bool Refuse(const Operand& operand, const Incoming& message,
              size_t expected_bytes);
  void Work(const Step& step, std::byte* slice);

  const int rank_;
  const ShortProgram* program_ = nullptr;
  const Folder* folder_ = nullptr;
  std::array<std::byte*, 2> buffers_ = {};  // input, output
  Envelope envelope_;
  const Step* next_step_ = nullptr;
  absl::Status status_;
  std::array<FoldOperand, ShortProgram::kMaxOperands> folded_ = {};
};

}  // namespace trnccl
