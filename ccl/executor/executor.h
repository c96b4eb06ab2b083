// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Plays one rank's program over links, one segment after the other with
// several in flight: takes each step's operands where they lie, folds them into
// the output and the outgoing slice in one pass, and goes on. One collective at
// a time; the communicator keeps their order.
//
// Not here: choosing (ccl/tuner), waiting and deadlines (ccl/communicator).
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   RETURN_IF_ERROR(executor.Start(call, plan, folder, envelope));
//   while (executor.Advance() != Executor::kDone) Wait();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "algorithms/spec.h"
#include "ccl/executor/call.h"
#include "ccl/executor/plan.h"
#include "ccl/kernels/fold.h"
#include "ccl/route.h"
#include "transports/transport.h"

namespace trnccl {

enum class Advanced : uint8_t { kNothing, kSomething, kDone, kFailed };

class Executor {
 public:
  // `shape` is of the communicator: ranks and rank.
  Executor(const Shape& shape, const Routes& routes);

  // What a call brings besides its plan. Everything is borrowed until the call
  // is done.
  struct Job {
    CollectiveCall call;
    const Plan* plan = nullptr;
    const Folder* folder = nullptr;  // reducing collectives
    Envelope envelope;
    BufferRegions input_regions;
    BufferRegions output_regions;
    bool wide_partials = false;  // strict determinism of a narrow float
  };

  // OutOfResources where there's no memory for scratch; else nothing fails.
  absl::Status Start(const Job& job);

  // Runs every step that can run. kDone once, when the call is complete and no
  // peer reads this rank's buffers any more.
  Advanced Advance();

  // Why it failed.
  const absl::Status& status() const { return status_; }

  // What an unfinished call waits for: "message of rank 3 (two_step: lane 0,
  // step 2 of 5, segment 0 of 12)".
  std::string DescribeWait() const;
  // The ranks that it waits for.
  std::vector<int> WaitsFor() const;

 private:
  // One segment in flight.
  struct Slot {
    int64_t segment = 0;
    bool active = false;
    const PieceTable* table = nullptr;
    int64_t shift = 0;  // elements to add to the table's offsets
    std::byte* scratch = nullptr;
    PieceTable own_table;  // uneven blocks
  };
  struct Sent {
    Transport* transport;
    LinkId link;
  };

  // Grows what steps work with to what the plan needs.
  void MakeRoom(const Plan& plan);
  void BeginSegment(Slot* slot, int64_t segment);
  void FinishSegment(Slot* slot);
  Advanced AdvanceSlot(int slot_index);
  // The next step of a lane: kNothing if it can't run yet.
  Advanced TryStep(int slot_index, int lane, uint32_t step_index);
  bool PeekOperands(const Slot& slot, uint32_t step_index, int lane);
  // Where the step's one message should arrive.
  void FindLanding(const Slot& slot, const CompiledStep& step,
                   const PieceTable::Range& range, Expected* expected) const;
  void FindReference(const Slot& slot, const CompiledStep& step,
                     const PieceTable::Range& range, Outgoing* message) const;
  bool ReserveSends(const CompiledStep& step, int lane,
                    const Outgoing& message);
  void RunPieces(const Slot& slot, const CompiledStep& step,
                 const PieceTable::Range& range);
  void RunPiece(const Slot& slot, const CompiledStep& step, const Piece& piece);
  FoldOperand OperandAt(const Slot& slot, const CompiledOperand& operand,
                        const Piece& piece, const Incoming* message) const;
  bool IsPlainCopy(const CompiledStep& step,
                   const CompiledOperand& operand) const;
  void Deliver(const CompiledStep& step, int lane, const Outgoing& message);
  void ReleaseOperands(const CompiledStep& step, int lane);
  std::span<const LinkId> LinksOf(const CompiledSend& send, int lane);
  size_t InputBytes(const Slot& slot, const Piece& piece) const;
  size_t OutputBytes(const Slot& slot, const Piece& piece) const;
  std::byte* ScratchAt(const Slot& slot, int64_t index,
                       const Piece& piece) const;
  bool AllReleased();
  // Whether nothing needs more calls in order to leave this rank.
  bool AllSent() const;
  // The envelope of this call's messages: all-to-all-v counts by pair.
  Envelope EnvelopeTo(int peer) const;
  Envelope EnvelopeFrom(int peer) const;
  // visit(step, lane of links) for each lane's next step.
  template <typename Visit>
  void ForEachWaitingStep(Visit visit) const;
  // The ranks that the next steps would send to.
  std::vector<int> Takers() const;
  // Bytes of an element in a message or in scratch.
  template <typename Value>  // a step's result, or an operand
  size_t WireBytes(const Value& value) const {
    return wide_ && value.partial ? sizeof(float) : element_bytes_;
  }

  Shape shape_;
  Job job_;
  size_t element_bytes_ = 1;
  bool wide_ = false;
  bool copies_ = true;  // nothing to fold, prepare or finish
  int active_slots_ = 0;
  size_t slot_bytes_ = 0;  // of one scratch slot
  absl::Status status_;

  std::vector<Slot> slots_;
  std::vector<uint32_t> next_step_;  // by slot and lane
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_bytes_ = 0;

  // Of the step being run.
  std::vector<const Incoming*> messages_;   // by operand
  std::vector<FoldOperand> fold_operands_;  // by operand
  std::vector<std::byte*> slices_;          // by send
  std::vector<void*> results_;
  std::vector<LinkId> links_;

  std::vector<Sent> sent_by_reference_;
  std::vector<const Transport*> delivering_;
};

}  // namespace trnccl
