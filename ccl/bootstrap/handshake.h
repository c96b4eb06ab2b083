// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How two ends prove to each other that they know a job's secret, without
// showing it: challenge and response by HMAC-SHA256 over fresh nonces of both
// sides, with a label for each role. What was recorded can't be replayed, and
// nobody's own answer can be reflected. It keeps strangers out; it doesn't
// encrypt, and later bytes aren't authenticated: the network is trusted.
//
//   client                                server
//   opening: magic, nonce         ->
//                                 <-      challenge: nonce, server's proof
//   client's proof                ->
//
// Thread rule: pure but for the random bytes; one thread a handshake.
//
//   ClientHandshake client(secret);       ServerHandshake server(secret);
//   send(client.opening());               server.Challenge(opening)
//   client.Prove(challenge)               server.Verify(proof)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trnccl {

inline constexpr size_t kSecretBytes = 16;
inline constexpr size_t kNonceBytes = 16;
inline constexpr size_t kProofBytes = 32;
inline constexpr std::string_view kHandshakeMagic = "TRNCCL\x01\n";
inline constexpr size_t kOpeningBytes = kHandshakeMagic.size() + kNonceBytes;
inline constexpr size_t kChallengeBytes = kNonceBytes + kProofBytes;

using Secret = std::array<uint8_t, kSecretBytes>;

// Bytes of the system's random generator. An error is one of the machine's.
absl::StatusOr<std::string> RandomBytes(size_t count);

// A secret that only who knows this one can derive, another one for each label.
Secret DeriveSecret(const Secret& secret, std::string_view label);

class ClientHandshake {
 public:
  static absl::StatusOr<ClientHandshake> Start(const Secret& secret);

  std::string Opening() const;
  // Checks the server's proof, gives the client's. Refuses (PermissionDenied) a
  // server that doesn't know the secret.
  absl::StatusOr<std::string> Prove(std::string_view challenge) const;

 private:
  ClientHandshake(const Secret& secret, std::string nonce)
      : secret_(secret), nonce_(std::move(nonce)) {}

  Secret secret_;
  std::string nonce_;
};

class ServerHandshake {
 public:
  static absl::StatusOr<ServerHandshake> Start(const Secret& secret);

  // Checks the form of the opening, gives the challenge.
  absl::StatusOr<std::string> Challenge(std::string_view opening);
  // OK if the client knows the secret and answered this very challenge.
  absl::Status Verify(std::string_view proof) const;

 private:
  ServerHandshake(const Secret& secret, std::string nonce)
      : secret_(secret), nonce_(std::move(nonce)) {}

  Secret secret_;
  std::string nonce_;
  std::string client_nonce_;  // empty until there was an opening
};

}  // namespace trnccl
