// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/transfer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

// No address space is larger.
constexpr size_t kMaxBytes = (size_t{1} << 56) - 1;

std::string RankText(int rank) {
  return rank == kAnySource ? "any rank" : absl::StrCat("rank ", rank);
}

}  // namespace

std::string StageText(const Transfer& transfer) {
  const bool sends = transfer.direction == Transfer::kSend;
  switch (transfer.stage) {
    case Transfer::kWaiting:
      return sends ? "no matching receive yet" : "no matching message yet";
    case Transfer::kOffered:
      return "no matching receive yet";
    case Transfer::kReadable:
      return "no matching receive yet, or the peer still reads it";
    case Transfer::kStillRead:
      return "all sent, the peer still reads it";
    case Transfer::kMoving:
      break;
  }
  return absl::StrCat(
      transfer.moved_bytes, " of ",
      sends ? transfer.bytes : transfer.received_bytes, " bytes moved",
      sends ? "" : absl::StrCat(" from rank ", transfer.source));
}

std::string TransferText(const Transfer& transfer) {
  const std::string tag =
      transfer.tag == kAnyTag ? "any tag" : absl::StrCat("tag ", transfer.tag);
  if (transfer.direction == Transfer::kSend) {
    return absl::StrCat("send of ", transfer.bytes, " bytes to ",
                        RankText(transfer.peer), ", ", tag);
  }
  return absl::StrCat("receive of up to ", transfer.bytes, " bytes from ",
                      RankText(transfer.peer), ", ", tag);
}

absl::Status CheckTransfer(const Transfer& transfer, Membership membership) {
  const bool receives = transfer.direction == Transfer::kReceive;
  const size_t element_bytes = ElementBytes(transfer.type);
  std::string cause;
  if (transfer.peer >= membership.ranks ||
      transfer.peer < (receives ? kAnySource : 0)) {
    cause = absl::StrCat("there are only ranks 0 to ", membership.ranks - 1);
  } else if (transfer.tag < (receives ? kAnyTag : 0)) {
    cause = "tags are 0 or more";
  } else if (element_bytes == 0) {
    cause =
        absl::StrCat("unknown data type; the types are 0 to ", kDataTypes - 1);
  } else if (transfer.bytes > kMaxBytes) {
    cause = "the count doesn't fit in memory (or is negative)";
  } else if ((transfer.bytes & (element_bytes - 1)) != 0) {
    // Elements are powers of two: no division on the way of each message.
    cause = absl::StrCat("that's no whole number of ",
                         std::string(Name(transfer.type)), " elements");
  } else if (transfer.buffer == nullptr && transfer.bytes > 0) {
    cause = "the buffer is null";
  } else {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", membership.rank, ": ", TransferText(transfer), ": ", cause));
}

absl::Status CheckMatch(const Match& match) {
  if (match.bytes <= match.capacity_bytes && match.type == match.wanted_type) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", match.source, " sent rank ", match.destination, " ", match.bytes,
      " bytes of ", std::string(Name(match.type)), " with tag ", match.tag,
      ", but the receive that takes the message is for up to ",
      match.capacity_bytes, " bytes of ", std::string(Name(match.wanted_type)),
      "; both calls need the same type, and the receive the longer buffer"));
}

void Finish(Transfer* transfer, absl::Status status) {
  transfer->status = std::move(status);
  transfer->done = true;
}

}  // namespace trnccl
