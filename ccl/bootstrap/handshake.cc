// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

constexpr std::string_view kClientLabel = "trnccl bootstrap client";
constexpr std::string_view kServerLabel = "trnccl bootstrap server";
constexpr std::string_view kDeriveLabel = "trnccl derived secret ";

struct Nonces {
  std::string_view client;
  std::string_view server;
};

std::string Hmac(const Secret& secret, std::string_view message) {
  std::string proof(kProofBytes, '\0');
  unsigned proof_bytes = 0;
  TRNCCL_CHECK(HMAC(EVP_sha256(), secret.data(), kSecretBytes,
                    reinterpret_cast<const unsigned char*>(message.data()),
                    message.size(),
                    reinterpret_cast<unsigned char*>(proof.data()),
                    &proof_bytes) != nullptr);
  TRNCCL_CHECK(proof_bytes == kProofBytes);
  return proof;
}

std::string Proof(const Secret& secret, std::string_view label,
                  const Nonces& nonces) {
  std::string message(label);
  message.append(nonces.client).append(nonces.server);
  return Hmac(secret, message);
}

// In a time that doesn't depend on where the two differ.
bool SameProof(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Secret DeriveSecret(const Secret& secret, std::string_view label) {
  std::string message(kDeriveLabel);
  message.append(label);
  const std::string bytes = Hmac(secret, message);
  Secret derived;
  std::copy_n(bytes.begin(), derived.size(), derived.begin());
  return derived;
}

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                 static_cast<int>(count)) != 1) {
    return absl::InternalError("the system has no random bytes to give");
  }
  return bytes;
}

absl::StatusOr<ClientHandshake> ClientHandshake::Start(const Secret& secret) {
  ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return ClientHandshake(secret, std::move(nonce));
}

std::string ClientHandshake::Opening() const {
  return std::string(kHandshakeMagic) + nonce_;
}

absl::StatusOr<std::string> ClientHandshake::Prove(
    std::string_view challenge) const {
  if (challenge.size() != kChallengeBytes) {
    return absl::InvalidArgumentError("a challenge of a wrong length");
  }
  const Nonces nonces{nonce_, challenge.substr(0, kNonceBytes)};
  if (!SameProof(challenge.substr(kNonceBytes),
                 Proof(secret_, kServerLabel, nonces))) {
    return absl::PermissionDeniedError(
        "the server doesn't know this job's secret: another program or job "
        "answers at this address");
  }
  return Proof(secret_, kClientLabel, nonces);
}

absl::StatusOr<ServerHandshake> ServerHandshake::Start(const Secret& secret) {
  ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return ServerHandshake(secret, std::move(nonce));
}

absl::StatusOr<std::string> ServerHandshake::Challenge(
    std::string_view opening) {
  if (opening.size() != kOpeningBytes ||
      !opening.starts_with(kHandshakeMagic) || !client_nonce_.empty()) {
    return absl::InvalidArgumentError("not the opening of a trnccl rank");
  }
  client_nonce_ = opening.substr(kHandshakeMagic.size());
  return nonce_ + Proof(secret_, kServerLabel, {client_nonce_, nonce_});
}

absl::Status ServerHandshake::Verify(std::string_view proof) const {
  if (client_nonce_.empty() ||
      !SameProof(proof,
                 Proof(secret_, kClientLabel, {client_nonce_, nonce_}))) {
    return absl::PermissionDeniedError("a stranger: the secret is wrong");
  }
  return absl::OkStatus();
}

}  // namespace trnccl
