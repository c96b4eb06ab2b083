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
#include "ccl/base/clock.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/gather.h"
#include "transports/fabric/port.h"

namespace trnccl::fabric {

namespace {

// A peer that was reached before and refuses so long isn't there any more.
constexpr int64_t kGoneNs = 300'000'000;

}  // namespace

absl::Status Port::PostReceive(Receive* receive) {
  Posted& posted = receive->posted;
  const size_t rail = posted.rail;
  const ssize_t code =
      fi_recv(rails_[rail]->endpoint(posted.end), receive->data,
              sizeof(WireHeader) + provider_.eager_bytes,
              receive->slab->descriptor(rail), FI_ADDR_UNSPEC, &posted.context);
  if (code == 0) {
    --LackingAt(posted);
    return absl::OkStatus();
  }
  buffers_->Free(receive);
  // Polling makes another try.
  if (code == -FI_EAGAIN) return absl::OkStatus();
  return rails_[rail]->Checked("fi_recv", code);
}

absl::Status Port::PostReceives(size_t rail) {
  for (const End end : rails_[rail]->ends()) {
    size_t& lacking = rooms_[rail].LackingAt(end);
    for (size_t before = 0; lacking != before && lacking > 0;) {
      before = lacking;
      ASSIGN_OR_RETURN(Receive * receive, buffers_->NewReceive());
      receive->posted.rail = static_cast<uint8_t>(rail);
      receive->posted.end = end;
      RETURN_IF_ERROR(PostReceive(receive));
    }
  }
  return absl::OkStatus();
}

ssize_t Port::PostPacket(Send* send, const Hop& hop) {
  const size_t rail = send->posted.rail;
  void* own = send->slab->descriptor(rail);
  // Never injected: nothing would tell when it's on its way.
  if (send->is_small || send->bytes == 0) {
    return fi_send(hop.from, &send->header, sizeof(WireHeader) + send->bytes,
                   own, hop.to, &send->posted.context);
  }
  Gathered gathered;
  gathered.Add(&send->header, sizeof(WireHeader), own);
  gathered.Add(send->data, send->bytes, send->descriptor);
  return fi_sendv(hop.from, gathered.parts.data(), gathered.descriptors.data(),
                  gathered.count, hop.to, &send->posted.context);
}

ssize_t Port::PostTagged(Send* send, const Hop& hop) {
  Gathered gathered;
  if (send->has_header) {
    gathered.Add(&send->header, sizeof(WireHeader),
                 send->slab->descriptor(send->posted.rail));
  }
  if (send->bytes > 0) gathered.Add(send->data, send->bytes, send->descriptor);
  return fi_tsendv(hop.from, gathered.parts.data(), gathered.descriptors.data(),
                   gathered.count, hop.to, send->tag, &send->posted.context);
}

ssize_t Port::PostWrite(Send* send, const Hop& hop) {
  const iovec local = {const_cast<std::byte*>(send->data), send->bytes};
  const fi_rma_iov remote = {.addr = send->target.address,
                             .len = send->bytes,
                             .key = send->target.key};
  void* descriptor = send->descriptor;
  const fi_msg_rma message = {.msg_iov = &local,
                              .desc = &descriptor,
                              .iov_count = 1,
                              .addr = hop.to,
                              .rma_iov = &remote,
                              .rma_iov_count = 1,
                              .context = &send->posted.context,
                              .data = send->tag};
  return fi_writemsg(hop.from, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION);
}

// Peers that take nothing don't get all of an endpoint: half of it is for those
// who have nothing in it yet.
bool Port::MayPost(const Send& send) {
  const size_t rail = send.posted.rail;
  return rooms_[rail].transmits_posted < rooms_[rail].transmits / 2 ||
         OutletOf(send).held == 0;
}

ssize_t Port::TryPost(Send* send) {
  if (!MayPost(*send)) return -FI_EAGAIN;
  const size_t rail = send->posted.rail;
  Outlet& outlet = OutletOf(*send);
  const bool answers = outlet.calling != FI_ADDR_UNSPEC;
  if (answers && !outlet.heard && send->travel == Send::Travel::kTagged)
    return -FI_EAGAIN;
  const Hop hop =
      answers && outlet.heard
          ? Hop{rails_[rail]->endpoint(End::kTaking), outlet.calling}
          : Hop{rails_[rail]->endpoint(End::kCalling), outlet.taking};
  ssize_t code = 0;
  switch (send->travel) {
    case Send::Travel::kPacket:
      code = PostPacket(send, hop);
      break;
    case Send::Travel::kTagged:
      code = PostTagged(send, hop);
      break;
    case Send::Travel::kWrite:
      code = PostWrite(send, hop);
      break;
  }
  if (code == 0) {
    ++rooms_[rail].transmits_posted;
    ++outlet.held;
    outlet.called = true;
    outlet.backoff.Taken();
  } else if (outlet.held == 0) {
    outlet.backoff.Refused(NowNs());
  }
  return code;
}

void Port::TakeBack(const Send& send) {
  --rooms_[send.posted.rail].transmits_posted;
  --OutletOf(send).held;
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

// A peer that takes nothing, since it isn't there yet or any more, doesn't hold
// up others; whatever order comes of it, links restore theirs.
bool Port::PostDeferred() {
  if (deferred_ == nullptr) [[likely]]
    return false;
  Send* waiting = std::exchange(deferred_, nullptr);
  deferred_end_ = &deferred_;
  bool moved = false;
  const int64_t now_ns = NowNs();
  while (waiting != nullptr) {
    Send* send = std::exchange(waiting, waiting->next);
    const Outlet& outlet = OutletOf(*send);
    const bool allowed = outlet.backoff.Allows(now_ns);
    if (send->header.kind == WireKind::kLeaving &&
        outlet.backoff.RefusedForNs(now_ns) > kGoneNs) {
      FailSend(send, absl::UnavailableError("its peer is gone"));
      continue;
    }
    const ssize_t code = allowed ? TryPost(send) : -FI_EAGAIN;
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
  if (!usable() || LackingAt(receive->posted) == 0)
    return buffers_->Free(receive);
  const absl::Status posted = PostReceive(receive);
  if (!posted.ok()) Break(posted);
}

}  // namespace trnccl::fabric
