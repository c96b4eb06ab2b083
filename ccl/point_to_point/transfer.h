// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One send or receive of point-to-point, and what errors say about it.
//
// Thread rule: thread-compatible.
//
//   Transfer send{.direction = Transfer::kSend, .peer = 3, .tag = 7, ...};
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "ccl/base/membership.h"
#include "ccl/base/types.h"
#include "transports/transport.h"

namespace trnccl {

inline constexpr int kAnySource = -1;
inline constexpr int64_t kAnyTag = -1;

// One send or receive. The caller keeps it until it's done.
struct Transfer {
  enum Direction : uint8_t { kSend, kReceive };

  Direction direction = kSend;
  DataType type = DataType::kUint8;
  int peer = 0;  // kAnySource for receives
  int64_t tag = 0;
  std::byte* buffer = nullptr;  // only read by a send
  size_t bytes = 0;             // a receive's capacity
  const Region* region =
      nullptr;  // registered memory that holds a send's buffer

  // Results, once `done`.
  bool done = false;
  absl::Status status;
  int source = 0;
  int64_t received_tag = 0;
  size_t received_bytes = 0;

  // The engine's own.
  enum Stage : uint8_t { kWaiting, kOffered, kReadable, kMoving, kStillRead };
  Stage stage = kWaiting;
  uint32_t id = 0;
  size_t moved_bytes = 0;
};

// "send of 64 bytes to rank 3, tag 7".
std::string TransferText(const Transfer& transfer);
// How far it is: "no matching receive yet".
std::string StageText(const Transfer& transfer);

// InvalidArgument if there's no such rank, tag, type or buffer.
absl::Status CheckTransfer(const Transfer& transfer, Membership membership);

// A message and the receive that takes it.
struct Match {
  int source = 0;
  int destination = 0;
  int64_t tag = 0;
  size_t bytes = 0;
  DataType type = DataType::kUint8;
  size_t capacity_bytes = 0;
  DataType wanted_type = DataType::kUint8;
};

// InvalidArgument if the message is too long or of another type.
absl::Status CheckMatch(const Match& match);

void Finish(Transfer* transfer, absl::Status status);

}  // namespace trnccl
