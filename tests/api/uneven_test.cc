// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The v-variants: blocks with counts of their own, anywhere in the buffers.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "algorithms/catalog.h"
#include "gtest/gtest.h"
#include "tests/collectives/guarded_buffer.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

using Memory = GuardedBuffer::Memory;

constexpr size_t kElementBytes = 4;
constexpr int64_t kSegment = 64;

enum class Order { kPacked, kBackwardsWithGaps };

// Where blocks of these counts lie, in elements.
struct Blocks {
  std::vector<size_t> counts;
  std::vector<size_t> starts;
  size_t end = 0;
};

Blocks Place(std::vector<size_t> counts, Order order) {
  Blocks blocks{.counts = std::move(counts)};
  const size_t ranks = blocks.counts.size();
  blocks.starts.resize(ranks);
  for (size_t i = 0; i < ranks; ++i) {
    const bool packed = order == Order::kPacked;
    const size_t rank = packed ? i : ranks - 1 - i;
    if (!packed) blocks.end += 1 + rank;
    blocks.starts[rank] = blocks.end;
    blocks.end += blocks.counts[rank];
  }
  return blocks;
}

std::vector<std::vector<size_t>> CountsFor(int ranks) {
  std::mt19937 random(20);
  const size_t n = static_cast<size_t>(ranks);
  std::vector<std::vector<size_t>> all(4, std::vector<size_t>(n, 0));
  all[1][n / 2] = 5003;  // one huge, the others none
  constexpr size_t kPrimes[] = {2, 3, 5, 7, 127, 131, 257, 61};
  for (size_t i = 0; i < n; ++i) {
    all[2][i] = kPrimes[i % std::size(kPrimes)];
    all[3][i] = i % 3 == 1 ? 0 : random() % 300;
  }
  return all;
}

std::vector<int64_t> Signed(const std::vector<size_t>& counts) {
  return {counts.begin(), counts.end()};
}

size_t Sum(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

void Copy(const std::byte* from, size_t elements, std::byte* to) {
  if (elements > 0) std::memcpy(to, from, elements * kElementBytes);
}

// What a buffer of blocks must hold: canaries between the blocks.
Bytes Image(const Blocks& blocks, const Bytes& packed) {
  Bytes image(blocks.end * kElementBytes, kCanary);
  size_t first = 0;
  for (size_t i = 0; i < blocks.counts.size(); ++i) {
    Copy(packed.data() + first * kElementBytes, blocks.counts[i],
         image.data() + blocks.starts[i] * kElementBytes);
    first += blocks.counts[i];
  }
  return image;
}

bool Same(GuardedBuffer& buffer, const Bytes& expected) {
  return buffer.intact() &&
         std::equal(expected.begin(), expected.end(), buffer.data());
}

void GatherUneven(const Case& one, Order order, trncclComm_t comm, int rank) {
  const Blocks blocks = Place({one.counts.begin(), one.counts.end()}, order);
  const size_t* starts =
      order == Order::kPacked ? nullptr : blocks.starts.data();
  const std::vector<Bytes> inputs = InputsOf(one);
  const Bytes expected = Image(blocks, ExpectedOutputs(one, inputs)[rank]);
  const Bytes& input = inputs[rank];
  GuardedBuffer in(input.size(), 1, Memory::kHeap);
  GuardedBuffer out(expected.size(), 3, Memory::kHeap);
  Copy(input.data(), blocks.counts[rank], in.data());
  ASSERT_CALL_OK(trncclAllGatherV(in.data(), out.data(), blocks.counts.data(),
                                  starts, trncclFloat32, comm, nullptr));
  ASSERT_TRUE(Same(out, expected));
  GuardedBuffer both(expected.size(), 5, Memory::kShared);
  std::byte* mine = both.data() + blocks.starts[rank] * kElementBytes;
  Copy(input.data(), blocks.counts[rank], mine);
  ASSERT_CALL_OK(trncclAllGatherV(mine, both.data(), blocks.counts.data(),
                                  starts, trncclFloat32, comm, nullptr));
  ASSERT_TRUE(Same(both, expected)) << "in place";
}

void ReduceScatterUneven(const Case& one, trncclComm_t comm, int rank) {
  const Blocks blocks =
      Place({one.counts.begin(), one.counts.end()}, Order::kPacked);
  const std::vector<Bytes> inputs = InputsOf(one);
  const Bytes expected = ExpectedOutputs(one, inputs)[rank];
  GuardedBuffer in(inputs[rank].size(), 1, Memory::kHeap);
  GuardedBuffer out(expected.size(), 3, Memory::kHeap);
  Copy(inputs[rank].data(), blocks.end, in.data());
  ASSERT_CALL_OK(trncclReduceScatterV(in.data(), out.data(),
                                      blocks.counts.data(), trncclFloat32,
                                      trncclSum, comm, nullptr));
  ASSERT_TRUE(Same(out, expected));
  ASSERT_TRUE(Same(in, inputs[rank])) << "the input was changed";
  GuardedBuffer both(inputs[rank].size(), 5, Memory::kShared);
  Copy(inputs[rank].data(), blocks.end, both.data());
  std::byte* mine = both.data() + blocks.starts[rank] * kElementBytes;
  ASSERT_CALL_OK(trncclReduceScatterV(both.data(), mine, blocks.counts.data(),
                                      trncclFloat32, trncclSum, comm, nullptr));
  ASSERT_TRUE(both.intact());
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), mine)) << "in place";
}

