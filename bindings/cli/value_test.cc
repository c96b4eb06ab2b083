// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/value.h"

#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace trnccl::cli {
namespace {

// What Python's pickle.dumps() makes of {"entries": [{"n": -2, "t": "x",
// "d": 0.5, "b": True, "none": None, "pair": ("x", 70000)}], 7: [[1, 300]]} by
// protocol 2.
constexpr char kPickleBytes[] =
    "\x80\x02}q\x00(X\x07\x00\x00\x00"
    "entriesq\x01]q\x02}q\x03(X\x01\x00\x00\x00nq\x04J\xfe\xff\xff\xffX\x01"
    "\x00\x00\x00tq\x05X\x01\x00\x00\x00xq\x06X\x01\x00\x00\x00"
    "dq\x07G?\xe0\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00"
    "bq\x08\x88X\x04\x00\x00\x00noneq\tNX\x04\x00\x00\x00pairq\nh\x06"
    "Jp\x11\x01\x00\x86q\x0buaK\x07]q\x0c]q\r(K\x01M,\x01"
    "eau.";
constexpr std::string_view kPickle2(kPickleBytes, sizeof(kPickleBytes) - 1);

constexpr std::string_view kJson =
    R"({"entries": [{"n": -2, "t": "x", "d": 0.5, "b": true, "none": null,
        "pair": ["x", 70000]}], "7": [[1, 300]]})";

void ExpectTheValues(const absl::StatusOr<Value>& read) {
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ((*read)["entries"].list().size(), 1u);
  const Value& entry = (*read)["entries"].list().front();
  EXPECT_EQ(entry["n"].number(), -2);
  EXPECT_EQ(entry["t"].text(), "x");
  EXPECT_TRUE(entry["b"].truth());
  EXPECT_TRUE(entry["none"].is_null());
  EXPECT_EQ(entry["pair"].list()[0].text(), "x");
  EXPECT_EQ(entry["pair"].list()[1].number(), 70000);
  EXPECT_EQ((*read)["7"].list()[0].list()[1].number(), 300);
}

TEST(Dump, IsReadFromJsonAndPickleAlike) {
  ExpectTheValues(ParseDump(kJson));
  ExpectTheValues(ParseDump(kPickle2));
}

TEST(Dump, HoldsNothingWhereAnotherKindIsAskedFor) {
  const absl::StatusOr<Value> read = ParseDump(R"({"a": "text", "b": 1e300})");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)["a"].number(), 0);
  EXPECT_TRUE((*read)["a"]["b"].is_null());
  EXPECT_TRUE((*read)["a"].list().empty());
  EXPECT_EQ((*read)["b"].number(), 0);
  EXPECT_EQ((*read)["b"].text(), "");
}

TEST(Dump, KeepsEveryDigitOfADate) {
  const absl::StatusOr<Value> read = ParseDump("[1790000000123456789]");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->list()[0].number(), 1790000000123456789);
}

TEST(Dump, IsRefusedIfItIsCutShort) {
  for (const std::string_view whole : {kJson, kPickle2}) {
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
      EXPECT_FALSE(ParseDump(whole.substr(0, bytes)).ok()) << bytes;
  }
}

TEST(Dump, RunsNoCode) {
  // os.system("true"), as pickle would call it.
  EXPECT_FALSE(ParseDump("\x80\x02"
                         "cposix\nsystem\nX\x04\x00\x00\x00true\x85R.")
                   .ok());
}

TEST(Dump, SurvivesDepth) {
  const std::string deep(1'000'000, '[');
  EXPECT_FALSE(ParseDump(deep).ok());
}

// A list in itself, and one in another that's in it: neither could be freed.
TEST(Dump, HoldsNothingThatHoldsItself) {
  using std::string_literals::operator""s;
  for (const std::string& pickle :
       {"\x80\x02]q\0h\0a."s, "\x80\x02]q\0]q\1h\0aa."s,
        "\x80\x02]q\0]q\1ah\1h\0aa."s, "\x80\x02]q\0]q\1ah\0h\1aa."s})
    EXPECT_FALSE(ParseDump(pickle).ok());
  // The same list twice in another.
  EXPECT_TRUE(ParseDump("\x80\x02]q\0]q\1ah\1a."s).ok());
}

TEST(Dump, SurvivesRandomBytes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(round % 2 == 0 ? kJson : kPickle2);
    for (size_t changes = random() % 8 + 1; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const absl::StatusOr<Value> read = ParseDump(bytes);
    if (!read.ok()) continue;
    EXPECT_LE(read->fields().size(), bytes.size());
  }
}

}  // namespace
}  // namespace trnccl::cli
