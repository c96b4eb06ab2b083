// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Batches of many messages at once, over each transport: ranks stepped in turn
// by one thread, or each in a thread of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/point_to_point/test_world.h"

namespace trnccl {
namespace {

struct Message {
  int source = 0;
  int destination = 0;
  int64_t tag = 0;
  size_t bytes = 0;
  bool by_reference = false;
  bool from_any = false;  // received from any source; its tag is its own
};

// All messages of a test, with their buffers and both ends.
class Batch {
 public:
  Batch(TestWorld& world, const std::vector<Message>& messages);

  // Starts this rank's transfers in a random order that keeps the order of
  // messages of one pair and tag, stepping the rank now and then.
  void Start(int rank, uint32_t seed);
  bool Done(int rank) const;
  std::vector<const Transfer*> All() const;
  void Check();

 private:
  struct Item {
    Message message;
    MessageName name;
    std::unique_ptr<GuardedBuffer> source;
    std::unique_ptr<GuardedBuffer> destination;
    std::unique_ptr<Region> region;
    Transfer send;
    Transfer receive;
  };
  struct End {
    Item* item;
    Transfer* transfer;
  };
  std::vector<End> EndsOf(int rank);

  TestWorld& world_;
  std::vector<Item> items_;
};

Batch::Batch(TestWorld& world, const std::vector<Message>& messages)
    : world_(world), items_(messages.size()) {
  for (size_t i = 0; i < messages.size(); ++i) {
    Item& item = items_[i];
    const Message& message = item.message = messages[i];
    item.name = {.source = message.source,
                 .tag = message.tag,
                 .number = static_cast<int>(i)};
    item.source = std::make_unique<GuardedBuffer>(message.bytes);
    item.source->Fill(item.name);
    item.destination = std::make_unique<GuardedBuffer>(message.bytes);
    item.send = SendOf(*item.source, message.destination, message.tag);
    item.receive = ReceiveInto(*item.destination,
                               message.from_any ? kAnySource : message.source,
                               message.tag);
    if (!message.by_reference || message.bytes == 0) continue;
    auto region = world.transport(message.source)
                      .Register(item.source->data(), message.bytes);
    EXPECT_TRUE(region.ok()) << region.status();
    if (region.ok()) item.region = *std::move(region);
    item.send.region = item.region.get();
  }
}

std::vector<Batch::End> Batch::EndsOf(int rank) {
  std::vector<End> ends;
  for (Item& item : items_) {
    if (item.message.source == rank) ends.push_back({&item, &item.send});
    if (item.message.destination == rank) {
      ends.push_back({&item, &item.receive});
    }
  }
  return ends;
}

void Batch::Start(int rank, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<End> ends = EndsOf(rank);
  std::shuffle(ends.begin(), ends.end(), random);
  using Stream = std::tuple<int, int, int64_t, Transfer::Direction>;
  std::map<Stream, std::vector<size_t>> places;
  for (size_t i = 0; i < ends.size(); ++i) {
    const Message& message = ends[i].item->message;
    places[{message.source, message.destination, message.tag,
            ends[i].transfer->direction}]
        .push_back(i);
  }
  for (const auto& [stream, indices] : places) {
    std::vector<End> ordered;
    for (const size_t i : indices) ordered.push_back(ends[i]);
    std::sort(ordered.begin(), ordered.end(),
              [](const End& a, const End& b) { return a.item < b.item; });
    for (size_t i = 0; i < indices.size(); ++i) ends[indices[i]] = ordered[i];
  }
  for (const End& end : ends) {
    world_[rank].Start(end.transfer);
    if (random() % 4 == 0) world_.Step(rank);
  }
}

bool Batch::Done(int rank) const {
  return std::all_of(items_.begin(), items_.end(), [rank](const Item& item) {
    return (item.message.source != rank || item.send.done) &&
           (item.message.destination != rank || item.receive.done);
  });
}

std::vector<const Transfer*> Batch::All() const {
  std::vector<const Transfer*> all;
  for (const Item& item : items_) {
    all.push_back(&item.send);
    all.push_back(&item.receive);
  }
  return all;
}

void Batch::Check() {
  for (Item& item : items_) {
    SCOPED_TRACE(testing::Message()
                 << "message " << item.name.number << " from "
                 << item.message.source << " to " << item.message.destination);
    ASSERT_TRUE(item.send.done && item.receive.done);
    ASSERT_TRUE(item.send.status.ok()) << item.send.status;
    ASSERT_TRUE(item.receive.status.ok()) << item.receive.status;
    ASSERT_EQ(item.receive.received_bytes, item.message.bytes);
    ASSERT_EQ(item.receive.source, item.message.source);
    ASSERT_EQ(item.receive.received_tag, item.message.tag);
    ASSERT_TRUE(item.destination->Holds(item.name, item.message.bytes));
    ASSERT_TRUE(item.source->Holds(item.name, item.message.bytes));
  }
}

// ---- How ranks run ---------------------------------------------------------

struct Way {
  Wire wire;
  bool threads;
  bool reads = false;  // what the senders keep
};

class Traffic : public testing::TestWithParam<Way> {
 protected:
  void Run(int ranks, const std::vector<Message>& messages, uint32_t seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " ranks " << ranks);
    TestWorld world({.ranks = ranks,
                     .wire = GetParam().wire,
                     .first_id = UINT32_MAX - 3,
                     .unmapped_min_bytes = GetParam().reads ? 1 : SIZE_MAX,
                     .seed = seed});
    Batch batch(world, messages);
    if (GetParam().threads) {
      RunThreads(world, batch, seed);
    } else {
      for (int rank = 0; rank < ranks; ++rank) {
        batch.Start(rank, seed + static_cast<uint32_t>(rank));
      }
      ASSERT_TRUE(world.RunUntil(batch.All()));
    }
    batch.Check();
  }

