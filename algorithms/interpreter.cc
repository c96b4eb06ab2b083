// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/interpreter.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "algorithms/layout.h"
#include "algorithms/network.h"
#include "algorithms/schedule_form.h"
#include "algorithms/spec.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

// One of a rank's buffers: its blocks, and where they start in the memory.
class BlockBuffer {
 public:
  BlockBuffer(const InterpretedCall& call, const BlockRange& range,
              int64_t chunks_per_block)
      : range_(range),
        counts_(CountsOf(call, range)),
        layout_(range, {.counts = counts_}, chunks_per_block),
        element_bytes_(call.element_bytes) {}
  BlockBuffer(const BlockBuffer&) = delete;
  BlockBuffer& operator=(const BlockBuffer&) = delete;

  size_t bytes() const { return BytesBefore(range_.count); }
  const BlockRange& range() const { return range_; }

  // Bytes of the blocks before this position.
  size_t BytesBefore(int64_t position) const {
    return static_cast<size_t>(std::accumulate(
               counts_.begin(), counts_.begin() + position, int64_t{0})) *
           element_bytes_;
  }

  std::span<std::byte> Find(std::byte* start, int64_t chunk,
                            const Segment& segment) const {
    const Extent extent = layout_.Find(chunk, segment);
    return {start + static_cast<size_t>(extent.offset) * element_bytes_,
            static_cast<size_t>(extent.count) * element_bytes_};
  }

 private:
  static std::vector<int64_t> CountsOf(const InterpretedCall& call,
                                       const BlockRange& range) {
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < range.count; ++i) {
      const auto block = static_cast<size_t>(range.first + i * range.stride);
      counts.push_back(call.block_counts.size() == 1
                           ? call.block_counts.front()
                           : call.block_counts[block]);
    }
    return counts;
  }

  const BlockRange range_;
  const std::vector<int64_t> counts_;
  const BufferLayout layout_;
  const size_t element_bytes_;
};

class RankArrays {
 public:
  RankArrays(const InterpretedCall& call, const Shape& shape,
             const Program& program)
      : input_(call, SpecOf(call.collective).input(shape),
               program.chunks_per_block),
        output_(call, SpecOf(call.collective).output(shape),
                program.chunks_per_block),
        scratch_(static_cast<size_t>(program.scratch_slots)) {
    const bool shares = call.memory == InterpretedCall::Memory::kInPlace &&
                        input_.range().count > 0 && output_.range().count > 0;
    if (!shares) {
      output_start_ = input_.bytes();
      memory_.resize(input_.bytes() + output_.bytes());
      return;
    }
    const BlockRange& in = input_.range();
    const BlockRange& out = output_.range();
    if (in.count < out.count) {
      input_start_ = output_.BytesBefore(out.PositionOf(in.first));
    } else if (out.count < in.count) {
      output_start_ = input_.BytesBefore(in.PositionOf(out.first));
    }
    memory_.resize(std::max(input_.bytes(), output_.bytes()));
  }

  absl::Status Fill(const Bytes& input) {
    if (input.size() != input_.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input of ", input.size(), " bytes, not ", input_.bytes()));
    }
    std::ranges::copy(
        input, memory_.begin() + static_cast<std::ptrdiff_t>(input_start_));
    return absl::OkStatus();
  }

  Bytes Output() const {
    const auto start =
        memory_.begin() + static_cast<std::ptrdiff_t>(output_start_);
    return Bytes(start, start + static_cast<std::ptrdiff_t>(output_.bytes()));
  }

  // `index` counts the step's chunks.
  std::span<const std::byte> Read(const Place& place, size_t index,
                                  int64_t chunk, const Segment& segment) {
    if (place.buffer == Buffer::kScratch) return SlotOf(place, index);
    if (place.buffer == Buffer::kOutput) return OutputOf(chunk, segment);
    return input_.Find(memory_.data() + input_start_, chunk, segment);
  }

  void Store(const Place& place, size_t index, const Bytes& value) {
    SlotOf(place, index) = value;
  }
  std::span<std::byte> OutputOf(int64_t chunk, const Segment& segment) {
    return output_.Find(memory_.data() + output_start_, chunk, segment);
  }

 private:
  Bytes& SlotOf(const Place& place, size_t index) {
    return scratch_[static_cast<size_t>(place.slot) + index];
  }

