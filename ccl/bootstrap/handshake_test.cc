// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/handshake.h"

#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr Secret kSecret = {1, 2,  3,  4,  5,  6,  7,  8,
                            9, 10, 11, 12, 13, 14, 15, 16};

Secret OtherSecret() {
  Secret secret = kSecret;
  secret[15] ^= 1;
  return secret;
}

TEST(Handshake, BothSidesAcceptTheSameSecret) {
  const ClientHandshake client = ClientHandshake::Start(kSecret).value();
  ServerHandshake server = ServerHandshake::Start(kSecret).value();
  const std::string challenge = server.Challenge(client.Opening()).value();
  const std::string proof = client.Prove(challenge).value();
  EXPECT_EQ(client.Opening().size(), kOpeningBytes);
  EXPECT_EQ(challenge.size(), kChallengeBytes);
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_TRUE(server.Verify(proof).ok());
}

TEST(Handshake, ClientRefusesAServerWithAnotherSecret) {
  const ClientHandshake client = ClientHandshake::Start(kSecret).value();
  ServerHandshake server = ServerHandshake::Start(OtherSecret()).value();
  const std::string challenge = server.Challenge(client.Opening()).value();
  EXPECT_TRUE(absl::IsPermissionDenied(client.Prove(challenge).status()));
}

TEST(Handshake, ServerRefusesAnyOtherProof) {
  const ClientHandshake client = ClientHandshake::Start(kSecret).value();
  ServerHandshake server = ServerHandshake::Start(kSecret).value();
  const std::string challenge = server.Challenge(client.Opening()).value();
  const std::string proof = client.Prove(challenge).value();
  for (size_t i = 0; i < proof.size(); ++i) {
    std::string wrong = proof;
    wrong[i] ^= 1;
    EXPECT_FALSE(server.Verify(wrong).ok());
  }
  EXPECT_FALSE(server.Verify("").ok());
  EXPECT_FALSE(server.Verify(proof.substr(1)).ok());
  // The server's own proof, reflected.
  EXPECT_FALSE(server.Verify(challenge.substr(kNonceBytes)).ok());
}

TEST(Handshake, ReplayedProofIsRefused) {
  const ClientHandshake client = ClientHandshake::Start(kSecret).value();
  ServerHandshake first = ServerHandshake::Start(kSecret).value();
  ServerHandshake second = ServerHandshake::Start(kSecret).value();
  const std::string proof =
      client.Prove(first.Challenge(client.Opening()).value()).value();
  ASSERT_TRUE(first.Verify(proof).ok());
  ASSERT_TRUE(second.Challenge(client.Opening()).ok());
  EXPECT_FALSE(second.Verify(proof).ok());
}

TEST(Handshake, ReplayedChallengeIsRefused) {
  const ClientHandshake first = ClientHandshake::Start(kSecret).value();
  const ClientHandshake second = ClientHandshake::Start(kSecret).value();
  ServerHandshake server = ServerHandshake::Start(kSecret).value();
  const std::string challenge = server.Challenge(first.Opening()).value();
  EXPECT_TRUE(first.Prove(challenge).ok());
  EXPECT_FALSE(second.Prove(challenge).ok());
}

TEST(Handshake, OpeningOfAnotherProtocolIsRefused) {
  ServerHandshake server = ServerHandshake::Start(kSecret).value();
  EXPECT_FALSE(server.Challenge("GET / HTTP/1.1\r\n\r\n......").ok());
  EXPECT_FALSE(server.Challenge("").ok());
  EXPECT_FALSE(server.Verify(std::string(kProofBytes, '\0')).ok());
}

}  // namespace
}  // namespace trnccl
