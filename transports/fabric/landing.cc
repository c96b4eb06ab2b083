// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Port that deals with memory which waits for long messages.
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "transports/fabric/gather.h"
#include "transports/fabric/port.h"

namespace trnccl::fabric {
namespace {

constexpr unsigned kStripeBits = 4;

}  // namespace

// The queue of receives may be short. Half of it is for messages that are
// certain to come, so that those which wait for something else never fill it.
bool Port::HasRoomFor(const Landing& landing) const {
  for (size_t i = 0; i < landing.stripes; ++i)
    if (rooms_[i].landings_posted >= rooms_[i].landings / 2) return false;
  return true;
}

bool Port::Await(Landing* landing, Certainty certainty) {
  landing->open = landing->stripes;
  if (!usable()) {
    landing->open = 0;
    FailLanding(landing, status_);
    return true;
  }
  if (provider_.writes) landing->done = landing->stripes;
  if (!provider_.writes && certainty == Certainty::kExpected &&
      (deferred_landings_ != nullptr || !HasRoomFor(*landing))) {
    landing->open = 0;
    return false;
  }
  if (!HandOver(landing)) DeferLanding(landing);
  return true;
}

void Port::DeferLanding(Landing* landing) {
  landing->next = deferred_landings_;
  deferred_landings_ = landing;
}

bool Port::HandOverDeferred() {
  if (deferred_landings_ == nullptr) [[likely]]
    return false;
  Landing* waiting = std::exchange(deferred_landings_, nullptr);
  bool moved = false;
  while (waiting != nullptr) {
    Landing* landing = std::exchange(waiting, waiting->next);
    const uint32_t before = landing->done;
    const bool whole = HandOver(landing);
    moved |= whole || landing->done > before;
    if (!whole) DeferLanding(landing);
  }
  return moved;
}

bool Port::HandOver(Landing* landing) {
  for (; landing->done < landing->stripes; ++landing->done) {
    const ssize_t code = HandOverStripe(landing, landing->done);
    if (code == -FI_EAGAIN) return false;
    if (code == 0) continue;
    landing->open -= landing->stripes - landing->done;
    FailLanding(landing,
                rails_[landing->done]->Checked("posting memory", code));
    GiveUp(landing);
    return true;
  }
  if (landing->step == Landing::Step::kFencing) return true;
  landing->step = Landing::Step::kArriving;
  if (Client* client = Find(landing->client)) client->OnAwaited(landing);
  return true;
}

ssize_t Port::HandOverStripe(Landing* landing, size_t stripe) {
  landing->posted[stripe].rail = static_cast<uint8_t>(stripe);
  return landing->step == Landing::Step::kFencing
             ? PostFence(landing, stripe)
             : PostTaggedReceive(landing, stripe);
}

ssize_t Port::PostTaggedReceive(Landing* landing, size_t stripe) {
  Room& room = rooms_[stripe];
  if (room.landings_posted >= room.landings && room.landings_posted > 0)
    return -FI_EAGAIN;
  const Stripe part = StripeOf(landing->bytes, landing->stripes, stripe);
  Gathered gathered;
  if (stripe == 0) {
    gathered.Add(&landing->header, sizeof(WireHeader),
                 landing->slab->descriptor(stripe));
  }
  if (part.bytes > 0) {
    gathered.Add(landing->data + part.offset, part.bytes,
                 landing->descriptors[stripe]);
  }
  Posted& posted = landing->posted[stripe];
  posted.end = outlets_[landing->peer_id][stripe].end;
  const ssize_t code = fi_trecvv(
      rails_[stripe]->endpoint(posted.end), gathered.parts.data(),
      gathered.descriptors.data(), gathered.count, FI_ADDR_UNSPEC,
      uint64_t{landing->number} << kStripeBits | stripe, 0, &posted.context);
  if (code == 0) ++room.landings_posted;
  return code;
}

// What an adapter wrote into a device's memory is certain to be there once the
// same adapter has read from it.
ssize_t Port::PostFence(Landing* landing, size_t stripe) {
  const absl::StatusOr<fi_addr_t> self = rails_[stripe]->Self();
  if (!self.ok()) return -FI_EADDRNOTAVAIL;
  const size_t bytes = std::min(landing->bytes, kScratchBytes);
  return fi_read(rails_[stripe]->endpoint(End::kCalling), scratch_->base(),
                 bytes, scratch_->descriptor(stripe), *self,
                 landing->targets[stripe].address, landing->targets[stripe].key,
                 &landing->posted[stripe].context);
}

void Port::GiveUp(Landing* landing) {
  landing->failed = true;
  const bool fences = landing->step == Landing::Step::kFencing;
  if (landing->done < landing->stripes) {
    for (Landing** at = &deferred_landings_; *at != nullptr;
         at = &(*at)->next) {
      if (*at != landing) continue;
      *at = landing->next;
      landing->open -= landing->stripes - landing->done;
      break;
    }
  }
  // Nothing is posted for writes: one that's on its way finds no landing.
  if (landing->open == 0 || (provider_.writes && !fences))
    return Landed(landing);
  if (fences || !status_.ok()) return;
  for (size_t i = 0; i < landing->done; ++i) {
    // Done already, or being filled: then its completion comes by itself.
    Posted& posted = landing->posted[i];
    static_cast<void>(
        fi_cancel(&rails_[i]->endpoint(posted.end)->fid, &posted.context));
  }
}

void Port::Absorb(Landing* landing, size_t slice_bytes) {
  const bool was_told = landing->step == Landing::Step::kArriving;
  if (provider_.writes || !was_told || !usable())
    return buffers_->Free(landing);
  if (landing->payload == nullptr) {
    absl::StatusOr<Payload*> payload = buffers_->NewPayload(
        {.bytes = landing->bytes, .slice_bytes = slice_bytes});
    if (!payload.ok()) return buffers_->Free(landing);
    landing->payload = *payload;
  }
  landing->data = landing->payload->data;
  for (size_t i = 0; i < landing->stripes; ++i)
    landing->descriptors[i] = landing->payload->slab->descriptor(i);
  landing->client = 0;
  landing->failed = false;
  landing->step = Landing::Step::kPosting;
  landing->done = 0;
  landing->open = landing->stripes;
  if (!HandOver(landing)) DeferLanding(landing);
}

void Port::FailLanding(Landing* landing, const absl::Status& status) {
  landing->failed = true;
  if (Client* client = Find(landing->client))
    client->OnLandingFailed(*landing, status);
}

void Port::ArrivedStripe(Landing* landing) {
  if (--landing->open == 0) Landed(landing);
}

void Port::Landed(Landing* landing) {
  landing->open = 0;
  if (landing->is_device && !landing->failed &&
      landing->step == Landing::Step::kArriving) {
    landing->step = Landing::Step::kFencing;
    landing->open = landing->stripes;
    landing->done = 0;
    if (!HandOver(landing)) DeferLanding(landing);
    return;
  }
  if (Client* client = Find(landing->client)) return client->OnLanded(landing);
  buffers_->Free(landing);
}

void Port::WrittenStripe(uint64_t number) {
  Landing* landing = buffers_->Find(static_cast<uint32_t>(number));
  if (landing == nullptr || landing->open == 0 ||
      landing->step != Landing::Step::kArriving)
    return;
  ArrivedStripe(landing);
}

}  // namespace trnccl::fabric
