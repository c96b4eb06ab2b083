// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Point to point by the public interface.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

// Requests of one batch: waits for all and frees them.
class Requests {
 public:
  trncclRequest_t* Add() {
    requests_.push_back(std::make_unique<trncclRequest_t>(nullptr));
    return requests_.back().get();
  }
  void WaitAll() {
    for (const auto& request : requests_) {
      ASSERT_CALL_OK(trncclRequestWait(*request, TRNCCL_WAIT_FOREVER));
      ASSERT_CALL_OK(trncclRequestFree(*request));
    }
    requests_.clear();
  }

 private:
  std::vector<std::unique_ptr<trncclRequest_t>> requests_;
};

TEST(Messages, MatchByTagInAnyOrder) {
  constexpr int kTags = 50;
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    std::vector<int> tags(kTags);
    for (int i = 0; i < kTags; ++i) tags[i] = i;
    std::mt19937 random(static_cast<uint32_t>(rank) + 1);
    std::shuffle(tags.begin(), tags.end(), random);
    std::vector<uint32_t> values(kTags);
    Requests requests;
    for (const int tag : tags) {
      if (rank == 0) {
        values[tag] = ValueOf(0, tag);
        ASSERT_CALL_OK(trncclSend(&values[tag], 1, trncclUint32, 1, tag, comm,
                                  requests.Add()));
      } else {
        ASSERT_CALL_OK(trncclRecv(&values[tag], 1, trncclUint32, 0, tag,
                                  nullptr, comm, requests.Add()));
      }
    }
    requests.WaitAll();
    for (int tag = 0; tag < kTags; ++tag)
      EXPECT_EQ(values[tag], ValueOf(0, tag));
  });
}

TEST(Messages, OfOnePairAndTagKeepTheirOrder) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    for (uint32_t i = 0; i < 300; ++i) {
      // Short and long ones, which travel differently.
      std::vector<uint32_t> data(i % 7 == 0 ? 5000 : 3, rank == 0 ? i : 0);
      if (rank == 0) {
        ASSERT_CALL_OK(trncclSend(data.data(), data.size(), trncclUint32, 1, 4,
                                  comm, nullptr));
      } else {
        ASSERT_CALL_OK(trncclRecv(data.data(), data.size(), trncclUint32, 0, 4,
                                  nullptr, comm, nullptr));
        ASSERT_EQ(data.back(), i);
      }
    }
  });
}

TEST(Messages, FromAnySourceWithAnyTagTellWhence) {
  constexpr int kRanks = 4;
  RunRanks({.ranks = kRanks}, [](trncclComm_t comm, int rank) {
    if (rank != 0) {
      std::vector<uint32_t> data(static_cast<size_t>(rank), ValueOf(rank, 0));
      ASSERT_CALL_OK(trncclSend(data.data(), data.size(), trncclUint32, 0,
                                100 + rank, comm, nullptr));
      return;
    }
    std::vector<bool> seen(kRanks, false);
    for (int i = 1; i < kRanks; ++i) {
      std::vector<uint32_t> data(kRanks);
      trncclStatus_t status;
      ASSERT_CALL_OK(trncclRecv(data.data(), data.size(), trncclUint32,
                                TRNCCL_ANY_SOURCE, TRNCCL_ANY_TAG, &status,
                                comm, nullptr));
      ASSERT_TRUE(status.source > 0 && status.source < kRanks);
      EXPECT_FALSE(seen[status.source]);
      seen[status.source] = true;
      EXPECT_EQ(status.tag, 100 + status.source);
      EXPECT_EQ(status.count, static_cast<size_t>(status.source));
      EXPECT_EQ(data[0], ValueOf(status.source, 0));
    }
  });
}

// Both sides hear of it, and everything else goes on.
TEST(Messages, TooLongOrOfAnotherTypeAreErrorsOfBothSidesAlone) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    for (const size_t count : {5, 100'000}) {
      for (const trncclDataType_t type : {trncclUint32, trncclFloat32}) {
        const bool fits = type != trncclUint32;
        std::vector<uint32_t> data(count, 1);
        if (rank == 0) {
          // A short send may be complete before it's known to be refused.
          const trncclResult_t sent =
              trncclSend(data.data(), count, trncclUint32, 1, 0, comm, nullptr);
          EXPECT_TRUE(sent == trncclInvalidArgument ||
                      (count == 5 && sent == trncclSuccess));
        } else {
          std::vector<uint32_t> room(count, 9);
          EXPECT_EQ(trncclRecv(room.data(), fits ? count : count - 1, type, 0,
                               0, nullptr, comm, nullptr),
                    trncclInvalidArgument);
          EXPECT_NE(std::string(trncclGetLastError(nullptr)).find("rank 0"),
                    std::string::npos);
          EXPECT_EQ(room, std::vector<uint32_t>(count, 9));
        }
        ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
      }
    }
  });
}

