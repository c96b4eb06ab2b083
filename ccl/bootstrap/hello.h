// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The first message of a connection in the bootstrap, in its three kinds: a
// rank joins at the root, a rank links to its parent in the tree, a rank that
// can't do that reports why to the root; and the root's reply to the first.
//
// Thread rule: plain values. Parsing trusts no byte, though only ranks that
// know the secret get this far.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ccl/base/membership.h"
#include "ccl/bootstrap/address.h"

namespace trnccl {

inline constexpr int kMaxRanks = 65536;
inline constexpr size_t kMaxHostChars = 256;
inline constexpr size_t kMaxAgreementChars = 8 << 10;
inline constexpr size_t kMaxReportChars = 4 << 10;

struct JoinHello {
  Membership member;     // as the rank believes: may be nonsense
  int remaining_ms = 0;  // how long this rank is still going to wait
  std::string host;
  std::string agreement;  // lines "name=value" that all ranks must have alike
  std::vector<SocketAddress> addresses;  // where it listens for its children
};

struct LinkHello {
  int index = 0;  // of the child in the order of arrival
  int rank = 0;
  std::string host;
};

struct ReportHello {
  int rank = 0;
  std::string text;
};

using Hello = std::variant<JoinHello, LinkHello, ReportHello>;

std::string SerializeHello(const Hello& hello);
std::optional<Hello> ParseHello(std::string_view bytes);

// Where a rank stands in the tree: the i-th to arrive has the parent
// (i - 1) / 2, who came before it and so can be named at once.
struct JoinReply {
  int index = 0;
  int parent_rank = 0;
  std::string parent_host;
  std::vector<SocketAddress> parent_addresses;
};

std::string SerializeReply(const JoinReply& reply);
std::optional<JoinReply> ParseReply(std::string_view bytes);

}  // namespace trnccl
