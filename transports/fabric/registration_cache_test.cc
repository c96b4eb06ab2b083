// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/registration_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "transports/fabric/manners.h"

namespace trnccl {
namespace {

using fabric::Registration;
using fabric::RegistrationCache;

// Before anything else asks libfabric.
const bool provider_is_named = (NameTheTestProvider(), true);

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// A cache that keeps what it's asked to register.
struct Watched {
  std::vector<MemoryRange> asked;
  RegistrationCache cache{[this](const MemoryRange& memory)
                              -> absl::StatusOr<std::vector<Registration>> {
                            asked.push_back(memory);
                            return std::vector<Registration>(1);
                          },
                          /*most=*/3};
};

const std::byte* At(uintptr_t address) {
  return reinterpret_cast<const std::byte*>(address);
}

TEST(RegistrationCache, RegistersWholePagesOnce) {
  Watched watched;
  auto first = watched.cache.Take({.base = At(10 * kPage + 100), .bytes = 10});
  auto second = watched.cache.Take({.base = At(10 * kPage), .bytes = kPage});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  ASSERT_EQ(watched.asked.size(), 1u);
  EXPECT_EQ(watched.asked[0].base, At(10 * kPage));
  EXPECT_EQ(watched.asked[0].bytes, kPage);
  auto longer =
      watched.cache.Take({.base = At(10 * kPage + 1), .bytes = kPage});
  ASSERT_TRUE(longer.ok());
  EXPECT_EQ(watched.asked.back().bytes, 2 * kPage);
}

TEST(RegistrationCache, ForgetsWhatNobodyRefersTo) {
  Watched watched;
  const MemoryRange memory = {.base = At(10 * kPage), .bytes = 10};
  RegistrationCache::Entry* first = *watched.cache.Take(memory);
  RegistrationCache::Entry* second = *watched.cache.Take(memory);
  watched.cache.Drop(first);
  EXPECT_EQ(watched.cache.size(), 1u);
  watched.cache.Drop(second);
  EXPECT_EQ(watched.cache.size(), 0u);
  ASSERT_TRUE(watched.cache.Take(memory).ok());
  EXPECT_EQ(watched.asked.size(), 2u);
}

TEST(RegistrationCache, IsBounded) {
  Watched watched;
  for (uintptr_t i = 0; i < 3; ++i)
    ASSERT_TRUE(watched.cache.Take({.base = At(i * kPage), .bytes = 1}).ok());
  EXPECT_EQ(
      watched.cache.Take({.base = At(9 * kPage), .bytes = 1}).status().code(),
      absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(watched.cache.Take({.base = At(kPage), .bytes = 1}).ok());
}

TEST(RegistrationCache, NeverRoundsADevicesMemoryNorMixesItWithTheHosts) {
  Watched watched;
  const MemoryRange device = {.base = At(10 * kPage + 64),
                              .bytes = 64,
                              .kind = MemoryRange::Kind::kDevice};
  ASSERT_TRUE(watched.cache.Take(device).ok());
  EXPECT_EQ(watched.asked[0].base, device.base);
  EXPECT_EQ(watched.asked[0].bytes, device.bytes);
  ASSERT_TRUE(
      watched.cache.Take({.base = device.base, .bytes = device.bytes}).ok());
  EXPECT_EQ(watched.asked.size(), 2u);
}

TEST(RegistrationCache, GivesNoneOfWhatWasRevoked) {
  Watched watched;
  const MemoryRange memory = {.base = At(kPage), .bytes = 1};
  RegistrationCache::Entry* first = *watched.cache.Take(memory);
  first->Revoke();
  RegistrationCache::Entry* second = *watched.cache.Take(memory);
  EXPECT_NE(first, second);
  watched.cache.Drop(first);
  EXPECT_EQ(watched.cache.size(), 1u);
}

// Pages that are given back and mapped anew at the same place.
class Pages {
 public:
  static constexpr size_t kBytes = size_t{64} << 10;

  std::byte* Map(int fill) {
    void* memory = mmap(place_, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS |
                            (place_ == nullptr ? 0 : MAP_FIXED_NOREPLACE),
                        -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    place_ = memory;
    std::memset(memory, fill, kBytes);
    return static_cast<std::byte*>(memory);
  }
  void Unmap() { munmap(place_, kBytes); }

 private:
  void* place_ = nullptr;
};

// The provider aborts where memory was unmapped that's still registered.
TEST(RegistrationCache, MemoryThatIsMappedAnewIsRegisteredAnew) {
  const MannersSettings pins = {{"PINS", "1"}};
  Pair pair(
      {.form = OverManners(FabricProtocol::kWrite), .settings = {pins, pins}});
  const LinkId link = pair.link();
  Pages from, to;
  for (int round = 1; round < 5; ++round) {
    auto source = pair[0].Register(from.Map(round), Pages::kBytes);
    std::byte* landing = to.Map(0);
    auto target = pair[1].Register(landing, Pages::kBytes);
    ASSERT_TRUE(source.ok() && target.ok());
    const Expected expected = {
        .bytes = Pages::kBytes, .landing = landing, .region = target->get()};
    ASSERT_TRUE(pair[0].Send(
        {&link, 1}, {.bytes = Pages::kBytes, .region = source->get()}));
    const Incoming* message = nullptr;
    ASSERT_TRUE(pair.Until([&] {
      message = pair[1].Peek(link, &expected);
      return message != nullptr;
    }));
    EXPECT_EQ(message->data, landing);
    EXPECT_EQ(landing[Pages::kBytes - 1], static_cast<std::byte>(round));
    pair[1].Release(link);
    EXPECT_TRUE(pair.Until([&] { return pair[0].Pending(link) == 0; }));
    source->reset();
    target->reset();
    from.Unmap();
    to.Unmap();
  }
}

}  // namespace
}  // namespace trnccl
