// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Apart from its sibling, since sanitizers need the address space themselves.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "transports/available_memory.h"
#include "transports/shared_memory.h"

namespace trnccl {
namespace {

// Runs the body in a child and gives its exit code.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(SharedMemoryLimits, AreErrorsThatSayWhatToRaise) {
  const auto limited = [](int resource, rlim_t limit, const char* advice) {
    return InChild([=] {
      const rlimit value = {limit, limit};
      setrlimit(static_cast<__rlimit_resource_t>(resource), &value);
      const auto base = AllocateShared(256 << 20);
      if (base.status().code() != absl::StatusCode::kResourceExhausted) {
        return 1;
      }
      const std::string text(base.status().message());
      return text.find(advice) == std::string::npos ? 2 : 0;
    });
  };
  EXPECT_EQ(limited(RLIMIT_FSIZE, 1 << 20, "ulimit -f"), 0);
  EXPECT_EQ(limited(RLIMIT_NOFILE, 3, "ulimit -n"), 0);
}

TEST(SharedMemoryLimits, AddressSpaceIsAnError) {
  EXPECT_EQ(
      InChild([] {
        const rlimit value = {200 << 20, 200 << 20};
        setrlimit(RLIMIT_AS, &value);
        const auto base = AllocateShared(256 << 20);
        return base.status().code() == absl::StatusCode::kResourceExhausted ? 0
                                                                            : 1;
      }),
      0);
}

TEST(SharedMemoryLimits, TooMuchIsAnError) {
  EXPECT_EQ(AllocateShared(SIZE_MAX).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_LT(AvailableMemoryBytes(), uint64_t{1} << 48);
  EXPECT_EQ(AllocateShared(SIZE_MAX / 4).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace trnccl
