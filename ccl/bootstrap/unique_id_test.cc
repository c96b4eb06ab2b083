// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/unique_id.h"

#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const InterfaceChoice kLoopback = {"lo", SocketFamily::kIpv4};

TEST(UniqueId, ReadsBackFromItsBytes) {
  const UniqueId id = CreateUniqueId({"lo", SocketFamily::kAny}).value();
  const std::string bytes = id.Serialize();
  ASSERT_EQ(bytes.size(), kUniqueIdBytes);
  const UniqueId read = UniqueId::Parse(bytes).value();
  EXPECT_EQ(read.secret, id.secret);
  EXPECT_EQ(read.addresses, id.addresses);
  EXPECT_THAT(TakeListeners(read), SizeIs(id.addresses.size()));
}

TEST(UniqueId, AddressesOfTwentyInterfacesFit) {
  UniqueId id;
  id.addresses.assign(20, *SocketAddress::Parse("10.0.0.1:9"));
  id.addresses.push_back(*SocketAddress::Parse("[2001:db8::1]:9"));
  EXPECT_EQ(UniqueId::Parse(id.Serialize())->addresses, id.addresses);
}

TEST(UniqueId, HasOnePort) {
  const UniqueId id = CreateUniqueId({"lo", SocketFamily::kAny}).value();
  for (const SocketAddress& address : id.addresses) {
    EXPECT_EQ(address.port, id.addresses.front().port);
  }
}

TEST(UniqueId, TextHidesTheSecret) {
  UniqueId id;
  id.secret.fill('S');
  id.addresses = {*SocketAddress::Parse("127.0.0.1:4000")};
  EXPECT_EQ(id.ToString(), "unique id of 127.0.0.1:4000");
}

TEST(UniqueId, DamagedBytesAreRefused) {
  UniqueId id;
  id.addresses = {*SocketAddress::Parse("127.0.0.1:4000")};
  const std::string good = id.Serialize();
  const auto refusal = [&good](size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    return std::string(UniqueId::Parse(bad).status().message());
  };
  EXPECT_THAT(refusal(0, 'X'), HasSubstr("not a trnccl unique id"));
  EXPECT_THAT(refusal(8, 9), HasSubstr("another version"));
  EXPECT_THAT(refusal(25, 0), HasSubstr("damaged"));
  EXPECT_THAT(refusal(25, 25), HasSubstr("damaged"));
  EXPECT_THAT(refusal(26, 7), HasSubstr("damaged"));
  EXPECT_THAT(refusal(127, 1), HasSubstr("damaged"));
  EXPECT_FALSE(UniqueId::Parse(std::string(128, '\0')).ok());
  EXPECT_FALSE(UniqueId::Parse(good.substr(0, 127)).ok());
  EXPECT_FALSE(UniqueId::Parse(good + '\0').ok());
  EXPECT_FALSE(UniqueId::Parse("").ok());
}

TEST(UniqueId, EachHasItsOwnSecretAndPort) {
  std::set<std::string> ids;
  std::set<Secret> secrets;
  for (int i = 0; i < 20; ++i) {
    const UniqueId id = CreateUniqueId(kLoopback).value();
    ids.insert(id.ToString());
    secrets.insert(id.secret);
  }
  EXPECT_THAT(ids, SizeIs(20));
  EXPECT_THAT(secrets, SizeIs(20));
}

TEST(UniqueId, ListenersAreTakenOnce) {
  const UniqueId id = CreateUniqueId(kLoopback).value();
  EXPECT_THAT(TakeListeners(id), Not(IsEmpty()));
  EXPECT_THAT(TakeListeners(id), IsEmpty());
}

TEST(UniqueId, ForkedChildDoesNotServeForItsParent) {
  const UniqueId id = CreateUniqueId(kLoopback).value();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(TakeListeners(id).empty() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(TakeListeners(id), SizeIs(1));
}

TEST(UniqueId, NoInterfaceIsAnErrorThatListsThem) {
  EXPECT_THAT(
      std::string(
          CreateUniqueId({"=nosuch", SocketFamily::kAny}).status().message()),
      HasSubstr("lo (left out by name)"));
}

}  // namespace
}  // namespace trnccl
