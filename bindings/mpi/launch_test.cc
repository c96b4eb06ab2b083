// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/launch.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

using Variables = std::map<std::string, std::string>;

absl::StatusOr<Launch> Find(const Variables& variables) {
  return FindLaunch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

absl::StatusOr<int> Group(const Variables& variables, int rank) {
  return SplitGroup(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      rank);
}

TEST(Launch, IsOneProcessWithoutALauncher) {
  const Launch launch = *Find({});
  EXPECT_EQ(launch.process, 0);
  EXPECT_EQ(launch.processes, 1);
  EXPECT_FALSE(launch.by_mpi);
}

TEST(Launch, UnderstandsEachLauncher) {
  for (const auto& [rank, size] :
       Variables{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"RANK", "WORLD_SIZE"},
                 {"SLURM_PROCID", "SLURM_NTASKS"}}) {
    const Launch launch = *Find({{rank, "2"}, {size, "5"}});
    EXPECT_EQ(launch.process, 2) << rank;
    EXPECT_EQ(launch.processes, 5) << size;
    EXPECT_EQ(launch.by_mpi, rank == "OMPI_COMM_WORLD_RANK");
  }
}

TEST(Launch, BelievesMpirunBeforeABatchSystem) {
  const Launch launch = *Find({{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(launch.process, 1);
  EXPECT_TRUE(launch.by_mpi);
}

TEST(Launch, NamesTheVariableThatMakesNoSense) {
  const Variables bad[] = {{{"RANK", "x"}, {"WORLD_SIZE", "2"}},
                           {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
                           {{"RANK", "-1"}, {"WORLD_SIZE", "2"}},
                           {{"RANK", "0"}}};
  for (const Variables& variables : bad) {
    const absl::Status status = Find(variables).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(
        status.message().find(variables.size() == 1 ? "WORLD_SIZE" : "RANK"),
        absl::string_view::npos);
  }
}

TEST(SplitGroup, FollowsTheRule) {
  EXPECT_EQ(*Group({}, 3), 0);
  EXPECT_EQ(*Group({{"NCCL_TESTS_SPLIT", "MOD 2"}}, 3), 1);
  EXPECT_EQ(*Group({{"NCCL_TESTS_SPLIT", "DIV 2"}}, 3), 1);
  EXPECT_EQ(*Group({{"NCCL_TESTS_SPLIT", "AND 2"}}, 3), 2);
  EXPECT_EQ(*Group({{"NCCL_TESTS_SPLIT", "OR 4"}}, 3), 7);
  EXPECT_EQ(*Group({{"NCCL_TESTS_SPLIT_MASK", "1"}}, 3), 1);
  for (const char* bad : {"MOD 0", "MOD", "XOR 1", "MOD x", "2"})
    EXPECT_FALSE(Group({{"NCCL_TESTS_SPLIT", bad}}, 3).ok()) << bad;
}

}  // namespace
}  // namespace trnccl::perf
