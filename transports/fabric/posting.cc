// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Port that posts to endpoints.
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/gather.h"
#include "transports/fabric/port.h"

namespace trnccl::fabric {

absl::Status Port::PostReceive(size_t rail, Receive* receive) {
  receive->posted.rail = static_cast<uint8_t>(rail);
  const ssize_t code = fi_recv(rails_[rail]->endpoint(), receive->data,
                               sizeof(WireHeader) + provider_.eager_bytes,
                               receive->slab->descriptor(rail), FI_ADDR_UNSPEC,
                               &receive->posted.context);
  if (code == 0) {
    ++rooms_[rail].packets_posted;
    return absl::OkStatus();
  }
  buffers_->Free(receive);
  // Polling makes another try.
  if (code == -FI_EAGAIN) return absl::OkStatus();
  return rails_[rail]->Checked("fi_recv", code);
}

absl::Status Port::PostReceives(size_t rail) {
  const Room& room = rooms_[rail];
  while (room.packets_posted < room.packets) {
    const size_t before = room.packets_posted;
    ASSIGN_OR_RETURN(Receive * receive, buffers_->NewReceive());
    RETURN_IF_ERROR(PostReceive(rail, receive));
    if (room.packets_posted == before) break;
  }
  return absl::OkStatus();
}

ssize_t Port::PostPacket(Send* send, fid_ep* endpoint) {
  const size_t rail = send->posted.rail;
  void* own = send->slab->descriptor(rail);
  // Never injected: nothing would tell when it's on its way.
  if (send->is_small || send->bytes == 0) {
    return fi_send(endpoint, &send->header, sizeof(WireHeader) + send->bytes,
                   own, send->peer, &send->posted.context);
  }
  Gathered gathered;
  gathered.Add(&send->header, sizeof(WireHeader), own);
  gathered.Add(send->data, send->bytes, send->descriptor);
  return fi_sendv(endpoint, gathered.parts.data(), gathered.descriptors.data(),
                  gathered.count, send->peer, &send->posted.context);
}

ssize_t Port::PostTagged(Send* send, fid_ep* endpoint) {
  Gathered gathered;
  if (send->has_header) {
    gathered.Add(&send->header, sizeof(WireHeader),
                 send->slab->descriptor(send->posted.rail));
  }
  if (send->bytes > 0) gathered.Add(send->data, send->bytes, send->descriptor);
  return fi_tsendv(endpoint, gathered.parts.data(), gathered.descriptors.data(),
                   gathered.count, send->peer, send->tag,
                   &send->posted.context);
}

ssize_t Port::PostWrite(Send* send, fid_ep* endpoint) {
  const iovec local = {const_cast<std::byte*>(send->data), send->bytes};
  const fi_rma_iov remote = {.addr = send->target.address,
                             .len = send->bytes,
                             .key = send->target.key};
  void* descriptor = send->descriptor;
  const fi_msg_rma message = {.msg_iov = &local,
                              .desc = &descriptor,
                              .iov_count = 1,
                              .addr = send->peer,
                              .rma_iov = &remote,
                              .rma_iov_count = 1,
                              .context = &send->posted.context,
                              .data = send->tag};
  return fi_writemsg(endpoint, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION);
}

// Peers that take nothing don't get all of an endpoint: half of it is for those
// who have nothing in it yet.
bool Port::MayPost(const Send& send) const {
  const size_t rail = send.posted.rail;
  return rooms_[rail].transmits_posted < rooms_[rail].transmits / 2 ||
         held_[send.peer_id][rail] == 0;
}

ssize_t Port::TryPost(Send* send) {
  if (!MayPost(*send)) return -FI_EAGAIN;
  const size_t rail = send->posted.rail;
  fid_ep* endpoint = rails_[rail]->endpoint();
  ssize_t code = 0;
  switch (send->travel) {
    case Send::Travel::kPacket:
      code = PostPacket(send, endpoint);
      break;
    case Send::Travel::kTagged:
      code = PostTagged(send, endpoint);
      break;
    case Send::Travel::kWrite:
      code = PostWrite(send, endpoint);
      break;
  }
  if (code == 0) {
    ++rooms_[rail].transmits_posted;
    ++held_[send->peer_id][rail];
  }
  return code;
}

void Port::TakeBack(const Send& send) {
  --rooms_[send.posted.rail].transmits_posted;
  --held_[send.peer_id][send.posted.rail];
}

void Port::Post(Send* send) {
  if (!usable()) return FailSend(send, status_);
  const ssize_t code = TryPost(send);
  if (code == -FI_EAGAIN) return Defer(send);
  if (code < 0)
    FailSend(send, rails_[send->posted.rail]->Checked("posting", code));
}

void Port::Defer(Send* send) {
  send->next = nullptr;
  *deferred_end_ = send;
  deferred_end_ = &send->next;
}

// A peer that takes nothing, since it isn't there yet, doesn't hold up others;
// whatever order comes of it, links restore theirs.
bool Port::PostDeferred() {
  if (deferred_ == nullptr) [[likely]]
    return false;
  Send* waiting = std::exchange(deferred_, nullptr);
  deferred_end_ = &deferred_;
  bool moved = false;
  while (waiting != nullptr) {
    Send* send = std::exchange(waiting, waiting->next);
    const ssize_t code = TryPost(send);
    if (code == -FI_EAGAIN) {
      Defer(send);
      continue;
    }
    moved = true;
    if (code < 0)
      FailSend(send, rails_[send->posted.rail]->Checked("posting", code));
  }
  return moved;
}

void Port::DropReferences(uint32_t endpoint) {
  Send* waiting = std::exchange(deferred_, nullptr);
  deferred_end_ = &deferred_;
  while (waiting != nullptr) {
    Send* send = std::exchange(waiting, waiting->next);
    if (send->client == endpoint && send->by_reference())
      FailSend(send, absl::CancelledError("its sender has left"));
    else
      Defer(send);
  }
}

void Port::Finish(Send* send) {
  TakeBack(*send);
  if (Client* client = Find(send->client)) client->OnSent(*send);
  buffers_->Free(send);
}

void Port::FailSend(Send* send, const absl::Status& status) {
  if (Client* client = Find(send->client)) client->OnSendFailed(*send, status);
  buffers_->Free(send);
}

void Port::Recycle(Receive* receive) {
  const size_t rail = receive->posted.rail;
  if (!usable() || rooms_[rail].packets_posted >= rooms_[rail].packets)
    return buffers_->Free(receive);
  const absl::Status posted = PostReceive(rail, receive);
  if (!posted.ok()) Break(posted);
}

}  // namespace trnccl::fabric
