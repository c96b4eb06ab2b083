// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/data_lane.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/point_to_point/message.h"

namespace trnccl {
namespace {

// The most messages that one Advance() takes from or gives to the link.
constexpr int kBurst = 16;

}  // namespace

bool DataLane::GoesByReference(const Transfer& send) const {
  return options_.transport->traits().by_reference && send.region != nullptr &&
         send.region->by_reference();
}

absl::StatusOr<bool> DataLane::Advance() {
  bool moved = false;
  if (!receiving_.empty()) {
    ASSIGN_OR_RETURN(moved, Read());
  }
  if (!sending_.empty()) moved |= Write();
  if (!still_read_.empty()) moved |= FinishReleased();
  return moved;
}

const Incoming* DataLane::Look() {
  Transport& transport = *options_.transport;
  const Transfer& receive = *receiving_.front();
  Expected expected{.bytes =
                        std::min(transport.traits().slice_bytes,
                                 receive.received_bytes - receive.moved_bytes)};
  if (receive.region != nullptr) {
    expected.landing = receive.buffer + receive.moved_bytes;
    expected.region = receive.region;
  }
  return transport.Peek(options_.link, &expected);
}

absl::StatusOr<bool> DataLane::Read() {
  int count = 0;
  for (; count < kBurst && !receiving_.empty(); ++count) {
    const Incoming* incoming = Look();
    if (incoming == nullptr) break;
    const absl::StatusOr<MessageHeader> header =
        OpenMessage(*incoming, options_.cookie);
    if (!header.ok()) return header.status();
    Transfer* receive = receiving_.front();
    const size_t left_bytes = receive->received_bytes - receive->moved_bytes;
    if (header->kind != MessageKind::kData || header->id != receive->id ||
        incoming->bytes == 0 || incoming->bytes > left_bytes) {
      return absl::UnavailableError(absl::StrCat(
          incoming->bytes, " bytes of offer ", header->id, " came where up to ",
          left_bytes, " of offer ", receive->id, " belong"));
    }
    std::byte* place = receive->buffer + receive->moved_bytes;
    if (place != incoming->data)
      std::memcpy(place, incoming->data, incoming->bytes);
    if (incoming->by_reference && options_.gone != nullptr)
      RETURN_IF_ERROR(options_.gone(options_.peer));
    receive->moved_bytes += incoming->bytes;
    options_.transport->Release(options_.link);
    if (receive->moved_bytes == receive->received_bytes) {
      receiving_.pop_front();
      Finish(receive, absl::OkStatus());
    }
  }
  return count > 0;
}

bool DataLane::Write() {
  int count = 0;
  for (; count < kBurst && !sending_.empty(); ++count) {
    Transfer* send = sending_.front();
    if (!WriteSlice(*send)) break;
    if (send->moved_bytes < send->bytes) continue;
    sending_.pop_front();
    if (GoesByReference(*send)) {
      send->stage = Transfer::kStillRead;
      still_read_.push_back({send, messages_});
    } else {
      Finish(send, absl::OkStatus());
    }
  }
  return count > 0;
}

bool DataLane::WriteSlice(Transfer& send) {
  const std::byte* source = send.buffer + send.moved_bytes;
  const LinkId links[] = {options_.link};
  Outgoing message = {
      .envelope = SealMessage(
          {.kind = MessageKind::kData, .type = send.type, .id = send.id},
          options_.cookie),
      .bytes = std::min(options_.transport->traits().slice_bytes,
                        send.bytes - send.moved_bytes)};
  if (GoesByReference(send)) {
    message.region = send.region;
    message.offset = static_cast<size_t>(source - send.region->base());
  } else {
    std::byte* slice = options_.transport->Reserve(links, message.bytes);
    if (slice == nullptr) return false;
    std::memcpy(slice, source, message.bytes);
  }
  if (!options_.transport->Send(links, message)) return false;
  ++messages_;
  send.moved_bytes += message.bytes;
  return true;
}

bool DataLane::FinishReleased() {
  const uint64_t released =
      messages_ - options_.transport->Pending(options_.link);
  bool moved = false;
  while (!still_read_.empty() && still_read_.front().last_message <= released) {
    Finish(still_read_.front().transfer, absl::OkStatus());
    still_read_.pop_front();
    moved = true;
  }
  return moved;
}

void DataLane::FailAll(const absl::Status& status) {
  const auto fail = [&status](auto& list, auto transfer_of) {
    for (size_t i = 0; i < list.size(); ++i)
      Finish(transfer_of(list[i]), status);
    list.clear();
  };
  const auto itself = [](Transfer* transfer) { return transfer; };
  fail(sending_, itself);
  fail(receiving_, itself);
  fail(still_read_, [](const StillRead& sent) { return sent.transfer; });
}

}  // namespace trnccl
