// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/settings.h"

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

absl::StatusOr<Settings> Load(const std::vector<const char*>& environment,
                              const std::vector<std::string>& overrides = {}) {
  std::vector<const char*> entries = environment;
  entries.push_back(nullptr);
  return LoadSettings(entries.data(), overrides);
}

std::string ErrorOf(const char* entry) {
  const absl::StatusOr<Settings> settings = Load({entry});
  EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument)
      << entry;
  return std::string(settings.status().message());
}

TEST(Settings, DefaultsStandWithoutEnvironment) {
  const Settings settings = Load({"PATH=/bin", "NCCL_DEBUG=INFO"}).value();
  EXPECT_EQ(settings.timeout_ms, 1'800'000);
  EXPECT_EQ(settings.arena_bytes, 4 << 20);
  EXPECT_EQ(settings.log_level, LogLevel::kWarn);
  EXPECT_TRUE(settings.shm_by_reference);
  EXPECT_THAT(settings.transport, IsEmpty());
}

TEST(Settings, EveryKindIsReadFromTheEnvironment) {
  const Settings settings =
      Load({"TRNCCL_LANES=3", "TRNCCL_ARENA_BYTES=8m", "TRNCCL_SPIN_US=2ms",
            "TRNCCL_TIMEOUT_MS=90s", "TRNCCL_DETERMINISM=Strict",
            "TRNCCL_SHM_BY_REFERENCE=0", "TRNCCL_TRANSPORT=shm,inproc",
            "TRNCCL_ALGORITHM=all_reduce:ring;all_gather:^bruck"})
          .value();
  EXPECT_EQ(settings.lanes, 3);
  EXPECT_EQ(settings.arena_bytes, 8 << 20);
  EXPECT_EQ(settings.spin_us, 2'000);
  EXPECT_EQ(settings.timeout_ms, 90'000);
  EXPECT_EQ(settings.determinism, Determinism::kStrict);
  EXPECT_FALSE(settings.shm_by_reference);
  EXPECT_THAT(settings.transport, ElementsAre("shm", "inproc"));
  EXPECT_EQ(settings.algorithm, "all_reduce:ring;all_gather:^bruck");
}

TEST(Settings, OverridesWinOverTheEnvironment) {
  EXPECT_EQ(Load({"TRNCCL_LANES=3"}, {"TRNCCL_LANES=5"})->lanes, 5);
}

TEST(Settings, UnknownNameIsAnErrorThatNamesTheClosest) {
  EXPECT_THAT(ErrorOf("TRNCCL_TIMEOUT=5"),
              AllOf(HasSubstr("TRNCCL_TIMEOUT;"),
                    HasSubstr("did you mean TRNCCL_TIMEOUT_MS?")));
  EXPECT_THAT(ErrorOf("TRNCCL_LANSE=5"), HasSubstr("TRNCCL_LANES?"));
  EXPECT_THAT(std::string(Load({}, {"lanes=2"}).status().message()),
              HasSubstr("unknown setting lanes"));
  EXPECT_THAT(std::string(Load({}, {"TRNCCL_LANES"}).status().message()),
              HasSubstr("has no value"));
}

TEST(Settings, BadValueIsAnErrorThatNamesWhatIsAllowedAndWhatItMeans) {
  EXPECT_THAT(ErrorOf("TRNCCL_LANES=9"),
              AllOf(HasSubstr("TRNCCL_LANES='9'"), HasSubstr("0 to 8"),
                    HasSubstr("side by side")));
  EXPECT_THAT(ErrorOf("TRNCCL_WAIT=snooze"),
              HasSubstr("auto, spin, yield, sleep"));
  for (const char* entry :
       {"TRNCCL_LANES=", "TRNCCL_LANES=-1", "TRNCCL_LANES=2x",
        "TRNCCL_LANES=99999999999999999999", "TRNCCL_ARENA_BYTES=1",
        "TRNCCL_ARENA_BYTES=1T", "TRNCCL_ARENA_BYTES=9999999999G",
        "TRNCCL_ARENA_BYTES=K", "TRNCCL_TIMEOUT_MS=0", "TRNCCL_TIMEOUT_MS=10us",
        "TRNCCL_TIMEOUT_MS=1.5s", "TRNCCL_SHM_BY_REFERENCE=maybe",
        "TRNCCL_HOST_ID=a\nb"}) {
    EXPECT_THAT(ErrorOf(entry), HasSubstr("is not allowed")) << entry;
  }
  const std::string endless = "TRNCCL_HOST_ID=" + std::string(100'000, 'x');
  EXPECT_LT(ErrorOf(endless.c_str()).size(), 500u);
}

TEST(Settings, TextOfTheEffectiveValuesReadsBackAlike) {
  const Settings settings =
      Load({"TRNCCL_ARENA_BYTES=300K", "TRNCCL_WAIT=sleep",
            "TRNCCL_TRANSPORT=shm,inproc", "TRNCCL_SHM_BY_REFERENCE=off"})
          .value();
  const std::string text = SettingsText(settings);
  EXPECT_THAT(text, AllOf(HasSubstr("TRNCCL_ARENA_BYTES=300K\n"),
                          HasSubstr("TRNCCL_WAIT=sleep\n"),
                          HasSubstr("TRNCCL_SHM_BY_REFERENCE=off\n")));
  std::vector<std::string> entries;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) entries.push_back(line);
  EXPECT_EQ(SettingsText(Load({}, entries).value()), text);
}

TEST(Settings, AgreementHoldsWhatRanksDecideFromAndNoMore) {
  const std::string text = AgreedSettingsText(Settings{});
  EXPECT_THAT(text, HasSubstr("TRNCCL_LANES=0\n"));
  EXPECT_THAT(text, HasSubstr("TRNCCL_DETERMINISM=default\n"));
  EXPECT_THAT(text, Not(HasSubstr("TRNCCL_LOG_LEVEL")));
  EXPECT_THAT(text, Not(HasSubstr("TRNCCL_SOCKET_IFNAME")));
}

TEST(Settings, PageIsUpToDate) {
  std::ifstream file("docs/settings.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), SettingsMarkdown())
      << "run: bazel run //ccl/base:settings_markdown > docs/settings.md";
}

}  // namespace
}  // namespace trnccl
