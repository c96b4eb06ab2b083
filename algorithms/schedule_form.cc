// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/schedule_form.h"

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

absl::Status Malformed(const std::string& text) {
  return absl::InvalidArgumentError(text);
}

absl::Status CheckAgreement(const Schedule& schedule, int ranks) {
  if (schedule.programs.size() != static_cast<size_t>(ranks)) {
    return Malformed(absl::StrCat("there are ", schedule.programs.size(),
                                  " programs for ", ranks, " ranks"));
  }
  const Program& first = schedule.programs.front();
  if (first.chunks_per_block < 1 || first.scratch_slots < 0) {
    return Malformed(absl::StrCat("a program has ", first.chunks_per_block,
                                  " chunks per block and ", first.scratch_slots,
                                  " scratch slots"));
  }
  for (size_t rank = 1; rank < schedule.programs.size(); ++rank) {
    const Program& program = schedule.programs[rank];
    if (program.chunks_per_block != first.chunks_per_block ||
        program.scratch_slots != first.scratch_slots ||
        program.lanes.size() != first.lanes.size()) {
      return Malformed(
          absl::StrCat("ranks 0 and ", rank,
                       " differ in chunks per block, scratch slots or lanes"));
    }
  }
  return absl::OkStatus();
}

// Checks the steps of one rank, one after the other.
class StepChecker {
 public:
  struct Bounds {
    int ranks = 1;
    int64_t total = 1;  // chunks
    int64_t slots = 0;  // of scratch
  };
  StepChecker(int rank, const Bounds& bounds)
      : rank_(rank),
        ranks_(bounds.ranks),
        total_(bounds.total),
        slots_(bounds.slots),
        seen_(static_cast<size_t>(bounds.ranks)) {}

  absl::Status Check(const Step& step) {
    RETURN_IF_ERROR(CheckSpans(step));
    RETURN_IF_ERROR(CheckPeers(step));
    if (step.spans.empty()) return CheckMovesNothing(step);
    if (step.operands.empty()) return Malformed("has no operand");
    if (!step.stores && step.send_to.empty()) {
      return Malformed("delivers its result nowhere");
    }
    if (step.stores && step.store.buffer == Buffer::kInput) {
      return Malformed("writes its input");
    }
    return CheckSlots(step);
  }

 private:
  absl::Status CheckSpans(const Step& step) const {
    for (const Span& span : step.spans) {
      if (span.first < 0 || span.first >= total_ || span.chunks < 1 ||
          span.chunks > total_) {
        return Malformed(absl::StrCat("names ", span.chunks,
                                      " chunks from chunk ", span.first,
                                      " on, but there are ", total_));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckPeers(const Step& step) {
    ++sends_or_receipts_;
    for (const Operand& operand : step.operands) {
      if (operand.peer == Operand::kNoPeer) continue;
      RETURN_IF_ERROR(CheckPeer(operand.peer));
    }
    ++sends_or_receipts_;
    for (int peer : step.send_to) RETURN_IF_ERROR(CheckPeer(peer));
    return absl::OkStatus();
  }

  absl::Status CheckPeer(int peer) {
    if (peer < 0 || peer >= ranks_ || peer == rank_) {
      return Malformed(absl::StrCat("has peer ", peer));
    }
    int64_t& seen = seen_[static_cast<size_t>(peer)];
    if (seen == sends_or_receipts_) {
      return Malformed(absl::StrCat("has peer ", peer, " twice"));
    }
    seen = sends_or_receipts_;
    return absl::OkStatus();
  }

  static absl::Status CheckMovesNothing(const Step& step) {
    for (const Operand& operand : step.operands) {
      if (operand.peer == Operand::kNoPeer || operand.partial) {
        return Malformed("reads a place, but moves no data");
      }
    }
    if (step.stores || step.completes || step.partial) {
      return Malformed("has a result, but moves no data");
    }
    return absl::OkStatus();
  }

  absl::Status CheckPlace(const Place& place, int64_t chunks) const {
    if (place.buffer != Buffer::kScratch ||
        (place.slot >= 0 && place.slot <= slots_ - chunks)) {
      return absl::OkStatus();
    }
    return Malformed(absl::StrCat("names ", chunks, " slots from slot ",
                                  place.slot, " on, but there are ", slots_,
                                  " scratch slots"));
  }

  // A step may fold into the very slots that it reads, position by position;
  // otherwise what it reads would depend on the order of its chunks.
  absl::Status CheckSlots(const Step& step) const {
    if (step.stores) {
      RETURN_IF_ERROR(CheckPlace(step.store, ChunkCount(step)));
    }
    for (const Operand& operand : step.operands) {
      if (operand.peer != Operand::kNoPeer) continue;
      RETURN_IF_ERROR(CheckPlace(operand.place, ChunkCount(step)));
    }
    if (!step.stores || step.store.buffer != Buffer::kScratch) {
      return absl::OkStatus();
    }
    const int64_t chunks = ChunkCount(step);
    for (const Operand& operand : step.operands) {
      if (operand.peer != Operand::kNoPeer ||
          operand.place.buffer != Buffer::kScratch) {
        continue;
      }
      const int64_t distance = operand.place.slot - step.store.slot;
      if (distance != 0 && distance < chunks && -distance < chunks) {
        return Malformed("reads slots that it writes at another position");
      }
    }
    return absl::OkStatus();
  }

  const int rank_;
  const int ranks_;
  const int64_t total_;
  const int64_t slots_;
  std::vector<int64_t> seen_;  // by peer: in which list of peers last
  int64_t sends_or_receipts_ = 0;
};

}  // namespace

absl::Status CheckForm(const Schedule& schedule, const FormLimits& limits) {
  RETURN_IF_ERROR(CheckAgreement(schedule, limits.ranks));
  const int64_t chunks_per_block = schedule.programs.front().chunks_per_block;
  if (chunks_per_block > std::numeric_limits<int32_t>::max() / limits.blocks) {
    return Malformed(absl::StrCat(chunks_per_block, " chunks in each of ",
                                  limits.blocks, " blocks are too many"));
  }
  for (int rank = 0; rank < limits.ranks; ++rank) {
    StepChecker checker(rank,
                        {.ranks = limits.ranks,
                         .total = chunks_per_block * limits.blocks,
                         .slots = schedule.programs.front().scratch_slots});
    const auto& lanes = schedule.programs[static_cast<size_t>(rank)].lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      for (size_t i = 0; i < lanes[lane].steps.size(); ++i) {
        const Step& step = lanes[lane].steps[i];
        const absl::Status status = checker.Check(step);
        if (status.ok()) continue;
        return Malformed(absl::StrCat("rank ", rank, ", lane ", lane, ", step ",
                                      i, ": ", Dump(step), ": ",
                                      std::string(status.message())));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace trnccl
