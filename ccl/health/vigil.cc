// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/health/vigil.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

// What neighbours say to each other here is short.
constexpr size_t kMaxWordBytes = 4 << 10;
constexpr size_t kMaxReasonBytes = 1 << 10;
constexpr size_t kMaxCallsBytes = 1 << 10;
constexpr size_t kLengthBytes = sizeof(uint32_t);

// Departures kept for communicators that this rank hasn't made, or has ended.
constexpr size_t kMostEarly = 4096;

// So long a loss waits for what the lost rank sent before it ended.
constexpr int64_t kLastWordsNs = 200'000'000;

TreeFrame FrameOf(const Vigil::Loss& loss) {
  WireWriter writer;
  writer.U32(static_cast<uint32_t>(loss.rank));
  writer.Text(std::string_view(loss.reason).substr(0, kMaxReasonBytes));
  return {TreeFrame::Kind::kLost, 0, writer.bytes()};
}

TreeFrame FrameOf(const Vigil::Departure& departure) {
  WireWriter writer;
  writer.U32(departure.cookie);
  writer.U32(static_cast<uint32_t>(departure.rank));
  writer.U32(departure.sequence);
  writer.Text(departure.last_calls);
  return {TreeFrame::Kind::kDeparted, 0, writer.bytes()};
}

}  // namespace

// All that there are, for a fork: none is made or ends amid one.
class VigilsOfProcess {
 public:
  static void Add(Vigil* vigil) {
    [[maybe_unused]] static const int registered =
        pthread_atfork([] { mutex_.lock(); }, [] { mutex_.unlock(); },
                       [] {
                         for (Vigil* each : vigils_) each->CloseInChild();
                         vigils_.clear();
                         mutex_.unlock();
                       });
    const std::lock_guard<std::mutex> lock(mutex_);
    vigils_.push_back(vigil);
  }
  static void Remove(Vigil* vigil) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase(vigils_, vigil);
  }

 private:
  static inline std::mutex mutex_;
  static inline std::vector<Vigil*>& vigils_ = *new std::vector<Vigil*>;
};

absl::StatusOr<std::shared_ptr<Vigil>> Vigil::Start(Options options) {
  ASSIGN_OR_RETURN(ProgressThread * thread, ProgressThread::OfProcess());
  auto vigil = std::shared_ptr<Vigil>(new Vigil(std::move(options)));
  vigil->progress_thread_ = thread;
  VigilsOfProcess::Add(vigil.get());
  thread->Add(vigil.get());
  thread->Notify();
  return vigil;
}

Vigil::Vigil(Options options)
    : rank_(options.rank),
      ranks_(options.ranks),
      silence_ms_(options.silence_ms),
      known_(static_cast<size_t>(options.ranks)) {
  MutexLock lock(mutex_);
  if (options.tree.parent.socket.is_open())
    neighbours_.push_back({std::move(options.tree.parent), ""});
  for (TreeLink& child : options.tree.children)
    neighbours_.push_back({std::move(child), ""});
  for (const Neighbour& neighbour : neighbours_)
    ProbeWhileSilent(neighbour.link.socket, silence_ms_);
}

Vigil::~Vigil() {
  progress_thread_->Remove(this);
  VigilsOfProcess::Remove(this);
  MutexLock lock(mutex_);
  // Who can't be told sees the end of the link.
  PassOn({TreeFrame::Kind::kLeft, 0, ""}, nullptr);
}

// The lock may be another thread's, which the child doesn't have.
void Vigil::CloseInChild() {
  for (Neighbour& neighbour : neighbours_) neighbour.link.socket.Close();
}

void Vigil::Report(const Loss& loss) {
  MutexLock lock(mutex_);
  Note(loss, nullptr);
}

std::vector<Vigil::Loss> Vigil::LossesFrom(size_t first) const {
  MutexLock lock(mutex_);
  return {losses_.begin() + static_cast<ptrdiff_t>(first), losses_.end()};
}

void Vigil::LookNow() {
  MutexLock lock(mutex_);
  Look();
  Publish();
}

Drivable::Drive Vigil::DriveOnce() {
  MutexLock lock(mutex_);
  if (look_.exchange(false)) Look();
  if (Publish()) return Drive::kMoved;
  return pending_.empty() ? Drive::kNoWork : Drive::kIdle;
}

Drivable::Drive Vigil::PrepareSleep(std::vector<int>* wake_fds) {
  MutexLock lock(mutex_);
  look_.store(true);
  for (const Neighbour& neighbour : neighbours_)
    if (neighbour.link.socket.is_open())
      wake_fds->push_back(neighbour.link.socket.fd());
  return pending_.empty() ? Drive::kNoWork : Drive::kIdle;
}

void Vigil::Look() {
  for (Neighbour& neighbour : neighbours_)
    if (neighbour.link.socket.is_open()) Read(neighbour);
}

void Vigil::Read(Neighbour& neighbour) {
  char bytes[512];
  while (neighbour.link.socket.is_open()) {
    const absl::StatusOr<size_t> count =
        ReceiveSome(neighbour.link.socket, bytes, sizeof(bytes));
    if (!count.ok()) {
      Lose(neighbour, count.status());
      return;
    }
    if (*count == 0) return;
    neighbour.bytes.append(bytes, *count);
    while (TakeFrame(neighbour)) {
    }
  }
}

