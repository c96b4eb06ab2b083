// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/buffers.h"

#include <set>

#include "gtest/gtest.h"

namespace trnccl::fabric {
namespace {

constexpr size_t kEager = 1000;

TEST(Buffers, GivePiecesOfTheirOwnAndTakeThemBack) {
  Buffers buffers({.eager_bytes = kEager});
  std::set<Send*> sends;
  std::set<std::byte*> packets;
  for (int i = 0; i < 100; ++i) {
    sends.insert(*buffers.NewSend());
    packets.insert((*buffers.NewReceive())->data);
  }
  EXPECT_EQ(sends.size(), 100u);
  EXPECT_EQ(packets.size(), 100u);
  Send* first = *sends.begin();
  first->bytes = 7;
  first->is_small = true;
  buffers.Free(first);
  Send* again = *buffers.NewSend();
  EXPECT_EQ(again, first);
  EXPECT_EQ(again->bytes, 0u);
  EXPECT_FALSE(again->is_small);
}

TEST(Buffers, APayloadLastsAsLongAsItsReferences) {
  Buffers buffers({.eager_bytes = kEager});
  Payload* payload = *buffers.NewPayload({.bytes = 5000, .slice_bytes = 8000});
  EXPECT_EQ(payload->bytes, 8000u);
  ++payload->references;
  buffers.Drop(payload);
  EXPECT_NE(*buffers.NewPayload({.bytes = 5000, .slice_bytes = 8000}), payload);
  buffers.Drop(payload);
  EXPECT_EQ(*buffers.NewPayload({.bytes = 5000, .slice_bytes = 8000}), payload);
  EXPECT_EQ(
      (*buffers.NewPayload({.bytes = kEager, .slice_bytes = 8000}))->bytes,
      kEager);
}

TEST(Buffers, ALandingIsFoundByItsNumberAsLongAsItIsInUse) {
  Buffers buffers({.eager_bytes = kEager});
  Landing* landing = *buffers.NewLanding();
  const uint32_t number = landing->number;
  EXPECT_EQ(buffers.Find(number), landing);
  EXPECT_EQ(buffers.Find(number + 1000), nullptr);
  EXPECT_EQ(buffers.Find(0xffffffff), nullptr);
  buffers.Free(landing);
  EXPECT_EQ(buffers.Find(number), nullptr);
  EXPECT_EQ(*buffers.NewLanding(), landing);
  EXPECT_NE(landing->number, number);
}

}  // namespace
}  // namespace trnccl::fabric
