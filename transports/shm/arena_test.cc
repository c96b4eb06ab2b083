// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/arena.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::shm {
namespace {

TEST(Arena, GivesEachLinkASliceHoweverSmall) {
  for (const size_t bytes :
       {size_t{0}, size_t{1} << 20, size_t{4} << 20, size_t{1} << 30}) {
    for (size_t links = 1; links < 3000; links = links * 2 + 1) {
      const Arena::Shape shape = Arena::ShapeFor(bytes, links);
      EXPECT_EQ(shape.apart, links);
      EXPECT_GE(shape.walked, 1u);
      EXPECT_GE(shape.slice_bytes, size_t{4} << 10);
      EXPECT_LE(shape.slice_bytes, size_t{256} << 10);
      EXPECT_EQ(shape.slice_bytes & (shape.slice_bytes - 1), 0u);
      EXPECT_LE(shape.bytes(), std::max(bytes, (links + 1) << 12));
    }
  }
}

TEST(Arena, WalksThroughAllOfItBeforeItReusesALine) {
  const Arena::Shape shape = Arena::ShapeFor(1 << 20, 2);
  Arena arena(shape);
  std::set<size_t> offsets;
  const size_t messages = shape.walked * (shape.slice_bytes / 1024);
  for (size_t i = 0; i < messages; ++i) {
    const auto piece = arena.Next(1000);
    ASSERT_TRUE(piece.has_value());
    EXPECT_TRUE(offsets.insert(piece->offset).second);
    arena.Hold(*piece, {.bytes = 1000, .links = 1});
    arena.Drop(piece->slice);
  }
  EXPECT_EQ(offsets.size(), messages);
}

TEST(Arena, StepsOverASliceThatIsHeld) {
  const Arena::Shape shape = {.slice_bytes = 4096, .walked = 3, .apart = 1};
  Arena arena(shape);
  const auto held = arena.Next(4096);
  arena.Hold(*held, {.bytes = 4096, .links = 2});
  arena.Drop(held->slice);
  for (int i = 0; i < 10; ++i) {
    const auto piece = arena.Next(4096);
    ASSERT_TRUE(piece.has_value());
    EXPECT_NE(piece->slice, held->slice);
    arena.Hold(*piece, {.bytes = 4096, .links = 1});
    arena.Drop(piece->slice);
  }
}

TEST(Arena, SaysWhenTheWalkIsStuckAndStillHasWhatStandsApart) {
  const Arena::Shape shape = {.slice_bytes = 4096, .walked = 2, .apart = 2};
  Arena arena(shape);
  for (uint32_t i = 0; i < shape.walked; ++i) {
    const auto piece = arena.Next(4096);
    ASSERT_TRUE(piece.has_value());
    arena.Hold(*piece, {.bytes = 4096, .links = 1});
  }
  EXPECT_FALSE(arena.Next(1).has_value());
  const Arena::Piece first = arena.Apart();
  arena.Hold(first, {.bytes = 4096, .links = 1});
  const Arena::Piece second = arena.Apart();
  EXPECT_NE(first.slice, second.slice);
  arena.Drop(0);
  EXPECT_TRUE(arena.Next(1).has_value());
}

}  // namespace
}  // namespace trnccl::shm
