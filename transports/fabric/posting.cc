// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Port that posts to endpoints.
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/port.h"

namespace trnccl::fabric {
namespace {

constexpr size_t kReceives = 32;
constexpr unsigned kStripeBits = 4;

// A header and a payload as one message, with their descriptors.
struct Gathered {
  std::array<iovec, 2> parts;
  std::array<void*, 2> descriptors;
  size_t count = 0;

  void Add(const void* base, size_t bytes, void* descriptor) {
    parts[count] = {const_cast<void*>(base), bytes};
    descriptors[count++] = descriptor;
  }
};

}  // namespace

absl::Status Port::PostReceive(size_t rail, Receive* receive) {
  receive->posted.rail = static_cast<uint8_t>(rail);
  const ssize_t code = fi_recv(rails_[rail]->endpoint(), receive->data,
                               sizeof(WireHeader) + provider_.eager_bytes,
                               receive->slab->descriptor(rail), FI_ADDR_UNSPEC,
                               &receive->posted.context);
  if (code == 0) {
    ++receives_posted_[rail];
    return absl::OkStatus();
  }
  buffers_->Free(receive);
  // The next packet that comes makes another try.
  if (code == -FI_EAGAIN) return absl::OkStatus();
  return library_.Error("fi_recv", code);
}

absl::Status Port::PostReceives(size_t rail) {
  while (receives_posted_[rail] < kReceives) {
    const size_t before = receives_posted_[rail];
    ASSIGN_OR_RETURN(Receive * receive, buffers_->NewReceive());
    RETURN_IF_ERROR(PostReceive(rail, receive));
    if (receives_posted_[rail] == before) break;
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

ssize_t Port::TryPost(Send* send) {
  fid_ep* endpoint = rails_[send->posted.rail]->endpoint();
  switch (send->travel) {
    case Send::Travel::kPacket:
      return PostPacket(send, endpoint);
    case Send::Travel::kTagged:
      return PostTagged(send, endpoint);
    case Send::Travel::kWrite:
      return PostWrite(send, endpoint);
  }
  return -FI_EINVAL;
}

void Port::Post(Send* send) {
  if (!status_.ok()) return FailSend(send, status_);
  const ssize_t code = TryPost(send);
  if (code == -FI_EAGAIN) return Defer(send);
  if (code < 0) FailSend(send, library_.Error("posting a message", code));
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
    if (code < 0) FailSend(send, library_.Error("posting a message", code));
  }
  return moved;
}

void Port::Finish(Send* send) {
  if (Client* client = Find(send->client)) client->OnSent(*send);
  buffers_->Free(send);
}

void Port::FailSend(Send* send, const absl::Status& status) {
  if (Client* client = Find(send->client)) client->OnSendFailed(*send, status);
  buffers_->Free(send);
}

absl::Status Port::Await(Landing* landing,
                         const std::array<void*, kMaxRails>& descriptors) {
  landing->open = landing->stripes;
  if (provider_.writes) return absl::OkStatus();
  for (size_t i = 0; i < landing->stripes; ++i) {
    const Stripe stripe = StripeOf(landing->bytes, landing->stripes, i);
    Gathered gathered;
    if (i == 0) {
      gathered.Add(&landing->header, sizeof(WireHeader),
                   landing->slab->descriptor(i));
    }
    if (stripe.bytes > 0) {
      gathered.Add(landing->data + stripe.offset, stripe.bytes,
                   landing->payload == nullptr
                       ? descriptors[i]
                       : landing->payload->slab->descriptor(i));
    }
    Posted& posted = landing->posted[i];
    posted.rail = static_cast<uint8_t>(i);
    ssize_t code = 0;
    do {
      code = fi_trecvv(
          rails_[i]->endpoint(), gathered.parts.data(),
          gathered.descriptors.data(), gathered.count, FI_ADDR_UNSPEC,
          uint64_t{landing->number} << kStripeBits | i, 0, &posted.context);
      // A queue of receives that's full empties by polling.
      if (code == -FI_EAGAIN) PollRail(i);
    } while (code == -FI_EAGAIN && status_.ok());
    if (code < 0) {
      landing->failed = true;
      landing->open -= landing->stripes - static_cast<uint32_t>(i);
      return library_.Error("fi_trecvv", code);
    }
  }
  return absl::OkStatus();
}

void Port::GiveUp(Landing* landing) {
  landing->failed = true;
  // Nothing is posted for writes: one that's on its way finds no landing.
  if (landing->open == 0 || provider_.writes) return Landed(landing);
  for (size_t i = 0; i < landing->stripes && !rails_.empty(); ++i) {
    // Done already, or being filled: then its completion comes by itself.
    static_cast<void>(
        fi_cancel(&rails_[i]->endpoint()->fid, &landing->posted[i].context));
  }
}

void Port::Recycle(Receive* receive) {
  const size_t rail = receive->posted.rail;
  if (!status_.ok() || receives_posted_[rail] >= kReceives)
    return buffers_->Free(receive);
  const absl::Status posted = PostReceive(rail, receive);
  if (!posted.ok()) Break(posted);
}

}  // namespace trnccl::fabric