TEST(Messages, MayGoToOneself) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    for (const size_t count : {0, 1, 5000, 300'000}) {
      std::vector<uint32_t> sent(count, ValueOf(rank, count));
      std::vector<uint32_t> received(count);
      for (const bool send_first : {true, false}) {
        Requests requests;
        if (send_first) {
          ASSERT_CALL_OK(trncclSend(sent.data(), count, trncclUint32, rank, 1,
                                    comm, requests.Add()));
        }
        ASSERT_CALL_OK(trncclRecv(received.data(), count, trncclUint32, rank, 1,
                                  nullptr, comm, requests.Add()));
        if (!send_first) {
          ASSERT_CALL_OK(trncclSend(sent.data(), count, trncclUint32, rank, 1,
                                    comm, requests.Add()));
        }
        requests.WaitAll();
        ASSERT_EQ(received, sent);
      }
    }
  });
}

// Memory of either kind, filled with what only this rank has.
class Memory {
 public:
  enum class Kind { kHeap, kMapped };
  Memory(Kind kind, size_t bytes) : kind_(kind), heap_(0) {
    if (kind == Kind::kHeap) {
      heap_.resize(bytes);
      data_ = heap_.data();
      return;
    }
    void* pointer = nullptr;
    EXPECT_CALL_OK(trncclMemAlloc(&pointer, std::max<size_t>(1, bytes)));
    data_ = static_cast<std::byte*>(pointer);
  }
  ~Memory() {
    if (kind_ == Kind::kHeap) return;
    EXPECT_CALL_OK(trncclMemFree(data_));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() { return data_; }

 private:
  Kind kind_;
  std::vector<std::byte> heap_;
  std::byte* data_ = nullptr;
};

// Cheap to fill and to check, and different everywhere.
void Fill(std::byte* data, size_t bytes, int rank) {
  size_t at = 0;
  for (; at + 4 <= bytes; at += 4) {
    const uint32_t value =
        static_cast<uint32_t>(at) * 2654435761u + static_cast<uint32_t>(rank);
    std::memcpy(data + at, &value, 4);
  }
  for (; at < bytes; ++at) data[at] = static_cast<std::byte>(rank + 1);
}

void Exchange(size_t bytes, Memory::Kind kind, trncclComm_t comm, int rank) {
  Memory sent(kind, bytes);
  Memory received(kind, bytes);
  std::vector<std::byte> expected(bytes);
  Fill(sent.data(), bytes, rank);
  Fill(expected.data(), bytes, 1 - rank);
  trncclStatus_t status;
  Requests requests;
  ASSERT_CALL_OK(trncclSend(sent.data(), bytes, trncclUint8, 1 - rank, 0, comm,
                            requests.Add()));
  ASSERT_CALL_OK(trncclRecv(received.data(), bytes, trncclUint8, 1 - rank, 0,
                            &status, comm, requests.Add()));
  requests.WaitAll();
  EXPECT_EQ(status.count, bytes);
  ASSERT_TRUE(bytes == 0 ||
              std::memcmp(received.data(), expected.data(), bytes) == 0)
      << bytes;
}

TEST(Messages, OfEveryLengthArriveWhole) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    for (const Memory::Kind kind :
         {Memory::Kind::kHeap, Memory::Kind::kMapped}) {
      for (const size_t bytes :
           {0, 1, 8, 31, 32, 33, 64, 4096, 8191, 8192, 8193, 100'003, 1 << 20})
        Exchange(bytes, kind, comm, rank);
    }
  });
}

TEST(Messages, Of64MiBArriveWhole) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    for (const Memory::Kind kind : {Memory::Kind::kHeap, Memory::Kind::kMapped})
      Exchange(size_t{64} << 20, kind, comm, rank);
  });
}

// A batch as the very first thing on a communicator: a ring, then ripples of
// growing distance, then the odd ranks alone.
TEST(Messages, PatternsWorkAsAGroupsFirstCalls) {
  for (const int ranks : {2, 3, 4, 5}) {
    for (int distance = 1; distance < ranks; ++distance) {
      RunRanks({.ranks = ranks}, [&](trncclComm_t comm, int rank) {
        const uint32_t sent = ValueOf(rank, distance);
        uint32_t received = 0;
        const int from = (rank + ranks - distance) % ranks;
        ASSERT_CALL_OK(trncclGroupStart());
        ASSERT_CALL_OK(trncclSend(&sent, 1, trncclUint32,
                                  (rank + distance) % ranks, 0, comm, nullptr));
        ASSERT_CALL_OK(trncclRecv(&received, 1, trncclUint32, from, 0, nullptr,
                                  comm, nullptr));
        ASSERT_CALL_OK(trncclGroupEnd());
        EXPECT_EQ(received, ValueOf(from, distance));
      });
    }
  }
}