bool Vigil::TakeFrame(Neighbour& neighbour) {
  std::string& bytes = neighbour.bytes;
  if (bytes.size() < kLengthBytes) return false;
  const size_t length = WireReader(bytes).U32();
  if (length > kMaxWordBytes) {
    Lose(neighbour, absl::InvalidArgumentError("it sent what isn't a word of "
                                               "this library"));
    return false;
  }
  if (bytes.size() < kLengthBytes + length) return false;
  const std::optional<TreeFrame> frame =
      ParseFrame(std::string_view(bytes).substr(kLengthBytes, length));
  bytes.erase(0, kLengthBytes + length);
  if (!frame) return true;
  if (frame->kind == TreeFrame::Kind::kLeft) {
    neighbour.link.socket.Close();
    return false;
  }
  // Of other kinds: an exchange's error, from who failed to make its
  // communicator and ends the link.
  if (frame->kind == TreeFrame::Kind::kLost) TakeLoss(frame->body, neighbour);
  if (frame->kind == TreeFrame::Kind::kDeparted)
    TakeDeparture(frame->body, neighbour);
  return true;
}

void Vigil::TakeLoss(std::string_view word, const Neighbour& from) {
  WireReader reader(word);
  const uint32_t rank = reader.U32();
  const std::string_view reason = reader.Text(kMaxReasonBytes);
  if (!reader.Finished() || rank >= known_.size()) return;
  Note({.rank = static_cast<int>(rank), .reason = std::string(reason)}, &from);
}

void Vigil::TakeDeparture(std::string_view word, const Neighbour& from) {
  WireReader reader(word);
  Departure departure{.cookie = reader.U32()};
  const uint32_t rank = reader.U32();
  departure.sequence = reader.U32();
  departure.last_calls = reader.Text(kMaxCallsBytes);
  if (!reader.Finished() || rank >= known_.size()) return;
  departure.rank = static_cast<int>(rank);
  PassOn(FrameOf(departure), &from);
  const auto attended = departures_.find(departure.cookie);
  if (attended == departures_.end()) {
    early_.push_back(departure);
    if (early_.size() > kMostEarly) early_.pop_front();
    return;
  }
  // No more than there are ranks, whatever a peer says.
  if (attended->second.size() >= known_.size()) return;
  attended->second.push_back(departure);
  departed_.fetch_add(1, std::memory_order_release);
  progress_thread_->Notify();
}

void Vigil::Depart(const Departure& departure) {
  MutexLock lock(mutex_);
  PassOn(FrameOf(departure), nullptr);
}

void Vigil::Attend(uint32_t cookie) {
  MutexLock lock(mutex_);
  std::vector<Departure>& departures = departures_[cookie];
  const size_t most = known_.size();
  std::erase_if(early_, [&](const Departure& early) {
    if (early.cookie != cookie || departures.size() >= most) return false;
    departures.push_back(early);
    departed_.fetch_add(1, std::memory_order_release);
    return true;
  });
}

void Vigil::Unattend(uint32_t cookie) {
  MutexLock lock(mutex_);
  departures_.erase(cookie);
}

std::vector<Vigil::Departure> Vigil::DeparturesFrom(uint32_t cookie) const {
  MutexLock lock(mutex_);
  const auto attended = departures_.find(cookie);
  return attended == departures_.end() ? std::vector<Departure>()
                                       : attended->second;
}

void Vigil::PassOn(const TreeFrame& frame, const Neighbour* from) {
  for (const Neighbour& neighbour : neighbours_) {
    if (&neighbour == from || !neighbour.link.socket.is_open()) continue;
    SendFrameTo(neighbour.link, frame, {Deadline::After(0)}).IgnoreError();
  }
}

void Vigil::Lose(Neighbour& neighbour, const absl::Status& why) {
  neighbour.link.socket.Close();
  Note({.rank = neighbour.link.rank,
        .reason =
            absl::IsDeadlineExceeded(why)
                ? absl::StrCat("has given rank ", rank_,
                               " no sign of life for ", silence_ms_,
                               " ms: its node, or the network to it, is gone")
                : absl::StrCat("died: it ended its connection to rank ", rank_,
                               " without leaving (", why.message(), ")")},
       nullptr);
}

void Vigil::Note(const Loss& loss, const Neighbour* from) {
  // Who's told that it's lost itself knows better.
  if (loss.rank == rank_ || known_[static_cast<size_t>(loss.rank)]) return;
  known_[static_cast<size_t>(loss.rank)] = true;
  PassOn(FrameOf(loss), from);
  pending_.push_back({.loss = loss, .due_ns = NowNs() + kLastWordsNs});
  progress_thread_->Notify();
}

bool Vigil::Publish() {
  bool published = false;
  while (!pending_.empty() && NowNs() >= pending_.front().due_ns) {
    losses_.push_back(std::move(pending_.front().loss));
    pending_.erase(pending_.begin());
    published_.store(losses_.size(), std::memory_order_release);
    published = true;
  }
  return published;
}

}  // namespace trnccl
