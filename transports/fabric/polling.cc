// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Port that takes completions from the queues.
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/log.h"
#include "transports/fabric/newer.h"
#include "transports/fabric/port.h"

namespace trnccl::fabric {
namespace {

constexpr ssize_t kEntries = 16;

const std::string& Context() {
  static const std::string& context = *new std::string("[fabric]");
  return context;
}

bool EndsAConnection(int error) {
  return error == FI_ECONNRESET || error == FI_ECONNABORTED ||
         error == FI_ENOTCONN || error == FI_ESHUTDOWN || error == EPIPE ||
         error == FI_ETIMEDOUT;
}

}  // namespace

bool Port::Poll(const Client* self) {
  if (!usable()) return false;
  const Client* outer = poller_;
  poller_ = self;
  bool moved = PostDeferred();
  moved |= HandOverDeferred();
  for (size_t rail = 0; rail < rails_.size() && status_.ok(); ++rail)
    moved |= PollRail(rail);
  poller_ = outer;
  return moved;
}

bool Port::PollRail(size_t rail) {
  if (rooms_[rail].LacksReceives()) [[unlikely]] {
    const absl::Status posted = PostReceives(rail);
    if (!posted.ok()) return Break(posted), true;
  }
  std::array<fi_cq_data_entry, kEntries> entries;
  // What stays in the queue doesn't make its descriptor readable.
  ssize_t count = kEntries;
  bool moved = false;
  while (count == kEntries && status_.ok()) {
    count = fi_cq_read(rails_[rail]->queue(), entries.data(), entries.size());
    if (count == -FI_EAGAIN) return moved;
    moved = true;
    if (count == -FI_EAVAIL) {
      if (TakeError(rail)) count = kEntries;
      continue;
    }
    if (count < 0) Break(rails_[rail]->Checked("fi_cq_read", count));
    for (ssize_t i = 0; i < count && status_.ok(); ++i)
      Completed(entries[static_cast<size_t>(i)]);
  }
  return moved;
}

void Port::Completed(const fi_cq_data_entry& entry) {
  // Of those that carry such data only writes have no context. A stranger's
  // packet may carry some, too.
  const bool is_written =
      (entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & FI_RECV) == 0;
  if (is_written) return WrittenStripe(entry.data);
  Posted* posted = Posted::Of(entry.op_context);
  switch (posted->kind) {
    case Posted::Kind::kReceive:
      return Arrived(static_cast<Receive*>(posted->owner), entry.len);
    case Posted::Kind::kSend:
      return Finish(static_cast<Send*>(posted->owner));
    case Posted::Kind::kLanding:
      return CompletedLanding(entry);
  }
}

void Port::CompletedLanding(const fi_cq_data_entry& entry) {
  Posted* posted = Posted::Of(entry.op_context);
  auto* landing = static_cast<Landing*>(posted->owner);
  if (landing->step == Landing::Step::kFencing) return ArrivedStripe(landing);
  --rooms_[posted->rail].landings_posted;
  const auto index = static_cast<size_t>(posted - landing->posted.data());
  const size_t expected =
      (index == 0 ? sizeof(WireHeader) : 0) +
      StripeOf(landing->bytes, landing->stripes, index).bytes;
  if (entry.len != expected && !landing->failed) {
    FailLanding(landing, absl::InternalError(absl::StrCat(
                             "it sent ", entry.len, " bytes where ", expected,
                             " were due")));
  }
  ArrivedStripe(landing);
}

void Port::Arrived(Receive* receive, size_t bytes) {
  const size_t rail = receive->posted.rail;
  ++LackingAt(receive->posted);
  // Replaced before it's looked at: it may be held for long.
  const absl::Status replaced = PostReceives(rail);
  receive->bytes = bytes;
  Client* client = nullptr;
  if (bytes >= sizeof(WireHeader)) client = Find(receive->header().endpoint);
  if (client != nullptr) {
    client->OnPacket(receive);
  } else {
    // Nobody's: a communicator that has ended, or a stranger.
    Recycle(receive);
  }
  if (!replaced.ok()) Break(replaced);
}

bool Port::TakeError(size_t rail) {
  std::array<char, 256> data = {};
  QueueError newer;
  fi_cq_err_entry& error = newer.known;
  error.err_data = data.data();
  error.err_data_size = data.size();
  if (fi_cq_readerr(rails_[rail]->queue(), &error, 0) < 1) return false;
  const std::string said = rails_[rail]->Explain(error);
  if ((error.flags & FI_REMOTE_CQ_DATA) != 0 || error.op_context == nullptr) {
    Landing* landing = (error.flags & FI_REMOTE_CQ_DATA) == 0
                           ? nullptr
                           : buffers_->Find(static_cast<uint32_t>(error.data));
    if (landing == nullptr || landing->open == 0)
      return Break(absl::UnavailableError(said)), true;
    FailLanding(landing, absl::UnavailableError(said));
    return ArrivedStripe(landing), true;
  }
  switch (Posted::Of(error.op_context)->kind) {
    case Posted::Kind::kReceive:
      TakeReceiveError(error, said);
      break;
    case Posted::Kind::kSend:
      TakeSendError(error, said);
      break;
    case Posted::Kind::kLanding:
      TakeLandingError(error, said);
      break;
  }
  return true;
}

// Whose packet is lost can't be told, so nobody's is certain to have come;
// unless it's lost with its connection: then the others' packets are as good as
// ever, and who watches over processes names the peer (ccl/health).
void Port::TakeReceiveError(const fi_cq_err_entry& error,
                            const std::string& said) {
  Posted* posted = Posted::Of(error.op_context);
  ++LackingAt(*posted);
  Recycle(static_cast<Receive*>(posted->owner));
  if (error.err == FI_ECANCELED) return;
  if (error.err == FI_ETRUNC) {
    TRNCCL_LOG(LogLevel::kWarn, Context(),
               "a stranger's packet was too long: ", said);
    return;
  }
  if (EndsAConnection(error.err)) {
    TRNCCL_LOG(LogLevel::kWarn, Context(),
               "a connection ended amid a packet: ", said);
    return;
  }
  Break(absl::UnavailableError(absl::StrCat("receiving a packet: ", said)));
}

void Port::TakeSendError(const fi_cq_err_entry& error,
                         const std::string& said) {
  auto* send = static_cast<Send*>(Posted::Of(error.op_context)->owner);
  TakeBack(*send);
  // The peer had no receive posted, and its adapter doesn't wait for one.
  if (error.err == FI_ENORX) return Defer(send);
  FailSend(send, absl::UnavailableError(said));
}

void Port::TakeLandingError(const fi_cq_err_entry& error,
                            const std::string& said) {
  Posted* posted = Posted::Of(error.op_context);
  auto* landing = static_cast<Landing*>(posted->owner);
  if (landing->step != Landing::Step::kFencing)
    --rooms_[posted->rail].landings_posted;
  if (error.err != FI_ECANCELED || !landing->failed)
    FailLanding(landing, absl::UnavailableError(said));
  ArrivedStripe(landing);
}

}  // namespace trnccl::fabric
