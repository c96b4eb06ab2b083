// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/checks.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/spec.h"
#include "ccl/kernels/fold.h"

namespace trnccl {
namespace {

std::string Text(std::string_view name) { return std::string(name); }

absl::Status Refuse(const Membership& me, std::string_view call,
                    const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", me.rank, ": ", Text(call), ": ", why));
}

// No address space is larger: what goes beyond was a negative number, or a sum
// that overflowed.
constexpr int64_t kMaxBytes = (int64_t{1} << 56) - 1;

// Bytes from the start of a buffer to the end of its last block, or nothing if
// they don't fit in memory.
std::optional<size_t> BytesOf(const BlockRange& blocks,
                              const BlockCounts& counts, size_t element_bytes) {
  int64_t elements = 0;
  if (counts.counts.empty()) {
    if (counts.even_count < 0 ||
        __builtin_mul_overflow(blocks.count, counts.even_count, &elements))
      return std::nullopt;
  }
  int64_t packed = 0;
  for (size_t i = 0; i < counts.counts.size(); ++i) {
    const int64_t start = counts.offsets.empty() ? packed : counts.offsets[i];
    int64_t end = 0;
    if (counts.counts[i] < 0 || start < 0 ||
        __builtin_add_overflow(start, counts.counts[i], &end))
      return std::nullopt;
    packed = end;
    if (counts.counts[i] > 0) elements = std::max(elements, end);
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(element_bytes),
                             &bytes) ||
      bytes > kMaxBytes)
    return std::nullopt;
  return static_cast<size_t>(bytes);
}

// Where the output would start if it were in place: the same block at the same
// address. All-to-all has no such place.
std::optional<const std::byte*> InPlaceOutput(const CollectiveCall& call,
                                              const Membership& me) {
  if (call.collective == Collective::kAllToAll ||
      call.collective == Collective::kAllToAllV)
    return std::nullopt;
  const Spec& spec = SpecOf(call.collective);
  const Shape shape{.ranks = me.ranks, .rank = me.rank, .root = call.root};
  const BlockRange input = spec.input(shape);
  const BlockRange output = spec.output(shape);
  const BufferLayout in(input, call.input_counts, 1);
  const BufferLayout out(output, call.output_counts, 1);
  const bool shares_input = output.PositionOf(input.first) >= 0;
  const int64_t shared = shares_input ? input.first : output.first;
  if (!in.Holds(shared) || !out.Holds(shared)) return std::nullopt;
  const Segment whole{.index = 0, .segment_count = INT64_MAX};
  const auto bytes = static_cast<int64_t>(ElementBytes(call.type));
  return call.input +
         (in.Find(shared, whole).offset - out.Find(shared, whole).offset) *
             bytes;
}

absl::Status CheckOverlap(const CollectiveCall& call, const Membership& me,
                          const BufferSizes& bytes) {
  if (bytes.input_bytes == 0 || bytes.output_bytes == 0)
    return absl::OkStatus();
  const auto input = reinterpret_cast<uintptr_t>(call.input);
  const auto output = reinterpret_cast<uintptr_t>(call.output);
  if (input + bytes.input_bytes <= output ||
      output + bytes.output_bytes <= input)
    return absl::OkStatus();
  const auto in_place = InPlaceOutput(call, me);
  if (in_place.has_value() && *in_place == call.output) return absl::OkStatus();
  return Refuse(
      me, Name(call.collective),
      absl::StrCat("send (", bytes.input_bytes, " bytes) and recv (",
                   bytes.output_bytes, " bytes) overlap",
                   in_place.has_value() ? ", and not as in place does"
                                        : "; this call can't be in place",
                   "; use buffers apart"));
}

// Of a buffer that's written: two blocks in one place would make it a matter of
// luck what's there at the end.
absl::Status CheckDisplacements(const CollectiveCall& call,
                                const Membership& me) {
  const auto& [even_count, counts, offsets] = call.output_counts;
  std::vector<size_t> order;  // of the blocks that aren't empty
  for (size_t i = 0; i < offsets.size(); ++i)
    if (counts[i] > 0) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [offsets = offsets](size_t x, size_t y) {
              return offsets[x] < offsets[y];
            });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t before = order[i - 1];
    if (offsets[before] + counts[before] <= offsets[order[i]]) continue;
    return Refuse(
        me, Name(call.collective),
        absl::StrCat("the displacements of recv make the blocks of ranks ",
                     before, " and ", order[i],
                     " overlap; each block needs a place of its own"));
  }
  return absl::OkStatus();
}

