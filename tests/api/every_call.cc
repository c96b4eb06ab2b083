// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/api/every_call.h"

#include <sched.h>

#include <chrono>
#include <memory>
#include <numeric>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

// A call's buffers. The counts are of the v-variants.
struct Buffers {
  RankOf me;
  size_t count = 0;
  int root = 0;
  std::vector<size_t> counts;
  std::vector<size_t> pairs;  // of all-to-all-v, by peer
  std::vector<uint32_t> in;
  std::vector<uint32_t> out;

  size_t StartOf(int rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
  }
};

using Shared = std::shared_ptr<Buffers>;

Shared MakeBuffers(const RankOf& me, size_t count) {
  auto made = std::make_shared<Buffers>();
  made->me = me;
  made->count = count;
  made->root = me.ranks - 1;
  for (int rank = 0; rank < me.ranks; ++rank) {
    made->counts.push_back(count + static_cast<size_t>(rank));
    made->pairs.push_back(count + static_cast<size_t>(rank + me.rank));
  }
  const size_t elements = (count + 2 * me.ranks) * me.ranks;
  made->in.resize(elements);
  made->out.resize(elements);
  for (size_t i = 0; i < elements; ++i) made->in[i] = ValueOf(me.rank, i);
  return made;
}

uint32_t SumAt(const Buffers& buffers, size_t position) {
  uint32_t sum = 0;
  for (int rank = 0; rank < buffers.me.ranks; ++rank)
    sum += ValueOf(rank, position);
  return sum;
}

// A run of the output, and what each of its elements must be.
struct Run {
  size_t first = 0;
  size_t count = 0;
};
using Expected = std::function<uint32_t(size_t i)>;

bool Equals(Buffers& buffers, const Run& run, const Expected& expected) {
  for (size_t i = 0; i < run.count; ++i) {
    uint32_t& found = buffers.out[run.first + i];
    if (found != expected(i)) return false;
    found = ~found;
  }
  return true;
}

bool IsSum(Buffers& buffers, size_t first, size_t count) {
  return Equals(buffers, {.count = count},
                [&](size_t i) { return SumAt(buffers, first + i); });
}

bool IsGathered(Buffers& buffers) {
  for (int rank = 0; rank < buffers.me.ranks; ++rank) {
    const Run block{rank * buffers.count, buffers.count};
    if (!Equals(buffers, block, [&](size_t i) { return ValueOf(rank, i); }))
      return false;
  }
  return true;
}

void AddReductions(const std::function<Shared()>& make,
                   std::vector<EachCall>* calls) {
  Shared all = make();
  calls->push_back({"all_reduce",
                    [all](trncclComm_t comm, trncclRequest_t* request) {
                      return trncclAllReduce(all->in.data(), all->out.data(),
                                             all->count, trncclUint32,
                                             trncclSum, comm, request);
                    },
                    [all] { return IsSum(*all, 0, all->count); }});
  Shared one = make();
  calls->push_back(
      {"reduce",
       [one](trncclComm_t comm, trncclRequest_t* request) {
         return trncclReduce(one->in.data(), one->out.data(), one->count,
                             trncclUint32, trncclSum, one->root, comm, request);
       },
       [one] {
         return one->me.rank != one->root || IsSum(*one, 0, one->count);
       }});
  Shared part = make();
  calls->push_back({"reduce_scatter",
                    [part](trncclComm_t comm, trncclRequest_t* request) {
                      return trncclReduceScatter(
                          part->in.data(), part->out.data(), part->count,
                          trncclUint32, trncclSum, comm, request);
                    },
                    [part] {
                      return IsSum(*part, part->me.rank * part->count,
                                   part->count);
                    }});
  Shared uneven = make();
  calls->push_back(
      {"reduce_scatter_v",
       [uneven](trncclComm_t comm, trncclRequest_t* request) {
         return trncclReduceScatterV(uneven->in.data(), uneven->out.data(),
                                     uneven->counts.data(), trncclUint32,
                                     trncclSum, comm, request);
       },
       [uneven] {
         const int rank = uneven->me.rank;
         return IsSum(*uneven, uneven->StartOf(rank), uneven->counts[rank]);
       }});
}