TEST(Messages, AmongASubsetNeedNoOtherRank) {
  RunRanks({.ranks = 4}, [](trncclComm_t comm, int rank) {
    if (rank % 2 == 0) return;
    const uint32_t sent = ValueOf(rank, 3);
    uint32_t received = 0;
    ASSERT_CALL_OK(trncclGroupStart());
    ASSERT_CALL_OK(
        trncclSend(&sent, 1, trncclUint32, 4 - rank, 0, comm, nullptr));
    ASSERT_CALL_OK(trncclRecv(&received, 1, trncclUint32, 4 - rank, 0, nullptr,
                              comm, nullptr));
    ASSERT_CALL_OK(trncclGroupEnd());
    EXPECT_EQ(received, ValueOf(4 - rank, 3));
  });
}

struct Message {
  int from = 0;
  int to = 0;
  size_t count = 0;
};

std::vector<Message> RandomBatch(int ranks, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Message> batch(1000);
  for (Message& message : batch) {
    message = {.from = static_cast<int>(random() % ranks),
               .to = static_cast<int>(random() % ranks),
               .count = random() % 20 == 0 ? 4000 : random() % 20};
  }
  return batch;
}

// With receives that nobody serves until the end: they hold nothing up.
TEST(Messages, AThousandInRandomPairsComplete) {
  constexpr int kRanks = 4;
  for (const uint32_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    RunRanks({.ranks = kRanks}, [seed](trncclComm_t comm, int rank) {
      const std::vector<Message> batch = RandomBatch(kRanks, seed);
      std::vector<std::vector<uint32_t>> data(batch.size());
      Requests requests;
      uint32_t extra = 0;
      trncclRequest_t unserved = nullptr;
      ASSERT_CALL_OK(trncclRecv(&extra, 1, trncclUint32, (rank + 1) % kRanks,
                                5000, nullptr, comm, &unserved));
      ASSERT_CALL_OK(trncclGroupStart());
      std::vector<std::vector<uint32_t>> received(batch.size());
      for (size_t i = 0; i < batch.size(); ++i) {
        const Message& message = batch[i];
        const auto tag = static_cast<int64_t>(i % 11);
        if (message.from == rank) {
          data[i].assign(message.count, ValueOf(rank, i));
          ASSERT_CALL_OK(trncclSend(data[i].data(), message.count, trncclUint32,
                                    message.to, tag, comm, requests.Add()));
        }
        if (message.to == rank) {
          received[i].resize(message.count);
          ASSERT_CALL_OK(trncclRecv(received[i].data(), message.count,
                                    trncclUint32, message.from, tag, nullptr,
                                    comm, requests.Add()));
        }
      }
      ASSERT_CALL_OK(trncclGroupEnd());
      requests.WaitAll();
      for (size_t i = 0; i < batch.size(); ++i) {
        if (batch[i].to != rank) continue;
        ASSERT_EQ(received[i], std::vector<uint32_t>(
                                   batch[i].count, ValueOf(batch[i].from, i)));
      }
      int done = 1;
      EXPECT_CALL_OK(trncclRequestTest(unserved, &done));
      EXPECT_EQ(done, 0);
      ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
      const uint32_t last = 1;
      ASSERT_CALL_OK(trncclSend(&last, 1, trncclUint32,
                                (rank + kRanks - 1) % kRanks, 5000, comm,
                                nullptr));
      EXPECT_CALL_OK(ResultByItself(unserved));
      EXPECT_EQ(extra, 1U);
    });
  }
}

// What was sent is there even if the sender has gone before anybody looked.
TEST(Messages, OutliveTheirSender) {
  for (const size_t count : {1, 1500}) {
    std::atomic<bool> gone = false;
    RunThreads(2, [&](trncclUniqueId id, int rank) {
      trncclComm_t comm = nullptr;
      ASSERT_CALL_OK(trncclCommInitRank(&comm, 2, id, rank));
      std::vector<uint32_t> data(count, ValueOf(rank, 0));
      if (rank == 0) {
        ASSERT_CALL_OK(
            trncclSend(data.data(), count, trncclUint32, 1, 0, comm, nullptr));
        ASSERT_CALL_OK(trncclCommFinalize(comm));
        ASSERT_CALL_OK(trncclCommDestroy(comm));
        gone = true;
        return;
      }
      while (!gone) sched_yield();
      ASSERT_CALL_OK(trncclRecv(data.data(), count, trncclUint32, 0, 0, nullptr,
                                comm, nullptr));
      EXPECT_EQ(data, std::vector<uint32_t>(count, ValueOf(0, 0)));
      ASSERT_CALL_OK(trncclCommDestroy(comm));
    });
  }
}

}  // namespace
}  // namespace trnccl
