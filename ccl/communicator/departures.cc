// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The part of Communicator that leaves in order, and that hears of peers who
// have. It needs the token.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/base/origin.h"
#include "ccl/communicator/communicator.h"

namespace trnccl {
namespace {

// How long a rank that leaves waits until others have taken what it sent them;
// and how long one that needs more of it looks for that.
constexpr int64_t kTakenNs = 10'000'000'000;
// The same where messages lie in memory that outlives their sender.
constexpr int64_t kTakenFromMemoryNs = 1'000'000'000;
constexpr useconds_t kTakenLookUs = 200;
constexpr int64_t kSayAgainNs = 100'000'000;

// By Traits::process_fds.
bool HasEnded(const std::vector<int>& process_fds, size_t peer_index) {
  if (peer_index >= process_fds.size()) return false;
  pollfd entry = {
      .fd = process_fds[peer_index], .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace

void Communicator::Leave(uint32_t sequence) {
  if (current_ == nullptr && transfers_.empty()) AwaitTaken();
  const Health::Leaving leaving{.sequence = sequence,
                                .last_calls = LastCalls(sequence)};
  health_->SayLeft(leaving);
  const JobWatch& watch = parts_.watch;
  if (watch.vigil != nullptr) {
    watch.vigil->Depart({.cookie = parts_.cookie,
                         .rank = watch.ranks[parts_.membership.rank],
                         .sequence = sequence,
                         .last_calls = Health::TextOf(leaving.last_calls)});
  }
  SendOff();
}

void Communicator::AwaitTaken() {
  const int64_t until_ns = NowNs() + kTakenNs;
  int64_t say_ns = 0;
  while (NowNs() < until_ns) {
    if (NowNs() >= say_ns) {
      parts_.transports->SetPresence(Presence::kLeaving);
      say_ns = NowNs() + kSayAgainNs;
    }
    if (!parts_.transports->Progress().ok() || parts_.transports->AllSent())
      return;
    if (parts_.watch.vigil != nullptr) parts_.watch.vigil->LookNow();
    HearLosses();
    HearDepartures();
    health_->ListenForFailures();
    if (failed_.load() || health_->notice() != nullptr || AllOthersLeft())
      return;
    usleep(kTakenLookUs);
  }
  TRNCCL_LOG(LogLevel::kWarn, LogContext(parts_.membership, parts_.name),
             "leaves though others haven't taken for ", kTakenNs / 1'000'000,
             " ms what was sent to them, and may lose it; destroy a "
             "communicator when all ranks are done");
}

void Communicator::HearDepartures() {
  const JobWatch& watch = parts_.watch;
  if (watch.vigil == nullptr || watch.vigil->departures() == heard_departures_)
    return;
  heard_departures_ = watch.vigil->departures();
  for (const auto& departure : watch.vigil->DeparturesFrom(parts_.cookie)) {
    const auto found =
        std::find(watch.ranks.begin(), watch.ranks.end(), departure.rank);
    if (found == watch.ranks.end()) continue;
    health_->HearLeft(
        static_cast<int>(found - watch.ranks.begin()),
        {.sequence = departure.sequence,
         .last_calls = Health::LastCallsOf(departure.last_calls)});
  }
}

absl::Status Communicator::Departed(int rank) const {
  return absl::UnavailableError(
      absl::StrCat(NameOf(rank), " ", HowDeparted(rank),
                   "; destroy it when all ranks are done"));
}

std::string Communicator::HowDeparted(int rank) const {
  const Health::Refusal* refusal = health_->RefusedBy(rank);
  return absl::StrCat("has destroyed its communicator after ",
                      health_->LeftBy(rank)->sequence - parts_.first_sequence,
                      " collectives",
                      refusal == nullptr ? "" : " and a refused one: ",
                      refusal == nullptr ? "" : refusal->text);
}

Communicator::Fate Communicator::FateOf(int rank) {
  Watch();
  const JobWatch& watch = parts_.watch;
  if (watch.vigil != nullptr) {
    for (const Vigil::Loss& loss : watch.vigil->LossesFrom(0))
      if (loss.rank == watch.ranks[rank])
        return {.kind = Fate::Kind::kLost, .how = loss.reason};
  }
  // Asked before what it said is: it may have left as its last deed.
  const Route& route = parts_.transports->routes()[rank];
  const bool has_ended =
      route.transport != nullptr &&
      HasEnded(route.transport->traits().process_fds, route.peer_index);
  if (!TryAcquire()) return {};  // whoever has it hears of it
  health_->ListenForFailures();
  HearDepartures();
  Fate fate;
  if (health_->LeftBy(rank) != nullptr) {
    fate = {.kind = Fate::Kind::kLeft, .how = HowDeparted(rank)};
  } else if (has_ended) {
    const std::vector<int> silent = health_->Silent();
    const bool knew_why =
        std::find(silent.begin(), silent.end(), rank) == silent.end();
    fate = {.kind = knew_why ? Fate::Kind::kLeft : Fate::Kind::kLost,
            .how = knew_why ? "its process has ended, after its communicator "
                              "had failed"
                            : "its process has ended"};
  }
  Release();
  return fate;
}

absl::Status Communicator::Gone(int rank) {
  health_->ListenForFailures();
  if (const Health::Notice* notice = health_->notice()) {
    return WithOrigin(absl::UnavailableError(notice->cause.message()),
                      notice->origin);
  }
  return health_->LeftBy(rank) == nullptr ? absl::OkStatus()
                                          : WithOrigin(Departed(rank), rank);
}

bool Communicator::LeftBeforeCall(int rank) const {
  const Health::Leaving* left = health_->LeftBy(rank);
  return left != nullptr && current_ != nullptr &&
         static_cast<int32_t>(current_->sequence - left->sequence) >= 0;
}

bool Communicator::AllOthersLeft() const {
  for (int rank = 0; rank < parts_.membership.ranks; ++rank)
    if (rank != parts_.membership.rank && health_->LeftBy(rank) == nullptr)
      return false;
  return true;
}

std::optional<int> Communicator::LostWordsOf(int64_t now_ns) const {
  if (current_ == nullptr || !health_->anyone_left()) return std::nullopt;
  if (now_ns - stuck_since_ns_ < kTakenFromMemoryNs) return std::nullopt;
  const auto is_late = [&](int rank) {
    const Health::Leaving* left = health_->LeftBy(rank);
    if (left == nullptr) return false;
    const Transport* transport = parts_.transports->routes()[rank].transport;
    const int64_t patience_ns =
        transport->traits().delivers ? kTakenNs : kTakenFromMemoryNs;
    return now_ns - std::max(left->heard_ns, stuck_since_ns_) >= patience_ns;
  };
  for (const int rank : WaitsFor(*current_))
    if (is_late(rank)) return rank;
  return std::nullopt;
}

Health::LastCalls Communicator::LastCalls(uint32_t sequence) const {
  Health::LastCalls calls = {};
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const Envelope& call = past_calls_[(sequence - 1 - i) % kPastCalls];
    if (static_cast<uint32_t>(call.words[0]) == sequence - 1 - i)
      calls[i] = call;
  }
  return calls;
}

std::optional<RankCall> Communicator::LeaversCall() const {
  if (current_ == nullptr || !health_->anyone_left()) return std::nullopt;
  for (int rank = 0; rank < parts_.membership.ranks; ++rank) {
    const Health::Leaving* left = health_->LeftBy(rank);
    if (left == nullptr) continue;
    for (const Envelope& call : left->last_calls)
      if (call.words[0] == envelope_.words[0] && call != envelope_)
        return RankCall{rank, call};
  }
  return std::nullopt;
}

std::optional<int> Communicator::MissedLeaver() const {
  for (int rank = 0; rank < parts_.membership.ranks; ++rank) {
    if (health_->LeftBy(rank) == nullptr) continue;
    if (LeftBeforeCall(rank)) return rank;
    for (const Operation* operation : transfers_)
      if (operation->transfer.peer == rank) return rank;
  }
  return std::nullopt;
}

}  // namespace trnccl
