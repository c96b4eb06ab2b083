// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/buffers.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <utility>

#include "absl/memory/memory.h"
#include "ccl/base/check.h"
#include "ccl/base/status_macros.h"
#include "transports/system_error.h"

namespace trnccl::fabric {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kReceivesAtOnce = 16;
constexpr size_t kSendsAtOnce = 64;
constexpr size_t kLandingsAtOnce = 16;
constexpr size_t kShortPayloadsAtOnce = 8;
// A landing's number: its index, and above it how often it has been used.
constexpr uint32_t kIndexBits = 16;
constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Slab>> Slab::Make(const Options& options,
                                                 size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return SystemError(errno, "fabric: mmap of buffers");
  auto slab = absl::WrapUnique(new Slab(static_cast<std::byte*>(base), bytes));
  for (const std::unique_ptr<Rail>& rail : options.rails) {
    ASSIGN_OR_RETURN(
        Registration registration,
        rail->Register({.base = slab->base(), .bytes = bytes}, options.access));
    slab->registrations_.push_back(std::move(registration));
  }
  return slab;
}

Slab::~Slab() {
  registrations_.clear();
  munmap(base_, bytes_);
}

absl::StatusOr<const Slab*> Buffers::Grow(size_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<Slab> slab,
                   Slab::Make({options_.rails, options_.access}, bytes));
  slabs_.push_back(std::move(slab));
  return slabs_.back().get();
}

absl::StatusOr<Receive*> Buffers::NewReceive() {
  if (receives_ == nullptr) {
    const size_t stride = Aligned(sizeof(WireHeader) + options_.eager_bytes);
    ASSIGN_OR_RETURN(const Slab* slab, Grow(kReceivesAtOnce * stride));
    receive_objects_.push_back(std::make_unique<Receive[]>(kReceivesAtOnce));
    for (size_t i = 0; i < kReceivesAtOnce; ++i) {
      Receive& receive = receive_objects_.back()[i];
      receive.posted = {.kind = Posted::Kind::kReceive, .owner = &receive};
      receive.data = slab->base() + i * stride;
      receive.slab = slab;
      Push(&receives_, &receive);
    }
  }
  return Pop(&receives_);
}

absl::StatusOr<Send*> Buffers::NewSend() {
  if (sends_ == nullptr) {
    const size_t stride = Aligned(sizeof(Send));
    ASSIGN_OR_RETURN(const Slab* slab, Grow(kSendsAtOnce * stride));
    for (size_t i = 0; i < kSendsAtOnce; ++i) {
      Send* send = new (slab->base() + i * stride) Send;
      send->posted = {.kind = Posted::Kind::kSend, .owner = send};
      send->slab = slab;
      Push(&sends_, send);
    }
  }
  Send* send = Pop(&sends_);
  send->travel = Send::Travel::kPacket;
  send->has_header = true;
  send->is_small = false;
  send->bytes = 0;
  send->data = nullptr;
  send->descriptor = nullptr;
  send->payload = nullptr;
  send->client = 0;
  send->header = WireHeader();
  return send;
}

void Buffers::Free(Send* send) {
  if (send->payload != nullptr) Drop(std::exchange(send->payload, nullptr));
  Push(&sends_, send);
}

absl::StatusOr<Landing*> Buffers::NewLanding() {
  if (free_landings_ == nullptr) {
    TRNCCL_CHECK(landings_.size() + kLandingsAtOnce <= kIndexMask);
    const size_t stride = Aligned(sizeof(Landing));
    ASSIGN_OR_RETURN(const Slab* slab, Grow(kLandingsAtOnce * stride));
    for (size_t i = 0; i < kLandingsAtOnce; ++i) {
      auto* landing = new (slab->base() + i * stride) Landing;
      for (Posted& posted : landing->posted)
        posted = {.kind = Posted::Kind::kLanding, .owner = landing};
      landing->slab = slab;
      landing->number = static_cast<uint32_t>(landings_.size());
      landings_.push_back(landing);
      Push(&free_landings_, landing);
    }
  }
  Landing* landing = Pop(&free_landings_);
  landing->step = Landing::Step::kPosting;
  landing->done = 0;
  landing->payload = nullptr;
  landing->descriptors = {};
  landing->is_device = false;
  landing->open = 0;
  landing->failed = false;
  return landing;
}

void Buffers::Free(Landing* landing) {
  if (landing->payload != nullptr)
    Drop(std::exchange(landing->payload, nullptr));
  landing->number += 1u << kIndexBits;
  landing->client = 0;
  Push(&free_landings_, landing);
}

Landing* Buffers::Find(uint32_t number) const {
  const uint32_t index = number & kIndexMask;
  if (index >= landings_.size() || landings_[index]->number != number)
    return nullptr;
  return landings_[index];
}

absl::Status Buffers::MorePayloads(Payload** list, size_t bytes, size_t count) {
  const size_t stride = Aligned(bytes);
  ASSIGN_OR_RETURN(const Slab* slab, Grow(count * stride));
  payload_objects_.push_back(std::make_unique<Payload[]>(count));
  for (size_t i = 0; i < count; ++i) {
    Payload& payload = payload_objects_.back()[i];
    payload.data = slab->base() + i * stride;
    payload.slab = slab;
    payload.bytes = bytes;
    Push(list, &payload);
  }
  return absl::OkStatus();
}

Payload** Buffers::ListOf(size_t bytes) {
  for (LongPayloads& known : long_payloads_)
    if (known.bytes == bytes) return &known.list;
  long_payloads_.push_back({.bytes = bytes});
  return &long_payloads_.back().list;
}

absl::StatusOr<Payload*> Buffers::NewPayload(const Size& size) {
  const bool is_short = size.bytes <= options_.eager_bytes;
  const size_t bytes = is_short ? options_.eager_bytes : size.slice_bytes;
  Payload** list = is_short ? &short_payloads_ : ListOf(bytes);
  if (*list == nullptr) {
    RETURN_IF_ERROR(
        MorePayloads(list, bytes, is_short ? kShortPayloadsAtOnce : 1));
  }
  Payload* payload = Pop(list);
  payload->references = 1;
  payload->is_long = !is_short;
  return payload;
}

void Buffers::Drop(Payload* payload) {
  if (--payload->references > 0) return;
  Push(payload->is_long ? ListOf(payload->bytes) : &short_payloads_, payload);
}

}  // namespace trnccl::fabric
