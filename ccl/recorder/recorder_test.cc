// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/recorder/recorder.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr CallKind kAllReduce = KindOf(Collective::kAllReduce);

Recorder::Options Keeping(uint32_t calls) {
  return {.owner = {.membership = {.rank = 1, .ranks = 3},
                    .name = "world",
                    .description = "of \"all\"\n",
                    .hostname = "here",
                    .cookie = 0xc0041e,
                    .timeout_ms = 1234},
          .calls = calls};
}

size_t CountOf(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos;
       at = text.find(what, at + 1))
    ++count;
  return count;
}

TEST(Recorder, DumpHoldsWhatTheAnalyserReads) {
  Recorder recorder(Keeping(8));
  const uint64_t call = recorder.Schedule({.kind = kAllReduce,
                                           .type = DataType::kBFloat16,
                                           .op = ReduceOp::kMax,
                                           .count = 17});
  recorder.Start(call, "ring");
  recorder.Complete(call);
  const std::string dump = recorder.Dump();
  EXPECT_THAT(dump, AllOf(HasSubstr(R"("version":"2.10")"),
                          HasSubstr(R"("pg_config":{"world":{"name":"world")"),
                          HasSubstr(R"("desc":"of \"all\"\u000a")"),
                          HasSubstr(R"("ranks":"[0, 1, 2]")"),
                          HasSubstr(R"("last_completed_collective":1)")));
  EXPECT_THAT(
      dump,
      AllOf(HasSubstr(R"("profiling_name":"nccl:all_reduce")"),
            HasSubstr(R"("collective_seq_id":1)"),
            HasSubstr(R"("p2p_seq_id":0)"),
            HasSubstr(R"("input_sizes":[[17]])"),
            HasSubstr(R"("output_dtypes":["BFloat16"])"),
            HasSubstr(R"("state":"completed")"), HasSubstr(R"("retired":true)"),
            HasSubstr(R"("timeout_ms":1234)"), HasSubstr(R"("is_p2p":false)")));
  EXPECT_THAT(dump, AllOf(HasSubstr(R"("algorithm":"ring")"),
                          HasSubstr(R"("operator":"max")"),
                          HasSubstr(R"("failed":false)")));
}

TEST(Recorder, StatesFollowTheCall) {
  Recorder recorder(Keeping(8));
  const uint64_t call = recorder.Schedule({.kind = kAllReduce});
  EXPECT_THAT(recorder.Dump(),
              AllOf(HasSubstr(R"("state":"scheduled")"),
                    HasSubstr(R"("time_discovered_started_ns":null)")));
  recorder.Start(call, "tree");
  EXPECT_THAT(recorder.Dump(),
              AllOf(HasSubstr(R"("state":"started")"),
                    HasSubstr(R"("last_started_collective":1)"),
                    Not(HasSubstr(R"("time_discovered_started_ns":null)"))));
  recorder.Fail(call);
  EXPECT_THAT(
      recorder.Dump(),
      AllOf(HasSubstr(R"("state":"started")"), HasSubstr(R"("failed":true)"),
            HasSubstr(R"("last_completed_collective":0)")));
}

TEST(Recorder, MessagesAndCollectivesCountApart) {
  Recorder recorder(Keeping(8));
  recorder.Schedule({.kind = kAllReduce});
  recorder.Schedule({.kind = CallKind::kSend, .peer = 2, .tag = 9});
  recorder.Schedule({.kind = CallKind::kReceive, .peer = 0});
  recorder.Schedule({.kind = KindOf(Collective::kAllGather), .count = 5});
  const std::string dump = recorder.Dump();
  EXPECT_THAT(
      dump,
      AllOf(HasSubstr(R"("nccl:send 1->2")"), HasSubstr(R"("nccl:recv 1<-0")"),
            HasSubstr(R"("p2p_seq_id":2)"),
            HasSubstr(R"("collective_seq_id":2)"), HasSubstr(R"("tag":9)"),
            HasSubstr(R"("output_sizes":[[15]])")));
}

