// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Port that takes completions from the queues.
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/log.h"
#include "transports/fabric/port.h"

namespace trnccl::fabric {
namespace {

constexpr ssize_t kEntries = 16;

const std::string& Context() {
  static const std::string& context = *new std::string("[fabric]");
  return context;
}

Posted* PostedOf(void* context) { return static_cast<Posted*>(context); }

}  // namespace

bool Port::Poll(const Client* self) {
  const Client* outer = poller_;
  poller_ = self;
  bool moved = PostDeferred();
  for (size_t rail = 0; rail < rails_.size(); ++rail) moved |= PollRail(rail);
  poller_ = outer;
  return moved;
}

bool Port::PrepareSleep(const Client* self) {
  const Client* outer = std::exchange(poller_, self);
  if (nap_fd_ >= 0) {
    const itimerspec nap = {.it_interval = {},
                            .it_value = {.tv_sec = 0, .tv_nsec = nap_ns_}};
    // It can't fail with a descriptor and times that are valid.
    timerfd_settime(nap_fd_, 0, &nap, nullptr);
  }
  bool moved = PostDeferred();
  for (size_t rail = 0; rail < rails_.size(); ++rail)
    moved |= PollRail(rail);
  poller_ = outer;
  return !moved && deferred_ == nullptr &&
         std::ranges::all_of(
             rails_, [](const auto& rail) { return rail->MaySleep(); });
}

bool Port::PollRail(size_t rail) {
  std::array<fi_cq_data_entry, kEntries> entries;
  // What stays in the queue doesn't make its descriptor readable.
  ssize_t count = kEntries;
  bool moved = false;
  while (count == kEntries && status_.ok()) {
    count = fi_cq_read(rails_[rail]->queue(), entries.data(), entries.size());
    if (count == -FI_EAGAIN) return moved;
    moved = true;
    if (count == -FI_EAVAIL) {
      TakeError(rail);
      count = kEntries;
      continue;
    }
    if (count < 0) Break(library_.Error("fi_cq_read", count));
    for (ssize_t i = 0; i < count && status_.ok(); ++i)
      Completed(entries[static_cast<size_t>(i)]);
  }
  return moved;
}

void Port::Completed(const fi_cq_data_entry& entry) {
  // Only writes carry such data here; their completions have no context.
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) return WrittenStripe(entry.data);
  Posted* posted = PostedOf(entry.op_context);
  switch (posted->kind) {
    case Posted::Kind::kReceive:
      return Arrived(static_cast<Receive*>(posted->owner), entry.len);
    case Posted::Kind::kSend:
      return Finish(static_cast<Send*>(posted->owner));
    case Posted::Kind::kLanding: {
      auto* landing = static_cast<Landing*>(posted->owner);
      const size_t header =
          posted == landing->posted.data() ? sizeof(WireHeader) : 0;
      const size_t index = static_cast<size_t>(posted - landing->posted.data());
      const size_t expected =
          header + StripeOf(landing->bytes, landing->stripes, index).bytes;
      if (entry.len != expected) landing->failed = true;
      return ArrivedStripe(landing);
    }
  }
}

void Port::Arrived(Receive* receive, size_t bytes) {
  const size_t rail = receive->posted.rail;
  --receives_posted_[rail];
  // Replaced before it's looked at: it may be held for long.
  const absl::Status replaced = PostReceives(rail);
  receive->bytes = bytes;
  Client* client = nullptr;
  if (bytes >= sizeof(WireHeader) && receive->header().magic == kWireMagic)
    client = Find(receive->header().endpoint);
  if (client != nullptr) {
    client->OnPacket(receive);
  } else {
    // Nobody's: a communicator that has ended, or a stranger.
    Recycle(receive);
  }
  if (!replaced.ok()) Break(replaced);
}

void Port::ArrivedStripe(Landing* landing) {
  if (--landing->open == 0) Landed(landing);
}

void Port::Landed(Landing* landing) {
  landing->open = 0;
  if (Client* client = Find(landing->client)) return client->OnLanded(landing);
  buffers_->Free(landing);
}

void Port::WrittenStripe(uint64_t number) {
  Landing* landing = buffers_->Find(static_cast<uint32_t>(number));
  if (landing == nullptr || landing->open == 0) return;
  ArrivedStripe(landing);
}

void Port::TakeError(size_t rail) {
  std::array<char, 256> data = {};
  fi_cq_err_entry error = {};
  error.err_data = data.data();
  error.err_data_size = data.size();
  const ssize_t count = fi_cq_readerr(rails_[rail]->queue(), &error, 0);
  if (count < 1) return;
  const std::string said = rails_[rail]->Explain(error);
  if (error.op_context == nullptr)
    return Break(absl::UnavailableError(absl::StrCat("fabric: ", said)));
  Posted* posted = PostedOf(error.op_context);
  const bool canceled = error.err == FI_ECANCELED;
  switch (posted->kind) {
    case Posted::Kind::kReceive: {
      auto* receive = static_cast<Receive*>(posted->owner);
      --receives_posted_[rail];
      if (!canceled)
        TRNCCL_LOG(LogLevel::kWarn, Context(), "a receive failed: ", said);
      return Recycle(receive);
    }
    case Posted::Kind::kSend:
      return FailSend(static_cast<Send*>(posted->owner),
                      absl::UnavailableError(said));
    case Posted::Kind::kLanding: {
      auto* landing = static_cast<Landing*>(posted->owner);
      landing->failed = true;
      return ArrivedStripe(landing);
    }
  }
}

}  // namespace trnccl::fabric
