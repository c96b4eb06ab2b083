// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <cstring>
#include <memory>
#include <vector>

#include "bindings/cli/measure.h"
#include "bindings/cli/stopwatch.h"
#include "ccl/base/status_macros.h"
#include "ccl/kernels/fold.h"

namespace trnccl::cli {
namespace {

// The user's buffers, gone through in turn. No zeros: some memory moves them
// faster.
class Buffers {
 public:
  const float* input() const { return input_.data() + at_; }
  float* output() { return output_.data() + at_; }
  // To the next so many bytes, or to the first.
  void Advance(size_t bytes) {
    at_ += count_;
    count_ = bytes / sizeof(float);
    if (count_ > input_.size() - at_) at_ = 0;
  }

 private:
  size_t at_ = 0;
  size_t count_ = 0;
  std::vector<float> input_ =
      std::vector<float>(kBufferBytes / sizeof(float), 1.5f);
  std::vector<float> output_ =
      std::vector<float>(kBufferBytes / sizeof(float), 2.5f);
};

enum class Use { kCopy, kFold };

class Slices {
 public:
  Slices(Wire& wire, const Folder& folder) : wire_(wire), folder_(folder) {}

  // Both write and send, then use what came: what a step of an all-gather, or
  // of an all-reduce, does.
  absl::Status Exchange(size_t bytes, Use use) {
    buffers_.Advance(bytes);
    const Stopwatch writing;
    ASSIGN_OR_RETURN(std::byte * slice, wire_.Reserve(bytes));
    std::memcpy(slice, buffers_.input(), bytes);
    wire_.Send(bytes);
    writes_.push_back(writing.seconds());
    ASSIGN_OR_RETURN(const Incoming* message, wire_.Receive());
    const Stopwatch using_it;
    if (use == Use::kCopy) {
      std::memcpy(buffers_.output(), message->data, bytes);
    } else {
      Fold(*message);
    }
    uses_.push_back(using_it.seconds());
    wire_.Release();
    return absl::OkStatus();
  }

  // Medians since the last call.
  double TakeWrite() { return Take(&writes_); }
  double TakeUse() { return Take(&uses_); }

 private:
  void Fold(const Incoming& message) {
    const FoldOperand operands[] = {{.data = message.data},
                                    {.data = buffers_.input()}};
    void* const results[] = {buffers_.output()};
    folder_.Fold({.operands = operands,
                  .results = results,
                  .count = message.bytes / sizeof(float)});
  }

  static double Take(std::vector<double>* seconds) {
    const double median = Median(*seconds);
    seconds->clear();
    return median;
  }

  Wire& wire_;
  const Folder& folder_;
  Buffers buffers_;
  std::vector<double> writes_;
  std::vector<double> uses_;
};

}  // namespace

absl::Status MeasureSlices(Seat& seat, Wire& wire, const Effort& effort,
                           Measured* measured) {
  ASSIGN_OR_RETURN(const Folder folder,
                   MakeFolder({DataType::kFloat32, ReduceOp::kSum}));
  Slices slices(wire, folder);
  // The first time through its memory, a link maps and fills it.
  for (size_t i = 0; i < kBufferBytes / kSizes.back(); ++i)
    RETURN_IF_ERROR(slices.Exchange(kSizes.back(), Use::kCopy));
  slices.TakeWrite();
  slices.TakeUse();
  for (size_t size = 0; size < kSizes.size(); ++size) {
    for (const Use use : {Use::kCopy, Use::kFold}) {
      RETURN_IF_ERROR(seat.Meet());
      for (int i = 0; i < effort.repeats; ++i)
        RETURN_IF_ERROR(slices.Exchange(kSizes[size], use));
      (use == Use::kCopy ? measured->copy : measured->fold)[size] =
          slices.TakeUse();
    }
    measured->write[size] = slices.TakeWrite();
  }
  return absl::OkStatus();
}

}  // namespace trnccl::cli