TEST(Recorder, KeepsTheLastCallsOnly) {
  Recorder recorder(Keeping(4));
  for (uint64_t i = 0; i < 11; ++i) {
    EXPECT_EQ(recorder.Schedule({.kind = kAllReduce, .count = 1000 + i}), i);
  }
  recorder.Complete(2);  // pushed out long ago
  const std::string dump = recorder.Dump();
  EXPECT_EQ(CountOf(dump, "record_id"), 4u);
  EXPECT_THAT(dump,
              AllOf(HasSubstr("[[1007]]"), HasSubstr("[[1010]]"),
                    Not(HasSubstr("[[1006]]")), Not(HasSubstr("completed\""))));
  EXPECT_LT(dump.find("[[1007]]"), dump.find("[[1008]]"));
}

TEST(Recorder, EveryKindAndTypeHasAName) {
  Recorder recorder(Keeping(64));
  for (int i = 0; i < kCollectives; ++i) {
    recorder.Schedule({.kind = KindOf(static_cast<Collective>(i))});
  }
  for (int i = 0; i < kDataTypes; ++i) {
    recorder.Schedule({.kind = kAllReduce, .type = static_cast<DataType>(i)});
  }
  const std::string dump = recorder.Dump();
  EXPECT_EQ(CountOf(dump, "nccl:recv"), 0u);
  EXPECT_EQ(CountOf(dump, "Undefined"), 0u);
}

TEST(Recorder, AlgorithmsKeepTheirNumbers) {
  Recorder recorder(Keeping(8));
  const uint16_t ring = recorder.NumberOf("ring");
  EXPECT_NE(ring, recorder.NumberOf("tree"));
  EXPECT_EQ(ring, recorder.NumberOf(std::string("ring")));
  EXPECT_EQ(recorder.NumberOf(""), 0);
  recorder.Begin({.kind = kAllReduce, .algorithm = ring});
  EXPECT_THAT(recorder.Dump(), HasSubstr(R"("algorithm":"ring")"));
  for (int i = 0; i < 100; ++i) recorder.NumberOf(std::to_string(i));
  EXPECT_EQ(recorder.NumberOf("one too many"), 0);
  EXPECT_EQ(recorder.NumberOf("ring"), ring);
}

TEST(Recorder, AFailureLeavesADumpOfTheFirstCause) {
  const std::string prefix = testing::TempDir() + "calls_";
  Recorder::Options options = Keeping(8);
  options.dump_prefix = prefix;
  Recorder recorder(std::move(options));
  recorder.Begin({.kind = kAllReduce, .count = 17});
  recorder.FailAll(absl::AbortedError("rank 2 is gone"));
  recorder.FailAll(absl::AbortedError("and so am I"));
  std::ifstream file(prefix + "00c0041e_1");
  const std::string dump{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(dump, AllOf(HasSubstr(R"("cause":"rank 2 is gone")"),
                          HasSubstr("[[17]]"), HasSubstr(R"("host":"here")"),
                          HasSubstr(R"("communicator":"00c0041e")")));
  EXPECT_EQ(dump.back(), '\n');
  EXPECT_FALSE(std::ifstream(prefix + "00c0041e_1.unfinished"));
}

TEST(Recorder, AFailureThatCannotBeWrittenIsNone) {
  Recorder::Options options = Keeping(8);
  options.dump_prefix = "/no/such/folder/";
  Recorder recorder(std::move(options));
  recorder.FailAll(absl::AbortedError("rank 2 is gone"));
  EXPECT_THAT(recorder.Dump(), HasSubstr("rank 2 is gone"));
}

TEST(Recorder, DumpsWholeCallsWhileAnotherThreadRecords) {
  Recorder recorder(Keeping(16));
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 0; !stop; ++i) {
      const uint64_t call = recorder.Schedule(
          {.kind = kAllReduce, .count = i, .peer = static_cast<int>(i)});
      recorder.Start(call, "ring");
      recorder.Complete(call);
    }
  });
  while (CountOf(recorder.Dump(), "record_id") < 8) {
  }
  for (int round = 0; round < 50; ++round) {
    const std::string dump = recorder.Dump();
    for (size_t at = dump.find("[["); at != dump.npos;
         at = dump.find("\"input_sizes\":[[", at)) {
      at = dump.find("[[", at) + 2;
      const std::string count = dump.substr(at, dump.find(']', at) - at);
      const size_t peer = dump.find("\"peer\":", at) + 7;
      ASSERT_EQ(dump.substr(peer, dump.find(',', peer) - peer), count);
    }
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace trnccl