  BlockBuffer input_;
  BlockBuffer output_;
  Bytes memory_;  // of both buffers
  size_t input_start_ = 0;
  size_t output_start_ = 0;
  std::vector<Bytes> scratch_;
};

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, const InterpretedCall& call,
              const FoldFunction& fold)
      : schedule_(schedule),
        call_(call),
        fold_(fold),
        spec_(SpecOf(call.collective)),
        chunks_per_block_(schedule.programs.front().chunks_per_block),
        total_(spec_.blocks(call.ranks) * chunks_per_block_) {}

  absl::StatusOr<std::vector<Bytes>> Run(const std::vector<Bytes>& inputs) {
    for (int rank = 0; rank < call_.ranks; ++rank) {
      const auto index = static_cast<size_t>(rank);
      ranks_.push_back(std::make_unique<RankArrays>(
          call_, Shape{.ranks = call_.ranks, .rank = rank, .root = call_.root},
          schedule_.programs[index]));
      RETURN_IF_ERROR(ranks_.back()->Fill(inputs[index]));
    }
    const int64_t largest = *std::ranges::max_element(call_.block_counts);
    for (int64_t i = 0; i < SegmentsFor(largest, call_.segment_count); ++i) {
      RETURN_IF_ERROR(RunSegment({i, call_.segment_count}));
    }
    std::vector<Bytes> outputs;
    for (const auto& rank : ranks_) outputs.push_back(rank->Output());
    return outputs;
  }

 private:
  // A step's result, an array a chunk.
  using Values = std::vector<Bytes>;

  absl::Status RunSegment(const Segment& segment) {
    Network network(schedule_);
    std::vector<Values> payloads;
    while (const std::optional<Firing> firing = network.Next()) {
      Values values = Fold(*firing, network.messages(), payloads, segment);
      Deliver(*firing, values, segment);
      network.Send(*firing, static_cast<int32_t>(payloads.size()));
      payloads.push_back(std::move(values));
    }
    return network.Ended();
  }

  Values Fold(const Firing& firing, std::span<const Message> messages,
              const std::vector<Values>& payloads, const Segment& segment) {
    const Step& step = *firing.step;
    Values values;
    ForEachChunk(step, total_, [&](int64_t chunk) {
      std::vector<InterpretedFold::Operand> operands;
      size_t message = 0;
      for (const Operand& operand : step.operands) {
        const bool received = operand.peer != Operand::kNoPeer;
        const std::span<const std::byte> bytes =
            received
                ? payloads[static_cast<size_t>(messages[message++].payload)]
                          [values.size()]
                : RankOf(firing).Read(operand.place, values.size(), chunk,
                                      segment);
        operands.push_back(
            {.data = bytes.data(),
             .raw = !received && operand.place.buffer == Buffer::kInput,
             .partial = operand.partial});
      }
      const int64_t count = CountOf(chunk, segment);
      const size_t element_bytes = step.partial && call_.partial_bytes > 0
                                       ? call_.partial_bytes
                                       : call_.element_bytes;
      Bytes result(static_cast<size_t>(count) * element_bytes);
      if (spec_.reduces) {
        fold_({.operands = operands,
               .result = result.data(),
               .count = count,
               .completes = step.completes,
               .partial = step.partial});
      } else {
        std::copy_n(operands.front().data, result.size(), result.data());
      }
      values.push_back(std::move(result));
    });
    return values;
  }

  void Deliver(const Firing& firing, const Values& values,
               const Segment& segment) {
    const Step& step = *firing.step;
    if (!step.stores) return;
    size_t index = 0;
    ForEachChunk(step, total_, [&](int64_t chunk) {
      const Bytes& value = values[index];
      if (step.store.buffer == Buffer::kScratch) {
        RankOf(firing).Store(step.store, index, value);
      } else {
        std::ranges::copy(value,
                          RankOf(firing).OutputOf(chunk, segment).begin());
      }
      ++index;
    });
  }

  int64_t CountOf(int64_t chunk, const Segment& segment) const {
    const auto block = static_cast<size_t>(chunk / chunks_per_block_);
    return ExtentInBlock({.block_count = call_.block_counts.size() == 1
                                             ? call_.block_counts.front()
                                             : call_.block_counts[block],
                          .chunks_per_block = chunks_per_block_,
                          .part = chunk % chunks_per_block_},
                         segment)
        .count;
  }

  RankArrays& RankOf(const Firing& firing) {
    return *ranks_[static_cast<size_t>(firing.rank)];
  }

  const Schedule& schedule_;
  const InterpretedCall& call_;
  const FoldFunction& fold_;
  const Spec& spec_;
  const int64_t chunks_per_block_;
  const int64_t total_;  // chunks
  std::vector<std::unique_ptr<RankArrays>> ranks_;
};

}  // namespace

absl::StatusOr<std::vector<Bytes>> Interpret(const Schedule& schedule,
                                             const InterpretedCall& call,
                                             const std::vector<Bytes>& inputs,
                                             const FoldFunction& fold) {
  const int64_t blocks = SpecOf(call.collective).blocks(call.ranks);
  RETURN_IF_ERROR(CheckForm(schedule, {.ranks = call.ranks, .blocks = blocks}));
  if (inputs.size() != static_cast<size_t>(call.ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat(inputs.size(), " inputs for ", call.ranks, " ranks"));
  }
  if (call.block_counts.size() != 1 &&
      call.block_counts.size() != static_cast<size_t>(blocks)) {
    return absl::InvalidArgumentError(absl::StrCat(
        call.block_counts.size(), " counts for ", blocks, " blocks"));
  }
  return Interpreter(schedule, call, fold).Run(inputs);
}

}  // namespace trnccl
