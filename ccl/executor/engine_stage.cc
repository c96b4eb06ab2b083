// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/executor/engine_stage.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/check.h"
#include "ccl/base/origin.h"

namespace trnccl {

EngineStage::EngineStage(const Membership& membership, const Routes& routes,
                         Engine* engine)
    : membership_(membership),
      routes_(routes),
      engine_(engine),
      offers_(membership.ranks),
      taken_(membership.ranks) {
  for (int peer = 0; peer < membership.ranks; ++peer) {
    if (peer == membership.rank) continue;
    transport_ = routes[peer].transport;
    links_.push_back(routes[peer].Link(0));
  }
}

void EngineStage::Start(const Job& job) {
  job_ = job;
  Enter(Phase::kSendOffer);
  offers_[membership_.rank] = engine_->MakeOffer(job.call);
}

Advanced EngineStage::Enter(Phase phase) {
  phase_ = phase;
  if (phase == Phase::kTakeOffers || phase == Phase::kTakeBarrier) {
    std::fill(taken_.begin(), taken_.end(), false);
    taken_[membership_.rank] = true;
    missing_ = membership_.ranks - 1;
  }
  const bool ended = phase == Phase::kFinished || phase == Phase::kDeclined;
  return ended ? Advanced::kDone : Advanced::kSomething;
}

Advanced EngineStage::Advance() {
  switch (phase_) {
    case Phase::kSendOffer:
      if (!SendToAll(&offers_[membership_.rank], sizeof(Offer)))
        return Advanced::kNothing;
      Enter(Phase::kTakeOffers);
      [[fallthrough]];
    case Phase::kTakeOffers:
      if (TakeFromAll()) return StartRun();
      return status_.ok() ? Advanced::kNothing : Advanced::kFailed;
    case Phase::kRun:
      return AdvanceRun();
    case Phase::kSendBarrier:
      if (!SendToAll(nullptr, 0)) return Advanced::kNothing;
      Enter(Phase::kTakeBarrier);
      [[fallthrough]];
    case Phase::kTakeBarrier:
      if (TakeFromAll()) return Enter(Phase::kFinished);
      return status_.ok() ? Advanced::kNothing : Advanced::kFailed;
    case Phase::kFinished:
    case Phase::kDeclined:
      return Advanced::kDone;
  }
  return Advanced::kNothing;
}

bool EngineStage::SendToAll(const void* data, size_t bytes) {
  std::byte* slice = transport_->Reserve(links_, bytes);
  if (slice == nullptr) return false;
  if (bytes > 0) std::memcpy(slice, data, bytes);
  TRNCCL_CHECK(
      transport_->Send(links_, {.envelope = job_.envelope, .bytes = bytes}));
  return true;
}

bool EngineStage::TakeFromAll() {
  for (int peer = 0; peer < membership_.ranks && missing_ > 0; ++peer) {
    if (taken_[peer]) continue;
    const LinkId link = routes_[peer].Link(0);
    const Incoming* message = transport_->Peek(link, nullptr);
    if (message == nullptr) continue;
    if (!Take(peer, *message)) return false;
    transport_->Release(link);
    taken_[peer] = true;
    --missing_;
  }
  return missing_ == 0;
}

bool EngineStage::Take(int peer, const Incoming& message) {
  if (message.envelope != job_.envelope) {
    status_ =
        MismatchError({.rank = membership_.rank, .envelope = job_.envelope},
                      {.rank = peer, .envelope = message.envelope});
    return false;
  }
  const bool offers = phase_ == Phase::kTakeOffers;
  if (message.bytes != (offers ? sizeof(Offer) : 0)) {
    status_ = absl::InternalError(absl::StrCat(
        "rank ", membership_.rank, ": ", DescribeCall(job_.envelope), ": rank ",
        peer, " sent ", message.bytes,
        " bytes where an engine's offer was due; do all ranks run the same "
        "build and settings?"));
    return false;
  }
  if (!offers) return true;
  // A bool that came as a byte may be anything until it's looked at as one.
  uint8_t made = 0;
  std::memcpy(&made, message.data + offsetof(Offer, made), sizeof(made));
  offers_[peer].made = made == 1;
  std::memcpy(offers_[peer].bytes.data(), message.data + offsetof(Offer, bytes),
              sizeof(Offer::bytes));
  return true;
}

Advanced EngineStage::StartRun() {
  absl::StatusOr<EngineRun*> run = engine_->Start(job_.call, offers_);
  if (!run.ok()) {
    status_ = InCall(run.status());
    return Advanced::kFailed;
  }
  if (*run == nullptr) return Enter(Phase::kDeclined);
  run_ = *run;
  return Enter(Phase::kRun);
}

absl::Status EngineStage::InCall(const absl::Status& status) const {
  const std::optional<int> origin = OriginOf(status);
  const std::string text =
      absl::StrCat("rank ", membership_.rank, ": ", DescribeCall(job_.envelope),
                   ": ", absl::string_view(status.message()));
  if (!origin.has_value()) return absl::Status(status.code(), text);
  return WithOrigin(absl::Status(status.code(), text), *origin);
}

Advanced EngineStage::AdvanceRun() {
  const absl::StatusOr<bool> done = run_->Advance();
  if (!done.ok()) {
    status_ = InCall(done.status());
    return Advanced::kFailed;
  }
  return *done ? Enter(Phase::kSendBarrier) : Advanced::kSomething;
}

std::vector<int> EngineStage::WaitsFor() const {
  std::vector<int> ranks;
  if (phase_ != Phase::kTakeOffers && phase_ != Phase::kTakeBarrier)
    return ranks;
  for (int peer = 0; peer < membership_.ranks; ++peer)
    if (!taken_[peer]) ranks.push_back(peer);
  return ranks;
}

std::string EngineStage::DescribeWait() const {
  std::string_view progress = "being moved";
  if (phase_ == Phase::kSendOffer || phase_ == Phase::kTakeOffers)
    progress = "none moved yet";
  if (phase_ == Phase::kSendBarrier || phase_ == Phase::kTakeBarrier)
    progress = "this rank's part is moved";
  return absl::StrCat("waits for rank ", absl::StrJoin(WaitsFor(), ", "),
                      " (on the engine; data: ", std::string(progress), ")");
}

}  // namespace trnccl
