// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/wire.h"

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Wire, ReadsBackWhatWasWritten) {
  WireWriter writer;
  writer.U8(7);
  writer.U32(0x89abcdef);
  writer.Text("host");
  writer.Text("");
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.U8(), 7);
  EXPECT_EQ(reader.U32(), 0x89abcdefu);
  EXPECT_EQ(reader.Text(4), "host");
  EXPECT_EQ(reader.Text(4), "");
  EXPECT_TRUE(reader.Finished());
}

TEST(Wire, LeftoverBytesAreNotFinished) {
  WireReader reader("ab");
  reader.U8();
  EXPECT_TRUE(reader.ok());
  EXPECT_FALSE(reader.Finished());
}

TEST(Wire, EveryTruncationIsBad) {
  WireWriter writer;
  writer.U32(1);
  writer.Text("abc");
  for (size_t size = 0; size < writer.bytes().size(); ++size) {
    WireReader reader(std::string_view(writer.bytes()).substr(0, size));
    reader.U32();
    EXPECT_EQ(reader.Text(100), "");
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_EQ(reader.U8(), 0);
  }
}

TEST(Wire, LengthBeyondTheLimitIsBad) {
  WireWriter writer;
  writer.Text("abcde");
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.Text(4), "");
  EXPECT_FALSE(reader.ok());
  WireReader endless("\xff\xff\xff\xff");
  EXPECT_EQ(endless.Text(SIZE_MAX), "");
  EXPECT_FALSE(endless.ok());
}

}  // namespace
}  // namespace trnccl