class Uneven : public testing::TestWithParam<int> {};

void RunUneven(Collective even, int ranks) {
  for (const Algorithm& row : Catalog()) {
    if (row.collective != even || !row.proofs.uneven ||
        !row.legal({.ranks = ranks}))
      continue;
    const std::string setting =
        absl::StrCat("TRNCCL_ALGORITHM=", std::string(Name(even)), ":",
                     std::string(row.name));
    RunRanks(
        {.ranks = ranks, .settings = {setting, "TRNCCL_SEGMENT_BYTES=256"}},
        [&](trncclComm_t comm, int rank) {
          for (const std::vector<size_t>& counts : CountsFor(ranks)) {
            const Case one{.algorithm = &row,
                           .ranks = ranks,
                           .counts = Signed(counts),
                           .segment_count = kSegment};
            SCOPED_TRACE(absl::StrCat(Describe(one), " counts ", Sum(counts),
                                      " rank ", rank));
            if (even == Collective::kReduceScatter) {
              ReduceScatterUneven(one, comm, rank);
              continue;
            }
            GatherUneven(one, Order::kPacked, comm, rank);
            GatherUneven(one, Order::kBackwardsWithGaps, comm, rank);
          }
        });
  }
}

TEST_P(Uneven, AllGatherVIsRightByEveryAlgorithm) {
  RunUneven(Collective::kAllGather, GetParam());
}

TEST_P(Uneven, ReduceScatterVIsRightByEveryAlgorithm) {
  RunUneven(Collective::kReduceScatter, GetParam());
}

// pairs[s][d]: what rank s sends to rank d. Each rank knows only its own.
using Pairs = std::vector<std::vector<size_t>>;

Pairs RandomPairs(int ranks, uint32_t seed) {
  std::mt19937 random(seed);
  Pairs pairs(ranks, std::vector<size_t>(ranks));
  for (auto& row : pairs)
    for (size_t& count : row) count = random() % 3 == 0 ? 0 : random() % 400;
  // One that needs many segments more than the others.
  pairs[random() % ranks][random() % ranks] = 7919;
  return pairs;
}

Bytes PairData(int from, int to, size_t count) {
  Bytes data(count * kElementBytes);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>(i * 7 + (i >> 8) * 13 + from * 31 + to);
  return data;
}

struct Exchange {
  Blocks sent;
  Blocks received;
  Bytes input;
  Bytes expected;
};

Exchange ExchangeOf(const Pairs& pairs, Order order, int rank) {
  std::vector<size_t> received;
  for (const auto& row : pairs) received.push_back(row[rank]);
  Exchange exchange{.sent = Place(pairs[rank], order),
                    .received = Place(received, order)};
  Bytes out;
  Bytes in;
  for (int peer = 0; peer < static_cast<int>(pairs.size()); ++peer) {
    const Bytes to = PairData(rank, peer, pairs[rank][peer]);
    in.insert(in.end(), to.begin(), to.end());
    const Bytes from = PairData(peer, rank, pairs[peer][rank]);
    out.insert(out.end(), from.begin(), from.end());
  }
  exchange.input = Image(exchange.sent, in);
  exchange.expected = Image(exchange.received, out);
  return exchange;
}

TEST_P(Uneven, AllToAllVIsRightWithoutKnowingOthersCounts) {
  const int ranks = GetParam();
  for (const char* setting : {"TRNCCL_ALGORITHM=all_to_all:direct",
                              "TRNCCL_ALGORITHM=all_to_all:"
                              "pairwise",
                              "TRNCCL_SEGMENT_BYTES=0"}) {
    for (const char* segment :
         {"TRNCCL_SEGMENT_BYTES=256", "TRNCCL_SEGMENT_BYTES=0"}) {
      RunRanks(
          {.ranks = ranks,
           .settings = {setting, segment, "TRNCCL_ARENA_BYTES=64K"}},
          [&](trncclComm_t comm, int rank) {
            for (uint32_t seed = 0; seed < 6; ++seed) {
              const Order order =
                  seed % 2 == 0 ? Order::kPacked : Order::kBackwardsWithGaps;
              SCOPED_TRACE(absl::StrCat(setting, " ", segment, " seed ", seed,
                                        " rank ", rank));
              const Exchange exchange =
                  ExchangeOf(RandomPairs(ranks, seed), order, rank);
              GuardedBuffer out(exchange.expected.size(), 3, Memory::kHeap);
              const bool packed = order == Order::kPacked;
              ASSERT_CALL_OK(trncclAllToAllV(
                  exchange.input.data(), exchange.sent.counts.data(),
                  packed ? nullptr : exchange.sent.starts.data(), out.data(),
                  exchange.received.counts.data(),
                  packed ? nullptr : exchange.received.starts.data(),
                  trncclFloat32, comm, nullptr));
              ASSERT_TRUE(Same(out, exchange.expected));
            }
          });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Uneven, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace trnccl
