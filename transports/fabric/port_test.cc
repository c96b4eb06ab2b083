// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/port.h"

#include "gtest/gtest.h"
#include "transports/fabric/manners.h"

namespace trnccl::fabric {
namespace {

// Before anything else asks libfabric.
const bool provider_is_named = (NameTheTestProvider(), true);

TEST(StripeOf, StripesCoverThePayloadOnceAndInOrder) {
  for (size_t stripes = 1; stripes <= kMaxRails; ++stripes) {
    for (const size_t bytes :
         {size_t{1}, size_t{4095}, size_t{4096}, size_t{100'000},
          size_t{262'144}, size_t{1} << 30}) {
      size_t next = 0;
      for (size_t i = 0; i < stripes; ++i) {
        const Port::Stripe stripe = Port::StripeOf(bytes, stripes, i);
        EXPECT_EQ(stripe.offset, next) << bytes << " in " << stripes;
        next = stripe.offset + stripe.bytes;
      }
      EXPECT_EQ(next, bytes) << " in " << stripes;
    }
  }
}

TEST(Port, ThatOfTheProcessIsOneForTheSameOptions) {
  const PortOptions options = OverManners(FabricProtocol::kWrite).port;
  auto first = Port::OfProcess(options);
  auto second = Port::OfProcess(options);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, *second);
  auto tagged = Port::OfProcess(OverManners(FabricProtocol::kTagged).port);
  ASSERT_TRUE(tagged.ok()) << tagged.status();
  EXPECT_NE(*first, *tagged);
}

TEST(Port, ABrokenOneIsReplaced) {
  const PortOptions options = OverManners(FabricProtocol::kWrite).port;
  auto first = Port::OfProcess(options);
  ASSERT_TRUE(first.ok()) << first.status();
  {
    MutexLock lock((*first)->mutex());
    (*first)->Break(absl::UnavailableError("for a test"));
    EXPECT_FALSE((*first)->usable());
  }
  auto second = Port::OfProcess(options);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*first, *second);
}

TEST(Port, MessagesAreTaggedWhereWritesAreEmulated) {
  const PortOptions options = OverManners(FabricProtocol::kAuto).port;
  auto writing = Port::Open(options);
  ASSERT_TRUE(writing.ok()) << writing.status();
  EXPECT_TRUE((*writing)->provider().writes);
  const ScopedManners manners(MannersSettings{{"EMULATED_WRITE", "1"}});
  auto tagged = Port::Open(options);
  ASSERT_TRUE(tagged.ok()) << tagged.status();
  EXPECT_FALSE((*tagged)->provider().writes);
}

// Efa-direct's longest message isn't its longest remote write.
TEST(Port, APacketFitsIntoTheLongestMessage) {
  for (const char* bytes : {"1024", "8192"}) {
    const ScopedManners manners(
        MannersSettings{{"MSG_SIZE", bytes}, {"FABRIC", "efa-direct"}});
    auto port = Port::Open(OverManners(FabricProtocol::kWrite).port);
    ASSERT_TRUE(port.ok()) << port.status();
    EXPECT_LE((*port)->provider().eager_bytes + sizeof(WireHeader),
              std::stoul(bytes));
  }
}

}  // namespace
}  // namespace trnccl::fabric
