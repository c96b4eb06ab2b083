// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// That --config=asan and --config=tsan really put a sanitizer in: a green run
// under a config that lost its flags would prove nothing.
#include <cstdlib>
#include <string_view>

#include "gtest/gtest.h"

extern "C" {
// Present only where the sanitizer's runtime is linked in.
void __attribute__((weak)) __asan_init();
void __attribute__((weak)) __tsan_init();
}

namespace trnccl {
namespace {

TEST(Sanitizers, AreThoseThatTheConfigNames) {
  // .bazelrc sets it beside the compiler's flags.
  const char* config = std::getenv("EXPECT_SANITIZER");
  const std::string_view wanted = config == nullptr ? "" : config;
  EXPECT_EQ(&__asan_init != nullptr, wanted == "asan");
  EXPECT_EQ(&__tsan_init != nullptr, wanted == "tsan");
}

}  // namespace
}  // namespace trnccl
