// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/doorbell.h"

#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

bool Rang(const Doorbell& bell) {
  pollfd entry = {.fd = bell.fd(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

TEST(Doorbell, RingsUntilDrained) {
  auto bell = Doorbell::Create();
  ASSERT_TRUE(bell.ok()) << bell.status();
  auto ringer = Ringer::Open((*bell)->address());
  ASSERT_TRUE(ringer.ok()) << ringer.status();
  EXPECT_FALSE(Rang(**bell));
  (*ringer)->Ring();
  EXPECT_TRUE(Rang(**bell));
  (*bell)->Drain();
  EXPECT_FALSE(Rang(**bell));
}

TEST(Doorbell, NeverBlocksTheRinger) {
  auto bell = Doorbell::Create();
  ASSERT_TRUE(bell.ok()) << bell.status();
  auto ringer = Ringer::Open((*bell)->address());
  ASSERT_TRUE(ringer.ok()) << ringer.status();
  for (int i = 0; i < 200'000; ++i) (*ringer)->Ring();
  (*bell)->Drain();
  EXPECT_FALSE(Rang(**bell));
}

TEST(Doorbell, IsHeardFromAnotherProcess) {
  auto bell = Doorbell::Create();
  ASSERT_TRUE(bell.ok()) << bell.status();
  const pid_t child = fork();
  if (child == 0) {
    auto ringer = Ringer::Open((*bell)->address());
    if (!ringer.ok()) _exit(1);
    (*ringer)->Ring();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Rang(**bell));
}

TEST(Doorbell, RingingAfterItsEndIsHarmless) {
  auto bell = Doorbell::Create();
  ASSERT_TRUE(bell.ok()) << bell.status();
  auto ringer = Ringer::Open((*bell)->address());
  ASSERT_TRUE(ringer.ok()) << ringer.status();
  bell->reset();
  (*ringer)->Ring();
}

TEST(Doorbell, RingsNothingButPipes) {
  FILE* file = tmpfile();
  ASSERT_NE(file, nullptr);
  struct stat status = {};
  ASSERT_EQ(fstat(fileno(file), &status), 0);
  const std::string inode = std::to_string(status.st_ino);
  const std::string fd = std::to_string(fileno(file));
  const std::string pid = std::to_string(getpid());
  for (const std::string& address :
       {pid + ":" + fd + ":" + inode, "self:" + fd + ":" + inode,
        "self/fd/../../self:" + fd + ":" + inode, pid + ":-1:" + inode,
        "0:" + fd + ":" + inode, pid + ":" + fd + "/.:" + inode}) {
    EXPECT_FALSE(Ringer::Open(address).ok()) << address;
  }
  fclose(file);
}

TEST(Doorbell, NamesTheAddressThatCannotBeOpened) {
  auto ringer = Ringer::Open("/proc/0/fd/1");
  ASSERT_FALSE(ringer.ok());
  EXPECT_NE(ringer.status().ToString().find("/proc/0/fd/1"), std::string::npos);
}

}  // namespace
}  // namespace trnccl