 private:
  // A rank goes on until all are done: a peer may still need it to read.
  static void RunThreads(TestWorld& world, Batch& batch, uint32_t seed) {
    const int ranks = world.ranks();
    std::atomic<int> finished = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const Deadline deadline = Deadline::After(240'000);
        batch.Start(rank, seed + static_cast<uint32_t>(rank));
        bool done = false;
        while (finished < ranks && !deadline.expired() &&
               !testing::Test::HasFatalFailure()) {
          world.Step(rank);
          if (!done && batch.Done(rank)) {
            done = true;
            ++finished;
          }
          std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

std::string WayName(const testing::TestParamInfo<Way>& info) {
  return std::string(info.param.wire == Wire::kShm ? "Shm" : "Inproc") +
         (info.param.reads ? "Read" : "") +
         (info.param.threads ? "Threads" : "Stepped");
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Traffic,
    testing::Values(Way{Wire::kInproc, false}, Way{Wire::kInproc, true},
                    Way{Wire::kShm, false}, Way{Wire::kShm, true},
                    Way{Wire::kShm, false, true}, Way{Wire::kShm, true, true}),
    WayName);

// ---- What they send --------------------------------------------------------

size_t RandomBytes(std::mt19937& random) {
  constexpr size_t kEdges[] = {0, 1, 8, 1023, 1024, 1025, 8191, 8192, 8193};
  switch (random() % 4) {
    case 0:
      return kEdges[random() % std::size(kEdges)];
    case 1:
      return random() % 20'000;
    default:
      return random() % 64;
  }
}

std::vector<Message> RandomPairs(int ranks, int count, uint32_t seed) {
  std::mt19937 random(seed);
  const auto any_rank = [&] {
    return static_cast<int>(random() % static_cast<uint32_t>(ranks));
  };
  std::vector<Message> messages;
  for (int i = 0; i < count; ++i) {
    Message message = {.source = any_rank(),
                       .destination = any_rank(),
                       .tag = static_cast<int64_t>(random() % 5),
                       .bytes = RandomBytes(random),
                       .by_reference = random() % 2 == 0,
                       .from_any = random() % 8 == 0};
    if (message.source == message.destination) message.by_reference = false;
    if (message.from_any) message.tag = (int64_t{1} << 40) + i;
    messages.push_back(message);
  }
  return messages;
}

TEST_P(Traffic, ABatchOfAThousandInRandomPairs) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const int ranks = 1 + static_cast<int>(seed);
    Run(ranks, RandomPairs(ranks, 1000, seed), seed);
    if (HasFatalFailure()) return;
  }
}

// Both ends of a ring's edges at once, each distance in a batch of its own,
// then all distances in one.
TEST_P(Traffic, RingAndRipple) {
  for (const int ranks : {3, 4}) {
    for (const size_t bytes : {size_t{8}, size_t{100'000}}) {
      std::vector<Message> ripple;
      for (int distance = 1; distance < ranks; ++distance) {
        std::vector<Message> ring;
        for (int rank = 0; rank < ranks; ++rank) {
          ring.push_back({.source = rank,
                          .destination = (rank + distance) % ranks,
                          .bytes = bytes});
        }
        Run(ranks, ring, 1);
        ripple.insert(ripple.end(), ring.begin(), ring.end());
      }
      Run(ranks, ripple, 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Traffic, AmongASubsetOfTheRanks) {
  for (const size_t bytes : {size_t{8}, size_t{100'000}}) {
    Run(4,
        {{.source = 1, .destination = 3, .bytes = bytes},
         {.source = 3, .destination = 1, .bytes = bytes},
         {.source = 1, .destination = 3, .tag = 1, .bytes = bytes}},
        1);
  }
}

TEST_P(Traffic, AllToOneAndOneToAll) {
  std::vector<Message> messages;
  for (int rank = 0; rank < 5; ++rank) {
    for (int64_t tag = 0; tag < 20; ++tag) {
      const size_t bytes = tag % 4 == 0 ? 30'000 : 500;
      messages.push_back(
          {.source = rank, .destination = 2, .tag = tag, .bytes = bytes});
      messages.push_back(
          {.source = 2, .destination = rank, .tag = tag + 20, .bytes = bytes});
    }
  }
  Run(5, messages, 1);
}

}  // namespace
}  // namespace trnccl
