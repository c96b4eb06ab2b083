// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Messages from and into memory that the provider takes for a device's: what
// arrives there isn't to be seen until the same adapter has read from it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "transports/fabric/manners.h"

namespace trnccl {
namespace {

// Before anything else asks libfabric.
const bool provider_is_named = (NameTheTestProvider(), true);

constexpr auto kDevice = MemoryRange::Kind::kDevice;

FabricOptions ForDevices() {
  FabricOptions form = OverManners(FabricProtocol::kAuto);
  form.port.device_memory = true;
  return form;
}

std::vector<std::byte> Pattern(size_t bytes, unsigned salt) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i)
    pattern[i] = static_cast<std::byte>(i * 7 + i / 256 + salt);
  return pattern;
}

class Devices : public ::testing::TestWithParam<int> {};

TEST_P(Devices, MessagesGoFromOneDevicesMemoryIntoAnothers) {
  const MannersSettings four = {{"NICS", "4"}, {"HOLD", "8"}};
  Pair pair({.form = ForDevices(),
             .settings = {four, four},
             .rails = {GetParam(), GetParam()}});
  const LinkId link = pair.link();
  const size_t slice = pair[0].traits().slice_bytes;
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{8000}, slice}) {
    const std::vector<std::byte> sent = Pattern(bytes, 3);
    std::vector<std::byte> landing(bytes);
    auto from = pair[0].RegisterMemory(
        {.base = sent.data(), .bytes = bytes, .kind = kDevice});
    auto to = pair[1].RegisterMemory(
        {.base = landing.data(), .bytes = bytes, .kind = kDevice});
    ASSERT_TRUE(from.ok()) << from.status();
    ASSERT_TRUE(to.ok()) << to.status();
    const Expected expected = {
        .bytes = bytes, .landing = landing.data(), .region = to->get()};
    ASSERT_TRUE(
        pair[0].Send({&link, 1}, {.bytes = bytes, .region = from->get()}));
    const Incoming* message = nullptr;
    ASSERT_TRUE(pair.Until([&] {
      message = pair[1].Peek(link, &expected);
      return message != nullptr;
    })) << pair[0].Progress()
        << pair[1].Progress();
    EXPECT_EQ(message->data, landing.data());
    EXPECT_EQ(message->bytes, bytes);
    EXPECT_EQ(landing, sent);
    pair[1].Release(link);
    EXPECT_TRUE(pair.Until([&] { return pair[0].Pending(link) == 0; }));
  }
}

TEST_P(Devices, TheHostsMessagesLandThereToo) {
  Pair pair({.form = ForDevices(), .rails = {GetParam(), 1}});
  const LinkId link = pair.link();
  const size_t bytes = pair[0].traits().slice_bytes;
  const std::vector<std::byte> sent = Pattern(bytes, 5);
  std::vector<std::byte> landing(bytes);
  auto to = pair[1].RegisterMemory(
      {.base = landing.data(), .bytes = bytes, .kind = kDevice});
  ASSERT_TRUE(to.ok()) << to.status();
  std::byte* slice = pair[0].Reserve({&link, 1}, bytes);
  ASSERT_NE(slice, nullptr);
  std::memcpy(slice, sent.data(), bytes);
  ASSERT_TRUE(pair[0].Send({&link, 1}, {.bytes = bytes}));
  const Expected expected = {
      .bytes = bytes, .landing = landing.data(), .region = to->get()};
  ASSERT_TRUE(
      pair.Until([&] { return pair[1].Peek(link, &expected) != nullptr; }));
  EXPECT_EQ(landing, sent);
}

INSTANTIATE_TEST_SUITE_P(ByRails, Devices, ::testing::Values(1, 2));

TEST(DeviceMemory, NeedsAPortThatWasOpenedForIt) {
  Pair pair({.form = OverManners(FabricProtocol::kAuto)});
  std::vector<std::byte> memory(100);
  const auto region = pair[0].RegisterMemory(
      {.base = memory.data(), .bytes = 100, .kind = kDevice});
  EXPECT_EQ(region.status().code(), absl::StatusCode::kUnimplemented);
}

// libfabric 1.17 doesn't know dmabuf; newer ones do.
TEST(DeviceMemory, IsNamedByADmabufToo) {
  const MannersSettings settings = {{"DMABUF", "1"}};
  Pair pair({.form = ForDevices(), .settings = {settings, settings}});
  constexpr size_t kBytes = size_t{16} << 10;
  const int fd = memfd_create("device", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 2 * kBytes), 0);
  auto* base = static_cast<std::byte*>(
      mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(base, MAP_FAILED);
  const auto region =
      pair[0].RegisterMemory({.base = base + kBytes,
                              .bytes = kBytes,
                              .kind = MemoryRange::Kind::kDmabuf,
                              .dmabuf_fd = fd,
                              .dmabuf_offset = kBytes});
  if (region.ok()) {
    std::memset(base + kBytes, 9, kBytes);
    const LinkId link = pair.link();
    ASSERT_TRUE(
        pair[0].Send({&link, 1}, {.bytes = kBytes, .region = region->get()}));
    const Incoming* message = pair.Await(1);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(message->data[kBytes - 1], std::byte{9});
    EXPECT_TRUE(pair.Until([&] { return pair[0].Pending(link) == 0; }));
  } else {
    EXPECT_EQ(region.status().code(), absl::StatusCode::kUnimplemented)
        << region.status();
    EXPECT_NE(region.status().ToString().find("1.20"), std::string::npos);
  }
  munmap(base, 2 * kBytes);
  close(fd);
}

}  // namespace
}  // namespace trnccl
