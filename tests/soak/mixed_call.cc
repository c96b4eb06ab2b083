// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/soak/mixed_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "algorithms/spec.h"
#include "ccl/base/check.h"
#include "ccl/kernels/fold.h"
#include "tests/collectives/oracle.h"

namespace trnccl {
namespace {

// Mostly those that loops repeat, for which plans and programs are kept.
size_t DrawCount(MixedDraw* draw) {
  constexpr std::array<size_t, 8> kUsual = {1, 2, 3, 4, 8, 16, 17, 32};
  const size_t kind = draw->Below(100);
  if (kind < 70) return kUsual[draw->Below(kUsual.size())];
  if (kind < 90) return draw->Below(130);
  return draw->Below(kind < 97 ? 600 : 2500);
}

void DrawCounts(int ranks, MixedDraw* draw, MixedCall* call) {
  const bool by_pair = call->collective == Collective::kAllToAllV;
  call->counts.resize(static_cast<size_t>(by_pair ? ranks * ranks : ranks));
  for (size_t& count : call->counts)
    count = draw->Percent(15) ? 0 : DrawCount(draw);
}

MixedCall DrawMessages(int ranks, MixedDraw* draw) {
  MixedCall call{.kind = MixedCall::kMessages,
                 .type = DataType::kUint8,
                 .count = draw->Percent(15) ? 8000 + draw->Below(20'000)
                                            : draw->Below(600)};
  call.shift = static_cast<int>(draw->Below(static_cast<size_t>(ranks)));
  call.any_source = call.shift != 0 && draw->Percent(30);
  return call;
}

uint64_t Mixed(uint64_t value) {
  value *= 0x9e3779b97f4a7c15;
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93;
  return value ^ value >> 29;
}

// Sums of four of these numbers are exact in every type.
bool IsOfSmallNumbers(const MixedCall& call) {
  if (call.kind == MixedCall::kMessages || !SpecOf(call.collective).reduces)
    return false;
  return call.type >= DataType::kFloat16 && call.type != DataType::kBool;
}

std::vector<SourcePiece> OneOfEach(const Membership& me,
                                   const SourcePiece& piece) {
  std::vector<SourcePiece> pieces(static_cast<size_t>(me.ranks), piece);
  for (int rank = 0; rank < me.ranks; ++rank) pieces[rank].source = rank;
  return pieces;
}

size_t Sum(const std::vector<size_t>& counts, size_t begin, size_t end) {
  return std::accumulate(counts.begin() + static_cast<ptrdiff_t>(begin),
                         counts.begin() + static_cast<ptrdiff_t>(end),
                         size_t{0});
}

RankShare UnevenShare(const MixedCall& call, const Membership& me) {
  const std::vector<size_t>& counts = call.counts;
  const auto rank = static_cast<size_t>(me.rank);
  const auto ranks = static_cast<size_t>(me.ranks);
  if (call.collective == Collective::kReduceScatterV) {
    return {
        .input_count = Sum(counts, 0, ranks),
        .output = {{SourcePiece::kAll, Sum(counts, 0, rank), counts[rank]}}};
  }
  RankShare share;
  share.output = OneOfEach(me, {});
  if (call.collective == Collective::kAllGatherV) {
    share.input_count = counts[rank];
    for (size_t r = 0; r < ranks; ++r) share.output[r].count = counts[r];
    return share;
  }
  share.input_count = Sum(counts, rank * ranks, (rank + 1) * ranks);
  for (size_t r = 0; r < ranks; ++r) {
    share.output[r].first = Sum(counts, r * ranks, r * ranks + rank);
    share.output[r].count = counts[r * ranks + rank];
  }
  return share;
}

}  // namespace

MixedCall DrawCall(int ranks, MixedDraw* draw) {
  if (draw->Percent(15)) return DrawMessages(ranks, draw);
  MixedCall call{.collective =
                     static_cast<Collective>(draw->Below(kCollectives))};
  if (call.collective == Collective::kBarrier) return call;
  const Spec& spec = SpecOf(call.collective);
  do {
    call.type = static_cast<DataType>(draw->Below(kDataTypes));
    if (spec.reduces) call.op = static_cast<ReduceOp>(draw->Below(kReduceOps));
  } while (call.op == ReduceOp::kPremulSum ||
           (spec.reduces && !IsSupported(call.type, call.op)));
  if (spec.rooted)
    call.root = static_cast<int>(draw->Below(static_cast<size_t>(ranks)));
  call.count = DrawCount(draw);
  if (spec.uneven) DrawCounts(ranks, draw, &call);
  const bool may_be_in_place = call.collective == Collective::kAllReduce ||
                               call.collective == Collective::kBroadcast ||
                               call.collective == Collective::kAllGather ||
                               call.collective == Collective::kReduceScatter;
  call.in_place = may_be_in_place && draw->Percent(30);
  return call;
}

size_t RankShare::output_count() const {
  size_t count = 0;
  for (const SourcePiece& piece : output) count += piece.count;
  return count;
}

RankShare ShareOf(const MixedCall& call, const Membership& me) {
  const size_t count = call.count;
  const size_t all = count * static_cast<size_t>(me.ranks);
  const size_t mine = count * static_cast<size_t>(me.rank);
  const bool is_root = me.rank == call.root;
  if (call.kind == MixedCall::kMessages) {
    const int source = (me.rank + me.ranks - call.shift) % me.ranks;
    return {.input_count = count, .output = {{source, 0, count}}};
  }
  switch (call.collective) {
    case Collective::kAllReduce:
      return {.input_count = count, .output = {{SourcePiece::kAll, 0, count}}};
    case Collective::kBroadcast:
      return {.input_count = is_root ? count : 0,
              .output = {{call.root, 0, count}}};
    case Collective::kReduce:
      if (!is_root) return {.input_count = count};
      return {.input_count = count, .output = {{SourcePiece::kAll, 0, count}}};
    case Collective::kAllGather:
      return {.input_count = count,
              .output = OneOfEach(me, {.count = count}),
              .input_at = mine};
    case Collective::kReduceScatter:
      return {.input_count = all,
              .output = {{SourcePiece::kAll, mine, count}},
              .output_at = mine};
    case Collective::kAllToAll:
      return {.input_count = all,
              .output = OneOfEach(me, {.first = mine, .count = count})};
    case Collective::kGather:
      if (!is_root) return {.input_count = count};
      return {.input_count = count, .output = OneOfEach(me, {.count = count})};
    case Collective::kScatter:
      return {.input_count = is_root ? all : 0,
              .output = {{call.root, mine, count}}};
    case Collective::kBarrier:
      return {};
    default:
      return UnevenShare(call, me);
  }
}

CallData::CallData(int ranks)
    : ranks_(static_cast<size_t>(ranks)), inputs_(ranks_) {
  for (int type = 0; type < kDataTypes; ++type) {
    if (type == static_cast<int>(DataType::kBool)) continue;
    for (size_t value = 0; value < 3; ++value) {
      const Bytes element =
          ElementOf(static_cast<DataType>(type), static_cast<double>(value));
      std::ranges::copy(element,
                        numbers_[static_cast<size_t>(type)][value].begin());
    }
  }
}

void CallData::Fill(const MixedCall& call, const SourcePiece& piece,
                    std::byte* into) {
  const size_t bytes = ElementBytes(call.type);
  const bool small = IsOfSmallNumbers(call);
  const auto& numbers = numbers_[static_cast<size_t>(call.type)];
  const uint64_t name =
      Mixed(call.number * 64 + static_cast<uint64_t>(piece.source));
  for (size_t i = 0; i < piece.count; ++i) {
    const uint64_t hash = Mixed(name + piece.first + i);
    const uint64_t words[] = {hash, ~hash * 3};
    const void* element =
        small ? static_cast<const void*>(numbers[hash % numbers.size()].data())
              : words;
    std::memcpy(into + i * bytes, element, bytes);
  }
}

void CallData::Fold(const MixedCall& call, const SourcePiece& piece,
                    std::byte* into) {
  const absl::StatusOr<Folder> folder =
      MakeFolder({.type = call.type,
                  .op = call.op,
                  .ranks = static_cast<int64_t>(ranks_)});
  TRNCCL_CHECK(folder.ok());
  std::vector<FoldOperand> operands;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    inputs_[rank].resize(piece.count * ElementBytes(call.type));
    Fill(call, {static_cast<int>(rank), piece.first, piece.count},
         inputs_[rank].data());
    operands.push_back({.data = inputs_[rank].data(), .raw = true});
  }
  void* const results[] = {into};
  folder->Fold({.operands = operands,
                .results = results,
                .count = piece.count,
                .finish = true});
}

void CallData::FillInput(const MixedCall& call, int rank, std::byte* input,
                         size_t count) {
  Fill(call, {rank, 0, count}, input);
}

bool CallData::IsRight(const MixedCall& call, const RankShare& share,
                       const std::byte* output) {
  for (const SourcePiece& piece : share.output) {
    const size_t bytes = piece.count * ElementBytes(call.type);
    if (bytes == 0) continue;
    expected_.resize(bytes);
    if (piece.source == SourcePiece::kAll) {
      Fold(call, piece, expected_.data());
    } else {
      Fill(call, piece, expected_.data());
    }
    if (!std::equal(expected_.begin(), expected_.end(), output)) return false;
    output += bytes;
  }
  return true;
}

}  // namespace trnccl