void AddGathers(const std::function<Shared()>& make,
                std::vector<EachCall>* calls) {
  Shared all = make();
  calls->push_back({"all_gather",
                    [all](trncclComm_t comm, trncclRequest_t* request) {
                      return trncclAllGather(all->in.data(), all->out.data(),
                                             all->count, trncclUint32, comm,
                                             request);
                    },
                    [all] { return IsGathered(*all); }});
  Shared one = make();
  calls->push_back(
      {"gather",
       [one](trncclComm_t comm, trncclRequest_t* request) {
         return trncclGather(one->in.data(), one->out.data(), one->count,
                             trncclUint32, one->root, comm, request);
       },
       [one] { return one->me.rank != one->root || IsGathered(*one); }});
  Shared uneven = make();
  calls->push_back(
      {"all_gather_v",
       [uneven](trncclComm_t comm, trncclRequest_t* request) {
         return trncclAllGatherV(uneven->in.data(), uneven->out.data(),
                                 uneven->counts.data(), nullptr, trncclUint32,
                                 comm, request);
       },
       [uneven] {
         for (int rank = 0; rank < uneven->me.ranks; ++rank) {
           const Run block{uneven->StartOf(rank), uneven->counts[rank]};
           if (!Equals(*uneven, block,
                       [&](size_t i) { return ValueOf(rank, i); }))
             return false;
         }
         return true;
       }});
}

void AddScatters(const std::function<Shared()>& make,
                 std::vector<EachCall>* calls) {
  Shared all = make();
  calls->push_back({"broadcast",
                    [all](trncclComm_t comm, trncclRequest_t* request) {
                      return trncclBroadcast(all->in.data(), all->out.data(),
                                             all->count, trncclUint32,
                                             all->root, comm, request);
                    },
                    [all] {
                      return Equals(*all, {.count = all->count}, [&](size_t i) {
                        return ValueOf(all->root, i);
                      });
                    }});
  Shared part = make();
  calls->push_back(
      {"scatter",
       [part](trncclComm_t comm, trncclRequest_t* request) {
         return trncclScatter(part->in.data(), part->out.data(), part->count,
                              trncclUint32, part->root, comm, request);
       },
       [part] {
         return Equals(*part, {.count = part->count}, [&](size_t i) {
           return ValueOf(part->root, part->me.rank * part->count + i);
         });
       }});
  calls->push_back({"barrier",
                    [](trncclComm_t comm, trncclRequest_t* request) {
                      return trncclBarrier(comm, request);
                    },
                    [] { return true; }});
}

void AddExchanges(const std::function<Shared()>& make,
                  std::vector<EachCall>* calls) {
  Shared even = make();
  calls->push_back(
      {"all_to_all",
       [even](trncclComm_t comm, trncclRequest_t* request) {
         return trncclAllToAll(even->in.data(), even->out.data(), even->count,
                               trncclUint32, comm, request);
       },
       [even] {
         for (int from = 0; from < even->me.ranks; ++from) {
           const Run block{from * even->count, even->count};
           if (!Equals(*even, block, [&](size_t i) {
                 return ValueOf(from, even->me.rank * even->count + i);
               }))
             return false;
         }
         return true;
       }});
  Shared uneven = make();
  calls->push_back({"all_to_all_v",
                    [uneven](trncclComm_t comm, trncclRequest_t* request) {
                      return trncclAllToAllV(
                          uneven->in.data(), uneven->pairs.data(), nullptr,
                          uneven->out.data(), uneven->pairs.data(), nullptr,
                          trncclUint32, comm, request);
                    },
                    [uneven] {
                      // Rank `from` has blocks of count + from + to for each
                      // `to`.
                      size_t first = 0;
                      const auto me = static_cast<size_t>(uneven->me.rank);
                      for (int from = 0; from < uneven->me.ranks; ++from) {
                        const size_t there =
                            me * (uneven->count + static_cast<size_t>(from)) +
                            me * (me - 1) / 2;
                        const Run block{first, uneven->pairs[from]};
                        if (!Equals(*uneven, block, [&](size_t i) {
                              return ValueOf(from, there + i);
                            }))
                          return false;
                        first += uneven->pairs[from];
                      }
                      return true;
                    }});
}

}  // namespace

uint32_t ValueOf(int rank, size_t position) {
  uint64_t value = static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15u + position;
  value ^= value >> 31;
  value *= 0xbf58476d1ce4e5b9u;
  return static_cast<uint32_t>(value >> 29);
}

std::vector<EachCall> EveryCollective(const RankOf& me, size_t count) {
  const auto make = [&] { return MakeBuffers(me, count); };
  std::vector<EachCall> calls;
  AddReductions(make, &calls);
  AddGathers(make, &calls);
  AddScatters(make, &calls);
  AddExchanges(make, &calls);
  return calls;
}

trncclResult_t ResultByItself(trncclRequest_t request) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int done = 0;
  trncclResult_t result = trncclSuccess;
  while (done == 0) {
    result = trncclRequestTest(request, &done);
    if (done == 0 && std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the call didn't complete by itself";
      break;
    }
    sched_yield();
  }
  EXPECT_EQ(trncclRequestFree(request), trncclSuccess);
  return result;
}

}  // namespace trnccl
