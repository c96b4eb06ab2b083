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
                 {"SLURM_PROCID", "SLURM_NTASKS"},
                 {"JOB_COMPLETION_INDEX", "WORLD_SIZE"}}) {
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

TEST(Launch, BelievesTorchrunBeforeWhatStartedIt) {
  for (const auto& [rank, size] :
       Variables{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
    const Launch launch = *Find({{rank, "1"},
                                 {size, "2"},
                                 {"TORCHELASTIC_RUN_ID", "job"},
                                 {"RANK", "5"},
                                 {"WORLD_SIZE", "8"}});
    EXPECT_EQ(launch.process, 5) << rank;
    EXPECT_EQ(launch.processes, 8) << size;
    EXPECT_FALSE(launch.by_mpi);
  }
}

TEST(Launch, BelievesMpirunInsideAKubernetesPod) {
  const Launch launch = *Find({{"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"RANK", "0"},
                               {"WORLD_SIZE", "2"}});
  EXPECT_EQ(launch.process, 3);
  EXPECT_EQ(launch.processes, 4);
}

TEST(Launch, CountsAStepOfSlurmNotItsWholeJob) {
  const Launch launch = *Find({{"SLURM_PROCID", "1"},
                               {"SLURM_STEP_NUM_TASKS", "2"},
                               {"SLURM_NTASKS", "64"}});
  EXPECT_EQ(launch.process, 1);
  EXPECT_EQ(launch.processes, 2);
}

TEST(Launch, IsOneProcessInAnIndexedJobThatSaysNoSize) {
  EXPECT_EQ(Find({{"JOB_COMPLETION_INDEX", "3"}})->processes, 1);
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