absl::Status CheckBuffers(const CollectiveCall& call, const Membership& me) {
  const Spec& spec = SpecOf(call.collective);
  const Shape shape{.ranks = me.ranks, .rank = me.rank, .root = call.root};
  const size_t element_bytes = ElementBytes(call.type);
  const auto input_bytes =
      BytesOf(spec.input(shape), call.input_counts, element_bytes);
  const auto output_bytes =
      BytesOf(spec.output(shape), call.output_counts, element_bytes);
  if (!input_bytes.has_value() || !output_bytes.has_value()) {
    return Refuse(me, Name(call.collective),
                  "the counts don't fit in memory (or are negative)");
  }
  if (*input_bytes > 0 && call.input == nullptr)
    return Refuse(me, Name(call.collective),
                  absl::StrCat("send is null, but ", *input_bytes,
                               " bytes are to be read from it"));
  if (*output_bytes > 0 && call.output == nullptr)
    return Refuse(me, Name(call.collective),
                  absl::StrCat("recv is null, but ", *output_bytes,
                               " bytes are to be written to it"));
  const absl::Status displacements = CheckDisplacements(call, me);
  if (!displacements.ok()) return displacements;
  return CheckOverlap(call, me, {*input_bytes, *output_bytes});
}

}  // namespace

absl::Status CheckCall(const CollectiveCall& call, const Membership& me) {
  const std::string_view name = Name(call.collective);
  if (static_cast<int>(call.collective) >= kCollectives)
    return Refuse(me, name, "no such collective");
  if (call.collective == Collective::kBarrier) return absl::OkStatus();
  const Spec& spec = SpecOf(call.collective);
  if (ElementBytes(call.type) == 0) {
    return Refuse(
        me, name,
        absl::StrCat("unknown data type; the types are 0 to ", kDataTypes - 1));
  }
  if (spec.reduces) {
    const absl::StatusOr<Folder> folder =
        MakeFolder({.type = call.type, .op = call.op, .ranks = me.ranks});
    if (!folder.ok())
      return Refuse(me, name, std::string(folder.status().message()));
  }
  if (spec.rooted && (call.root < 0 || call.root >= me.ranks))
    return Refuse(me, name,
                  absl::StrCat("root ", call.root,
                               " isn't one of the ranks 0..", me.ranks - 1));
  return CheckBuffers(call, me);
}

BufferSizes SizesOf(const CollectiveCall& call, const Membership& me) {
  const Spec& spec = SpecOf(call.collective);
  const Shape shape{.ranks = me.ranks, .rank = me.rank, .root = call.root};
  const size_t element_bytes = ElementBytes(call.type);
  return {
      BytesOf(spec.input(shape), call.input_counts, element_bytes).value_or(0),
      BytesOf(spec.output(shape), call.output_counts, element_bytes)
          .value_or(0)};
}

BufferRule BufferRule::Of(const CollectiveCall& call, const Membership& me) {
  BufferRule rule;
  rule.bytes_ = SizesOf(call, me);
  if (call.collective == Collective::kBarrier) return rule;
  if (const auto output = InPlaceOutput(call, me); output.has_value())
    rule.in_place_ = *output - call.input;
  return rule;
}

absl::Status CallChecker::CheckAnew(const CollectiveCall& call) {
  const absl::Status status = CheckCall(call, me_);
  last_ = {};
  if (!status.ok() || SpecOf(call.collective).uneven ||
      call.collective == Collective::kBarrier)
    return status;
  last_ = ShapeOf(call);
  rule_ = BufferRule::Of(call, me_);
  return status;
}

}  // namespace trnccl
