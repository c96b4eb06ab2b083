// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// No message allocates, once each kind has been seen.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

#include "gtest/gtest.h"
#include "transports/conformance/conformance.h"

namespace {

std::atomic<bool> counts = false;
std::atomic<size_t> allocations = 0;

// libfabric's providers that are libraries of their own allocate as they like.
// Most have an operator of their own, but not where a sanitizer brings one.
bool IsProvider(const void* code) {
  Dl_info info;
  return dladdr(code, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).ends_with("-fi.so");
}

}  // namespace

// Replaces the standard's for this binary; array forms end here too. Inlined,
// one half of a pair would look like a mismatch to the compiler.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (counts && !IsProvider(__builtin_return_address(0))) ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

[[gnu::noinline]] void* operator new(size_t bytes,
                                     const std::nothrow_t&) noexcept {
  return operator new(bytes);
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace trnccl {
namespace {

// Whether all is well with all ranks.
bool Progress(Team& team) {
  bool good = true;
  for (int rank = 0; rank < team.ranks(); ++rank)
    good &= team[rank].Progress().ok();
  return good;
}

// Whether the next message for the peer comes; takes it.
bool Come(Team& team, int peer) {
  const LinkId in = team.With(peer, 0);
  for (;;) {
    if (team[peer].Peek(in, nullptr) != nullptr) break;
    if (!team[peer].Progress().ok() || !team[0].Progress().ok()) return false;
  }
  team[peer].Release(in);
  return true;
}

TEST_P(Conformance, MessagesDoNotAllocate) {
  Team team(GetParam(), {.ranks = 3});
  const Traits& traits = team[0].traits();
  SubjectMemory memory(GetParam(), traits.slice_bytes);
  auto region = team[0].Register(memory.data(), memory.bytes());
  ASSERT_TRUE(region.ok()) << region.status();
  const LinkId links[] = {team.With(0, 1), team.With(0, 2)};
  // News of room may be on their way still.
  const auto round = [&](size_t bytes) {
    bool good = true;
    while (good && team[0].Reserve(links, bytes) == nullptr)
      good = Progress(team);
    good = good && team[0].Send(links, {.bytes = bytes});
    for (int peer = 1; peer < 3; ++peer) good = good && Come(team, peer);
    const Outgoing message = {.bytes = bytes, .region = region->get()};
    while (good && !team[0].Send(links, message)) good = Progress(team);
    for (int peer = 1; peer < 3; ++peer) good = good && Come(team, peer);
    while (good && team[0].Pending(links[0]) + team[0].Pending(links[1]) > 0)
      good = Progress(team);
    return good && Progress(team);
  };
  const size_t sizes[] = {0, 8, traits.inline_bytes, traits.slice_bytes};
  for (int i = 0; i < 30; ++i) {
    for (const size_t bytes : sizes) ASSERT_TRUE(round(bytes));
  }
  allocations = 0;
  counts = true;
  bool good = true;
  for (int i = 0; i < GetParam().Many(1000); ++i) {
    for (const size_t bytes : sizes) good &= round(bytes);
  }
  counts = false;
  EXPECT_EQ(allocations, 0u);
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace trnccl
