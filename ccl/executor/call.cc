// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/executor/call.h"

#include "absl/strings/str_cat.h"
#include "algorithms/spec.h"

namespace trnccl {
namespace {

// Counts of the v-variants are compared by a hash, since an envelope has room
// for one number.
uint64_t HashCounts(std::span<const int64_t> counts) {
  uint64_t hash = 14695981039346656037u;
  for (const int64_t count : counts) {
    hash ^= static_cast<uint64_t>(count);
    hash *= 1099511628211u;
    hash ^= hash >> 29;
  }
  return hash;
}

uint64_t ComparedCount(const CollectiveCall& call) {
  switch (call.collective) {
    case Collective::kAllGatherV:
      return HashCounts(call.output_counts.counts);
    case Collective::kReduceScatterV:
      return HashCounts(call.input_counts.counts);
    case Collective::kAllToAllV:
      return 0;
    default:
      return static_cast<uint64_t>(call.output_counts.even_count);
  }
}

}  // namespace

Envelope FingerprintOf(const CollectiveCall& call, const CallTag& tag) {
  const bool reduces = SpecOf(call.collective).reduces;
  const CallShape shape = {.collective = call.collective,
                           .type = call.type,
                           .op = reduces ? call.op : ReduceOp::kSum,
                           .root = call.root};
  return {{static_cast<uint64_t>(tag.cookie) << 32 | tag.sequence, shape.Word(),
           ComparedCount(call)}};
}

std::string DescribeCall(const Envelope& envelope) {
  const uint64_t what = envelope.words[1];
  const auto collective = static_cast<Collective>(what & 0xff);
  const auto type = static_cast<DataType>(what >> 8 & 0xff);
  const auto op = static_cast<ReduceOp>(what >> 16 & 0xff);
  const auto text = [](std::string_view name) { return std::string(name); };
  if (static_cast<int>(collective) >= kCollectives) return "an unknown call";
  const Spec& spec = SpecOf(collective);
  std::string line = absl::StrCat(text(Name(collective)), " #",
                                  envelope.words[0] & 0xffffffff);
  if (collective == Collective::kBarrier) return line;
  absl::StrAppend(&line, " (", text(Name(type)));
  if (spec.reduces) absl::StrAppend(&line, " ", text(Name(op)));
  if (collective == Collective::kAllGatherV ||
      collective == Collective::kReduceScatterV) {
    absl::StrAppend(&line, ", counts with hash ", absl::Hex(envelope.words[2]));
  } else if (collective != Collective::kAllToAllV) {
    absl::StrAppend(&line, ", count ", envelope.words[2]);
  }
  if (spec.rooted) absl::StrAppend(&line, ", root ", what >> 32);
  return absl::StrCat(line, ")");
}

namespace {

// With what all-to-all-v compares for each pair.
std::string DescribeCallOfPair(const Envelope& envelope) {
  const auto collective = static_cast<Collective>(envelope.words[1] & 0xff);
  if (collective != Collective::kAllToAllV) return DescribeCall(envelope);
  return absl::StrCat(DescribeCall(envelope), " with ", envelope.words[2],
                      " elements from the one to the other");
}

}  // namespace

absl::Status MismatchError(const RankCall& mine, const RankCall& theirs) {
  const uint64_t cookie = mine.envelope.words[0] >> 32;
  if (theirs.envelope.words[0] >> 32 != cookie) {
    return absl::InternalError(absl::StrCat(
        "rank ", mine.rank, ": ", DescribeCall(mine.envelope),
        ": a message from rank ", theirs.rank, " isn't of this communicator"));
  }
  return absl::UnavailableError(absl::StrCat(
      "ranks disagree: rank ", mine.rank, " is in ",
      DescribeCallOfPair(mine.envelope), ", rank ", theirs.rank, " in ",
      DescribeCallOfPair(theirs.envelope),
      "; all ranks must make the same calls, with arguments that fit, in the "
      "same order"));
}

absl::Status UnexpectedMessage(const RankCall& mine, const RankCall& theirs,
                               const MessageSize& size) {
  if (theirs.envelope != mine.envelope) return MismatchError(mine, theirs);
  return absl::InternalError(absl::StrCat(
      "rank ", mine.rank, ": ", DescribeCall(mine.envelope), ": message of ",
      size.bytes, " bytes from rank ", theirs.rank, " where ",
      size.expected_bytes, " were due; do all ranks run the same build?"));
}

}  // namespace trnccl
