// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/flags.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

constexpr Traits kReducing = {
    .name = "all_reduce", .call = "AllReduce", .reduces = true};
constexpr Traits kMoving = {.name = "all_gather", .call = "AllGather"};

absl::StatusOr<Options> Parse(std::vector<std::string> arguments) {
  std::vector<char*> argv = {const_cast<char*>("all_reduce_perf")};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return ParseFlags(static_cast<int>(argv.size()) - 1, argv.data());
}

TEST(Flags, HaveTheDefaultsThatTheHelpStates) {
  const Options options = *Parse({});
  EXPECT_EQ(options.min_bytes, size_t{32} << 20);
  EXPECT_EQ(options.max_bytes, size_t{32} << 20);
  EXPECT_EQ(options.iterations, 0);
  EXPECT_EQ(options.checks, 1);
  EXPECT_EQ(options.mode, CallMode::kBlocking);
  EXPECT_EQ(options.average, Average::kMean);
  EXPECT_FALSE(options.compare_mpi);
}

TEST(Flags, TakeShortAndLongNames) {
  const Options options = *Parse({"-b8",     "-e",
                                  "2K",      "--stepfactor",
                                  "2",       "-n",
                                  "5",       "-o",
                                  "max",     "--datatype=bfloat16",
                                  "-r",      "all",
                                  "-z0",     "-R",
                                  "1",       "-I",
                                  "1",       "-K",
                                  "2",       "--compare",
                                  "mpi",     "--fresh",
                                  "1",       "-J",
                                  "out.json"});
  EXPECT_EQ(options.min_bytes, 8U);
  EXPECT_EQ(options.max_bytes, 2048U);
  EXPECT_EQ(options.step_factor, 2U);
  EXPECT_EQ(options.iterations, 5);
  EXPECT_EQ(options.op, Operator::kMax);
  EXPECT_EQ(options.type, trncclBfloat16);
  EXPECT_EQ(options.root, kAllRoots);
  EXPECT_EQ(options.mode, CallMode::kAsynchronous);
  EXPECT_TRUE(options.registered);
  EXPECT_EQ(options.skipped_iterations, 2);
  EXPECT_TRUE(options.compare_mpi);
  EXPECT_TRUE(options.fresh);
  EXPECT_EQ(options.json_path, "out.json");
}

TEST(Flags, RefuseWhatTheyDoNotKnow) {
  for (const std::vector<std::string>& bad :
       std::vector<std::vector<std::string>>{{"-Q"},
                                             {"--quick"},
                                             {"extra"},
                                             {"-n"},
                                             {"-n", "many"},
                                             {"-n", "0"},
                                             {"-f", "1"},
                                             {"-o", "mean"},
                                             {"-d", "float12"},
                                             {"-z", "4"},
                                             {"-r", "-1"},
                                             {"-t", "99999999999999999999"},
                                             {"--compare", "nccl"},
                                             {"-t", "2", "--compare", "mpi"},
                                             {"-K", "1"}}) {
    EXPECT_EQ(Parse(bad).status().code(), absl::StatusCode::kInvalidArgument)
        << bad[0];
  }
}

TEST(Flags, NameTheFlagThatIsWrong) {
  EXPECT_NE(Parse({"-b8", "--quick"}).status().message().find("--quick"),
            absl::string_view::npos);
  EXPECT_NE(Parse({"-d", "float12"}).status().message().find("bfloat16"),
            absl::string_view::npos);
}

TEST(Flags, TakeWhatHasNoMeaningOnACpuAtItsDefaultOnly) {
  EXPECT_TRUE(Parse({"-g", "1", "-G", "0", "-y", "0", "-p", "0"}).ok());
  for (const char* flag : {"-g", "-G", "-y", "-p", "-x", "-D", "-V", "-R"}) {
    EXPECT_EQ(Parse({flag, "2"}).status().code(),
              absl::StatusCode::kUnimplemented)
        << flag;
  }
}

TEST(Flags, RefuseSizesThatCannotBe) {
  for (const std::vector<std::string>& bad :
       std::vector<std::vector<std::string>>{{"-b", "8T"},
                                             {"-b", ""},
                                             {"-b", "K"},
                                             {"-b", "64M"},
                                             {"-e", "99999999999G"},
                                             {"-b", "0", "-f", "2"},
                                             {"-b", "8", "-i", "0"}}) {
    EXPECT_EQ(Parse(bad).status().code(), absl::StatusCode::kOutOfRange)
        << bad[1];
  }
}

TEST(Flags, SkipPairsWithoutMeaningUnlessAskedForSingly) {
  const Options every = *Parse({"-d", "all", "-o", "all"});
  // 8 integer types take 9 operators, 6 floats 6, bool 7, 2 complex 3.
  EXPECT_EQ(KindsOf(every, kReducing)->size(), 72U + 36 + 7 + 6);
  EXPECT_EQ(KindsOf(every, kMoving)->size(), 17U);
  const Options average = *Parse({"-d", "all", "-o", "avg"});
  EXPECT_EQ(KindsOf(average, kReducing)->size(), 16U);
  const Options single = *Parse({"-d", "float", "-o", "bxor"});
  EXPECT_EQ(KindsOf(single, kReducing).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Flags, AreAllInTheHelp) {
  const std::string help = HelpText("all_reduce");
  for (const char* name :
       {"--nthreads", "--minbytes", "--maxbytes", "--iters", "--check",
        "--datatype", "--blocking", "--compare", "--fresh", "--output_file"})
    EXPECT_NE(help.find(name), std::string::npos) << name;
  EXPECT_TRUE(Parse({"--help"})->help);
}

}  // namespace
}  // namespace trnccl::perf
