// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm_transport.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/origin.h"
#include "ccl/base/status_macros.h"
#include "transports/shm/sleep_barrier.h"
#include "transports/system_error.h"

namespace trnccl::shm {
namespace {

// Memories of peers that stay mapped between messages.
constexpr size_t kMappings = 64;
// Asking the kernel costs as much as many looks at the queues.
constexpr uint32_t kProgressCallsPerCheck = 4096;

class ShmRegion final : public Region {
 public:
  ShmRegion(std::span<const std::byte> memory,
            const std::optional<SharedPiece>& piece)
      : Region({.base = memory.data(),
                .bytes = memory.size(),
                .by_reference = piece.has_value()}),
        piece_(piece.value_or(SharedPiece{})) {}

  const SharedPiece& piece() const { return piece_; }

 private:
  SharedPiece piece_;
};

template <typename T>
T ReadPayload(const Descriptor& descriptor) {
  static_assert(sizeof(T) <= kInlineBytes);
  T value;
  std::memcpy(&value, descriptor.payload.data(), sizeof(T));
  return value;
}

template <typename T>
void WritePayload(Descriptor& descriptor, const T& value) {
  static_assert(sizeof(T) <= kInlineBytes);
  std::memcpy(descriptor.payload.data(), &value, sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmTransport>> ShmTransport::Create(
    const ShmOptions& options) {
  ASSIGN_OR_RETURN(SharedFile file, SharedFile::Create());
  Address address = {.pid = file.reference().pid,
                     .fd = file.reference().fd,
                     .inode = file.reference().inode};
  if (getrandom(&address.token, sizeof(address.token), 0) !=
      static_cast<ssize_t>(sizeof(address.token))) {
    return SystemError(errno, "getrandom");
  }
  ASSIGN_OR_RETURN(address.pid_namespace, PidNamespace());
  if (options.doorbell != nullptr) {
    address.doorbell = options.doorbell->address();
  }
  return absl::WrapUnique(new ShmTransport(options, std::move(file), address));
}

ShmTransport::ShmTransport(const ShmOptions& options, SharedFile file,
                           const Address& address)
    : options_(options),
      owner_pid_(getpid()),
      address_(address),
      file_(std::move(file)),
      arena_({}),
      sleep_barriers_(options.sleep_barriers && JoinSleepBarriers()),
      mappings_(kMappings) {
  traits_.name = "shm";
  traits_.address = address.Text();
  traits_.inline_bytes = kInlineBytes;
  traits_.by_reference = options.by_reference;
}

ShmTransport::~ShmTransport() {
  // In a forked child it isn't this rank that ends.
  if (mapping_.base() == nullptr || owner_pid_ != getpid()) return;
  own_.header().closed.store(1, std::memory_order_release);
}

absl::Status ShmTransport::Connect(const ConnectOptions& options) {
  RETURN_IF_ERROR(MapOwn(options));
  ASSIGN_OR_RETURN(peers_, ConnectPeers(options, address_, own_));
  // All who may map it have.
  file_.Close();
  set_lanes(options.lanes);
  for (const Peer& peer : peers_) {
    if (peer.process->ringer() != nullptr) rings_peers_ = true;
    if (peer.control.header().sleep_barriers == 0) fences_ = true;
    const int fd = peer.process->pidfd();
    traits_.process_fds.push_back(fd);
    if (fd < 0) watches_all_ = false;
    if (fd >= 0 && std::find(traits_.wake_fds.begin(), traits_.wake_fds.end(),
                             fd) == traits_.wake_fds.end()) {
      traits_.wake_fds.push_back(fd);
      deaths_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
  }
  WireLinks(options);
  MakeGate();
  traits_.peer_memory =
      options_.peer_memory &&
      std::all_of(peers_.begin(), peers_.end(),
                  [](const Peer& peer) { return ReachesMemoryOf(peer); });
  return absl::OkStatus();
}

absl::Status ShmTransport::MapOwn(const ConnectOptions& options) {
  Shape shape = {.peers = options.peers.size(),
                 .lanes = static_cast<size_t>(options.lanes)};
  const Arena::Shape arena =
      Arena::ShapeFor(options_.arena_bytes, shape.links());
  shape.arena_bytes = arena.bytes();
  arena_ = Arena(arena);
  traits_.slice_bytes = arena.slice_bytes;
  auto mapping = file_.Resize({.bytes = Control::Bytes(shape),
                               .filled_bytes = Control::QueueBytes(shape)});
  if (!mapping.ok()) {
    return absl::Status(
        mapping.status().code(),
        absl::StrCat("shm: the queues of rank ", options.rank, ": ",
                     absl::string_view(mapping.status().message())));
  }
  mapping_ = *std::move(mapping);
  own_ = Control(mapping_.base(), shape);
  own_.Initialise({.magic = kMagic,
                   .token = address_.token,
                   .rank = options.rank,
                   .first_sequence = options_.first_sequence,
                   .sleep_barriers = sleep_barriers_ ? 1u : 0u});
  fences_ = !sleep_barriers_;
  own_.header().ready.store(1, std::memory_order_release);
  return absl::OkStatus();
}

void ShmTransport::WireLinks(const ConnectOptions& options) {
  const size_t lanes = own_.shape().lanes;
  const uint32_t first = options_.first_sequence;
  sending_.resize(own_.shape().links());
  receiving_.resize(own_.shape().links());
  for (size_t p = 0; p < options.peers.size(); ++p) {
    const Peer& peer = peers_[p];
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t mine = p * lanes + lane;
      const size_t theirs = peer.my_index * lanes + lane;
      Sending& sending = sending_[mine];
      sending.ring = own_.ring(mine);
      sending.consumed = &peer.control.consumed(theirs);
      sending.asleep = &peer.control.header().asleep;
      sending.peer = &peer;
      sending.next = sending.released = first;
      sending.slices.fill(kNoSlice);
      Receiving& receiving = receiving_[mine];
      receiving.ring = peer.control.ring(theirs);
      receiving.consumed = &own_.consumed(mine);
      receiving.peer = &peer;
      receiving.next = first;
    }
  }
}

void ShmTransport::MakeGate() {
  const auto words = [](const Control& control) {
    Header& header = control.header();
    return GateWords{.inside = &header.inside, .left = &header.left};
  };
  std::vector<Gate::Peer> peers;
  for (const Peer& peer : peers_)
    peers.push_back({peer.rank, words(peer.control)});
  gate_ = Gate(words(own_), std::move(peers));
}

absl::StatusOr<std::unique_ptr<Region>> ShmTransport::RegisterMemory(
    const MemoryRange& memory) {
  if (memory.kind != MemoryRange::Kind::kHost)
    return absl::UnimplementedError("shm reaches no device's memory");
  std::optional<SharedPiece> piece;
  if (options_.by_reference) piece = FindShared(memory.base, memory.bytes);
  return std::make_unique<ShmRegion>(std::span(memory.base, memory.bytes),
                                     piece);
}

void ShmTransport::Refresh(Sending& link) {
  const uint32_t consumed = link.consumed->load(std::memory_order_acquire);
  if (consumed - link.released > link.next - link.released) {
    Fail(absl::InternalError(absl::StrCat(
        "shm: ", link.peer->Name(), " released messages that it wasn't sent")));
    return;
  }
  for (; link.released != consumed; ++link.released) {
    uint32_t& slice = link.slices[link.released % kRingDepth];
    if (slice != kNoSlice) arena_.Drop(slice);
    slice = kNoSlice;
  }
}

inline bool ShmTransport::Full(Sending& link) {
  if (link.next - link.released < kRingDepth) [[likely]]
    return false;
  Refresh(link);
  return link.next - link.released >= kRingDepth;
}

std::byte* ShmTransport::Reserve(std::span<const LinkId> links, size_t bytes) {
  if (links.size() == 1 && bytes <= kInlineBytes) [[likely]] {
    Sending& link = sending_[links[0].index];
    if (Full(link)) return nullptr;
    reserved_.bytes = bytes;
    reserved_.kind = MessageKind::kInline;
    return link.ring[link.next % kRingDepth].payload.data();
  }
  TRNCCL_CHECK(bytes <= traits_.slice_bytes);
  for (const LinkId link : links) {
    if (Full(sending_[link.index])) return nullptr;
  }
  if (bytes > kInlineBytes) return ReserveInArena(links, bytes);
  reserved_.bytes = bytes;
  reserved_.kind = MessageKind::kInline;
  return staging_.data();
}

std::byte* ShmTransport::ReserveInArena(std::span<const LinkId> links,
                                        size_t bytes) {
  if (!arena_filled_) {
    absl::Status filled = FillShared(own_.arena(), own_.shape().arena_bytes);
    if (!filled.ok()) {
      Fail(absl::Status(
          filled.code(),
          absl::StrCat("shm: the arena: ", absl::string_view(filled.message()),
                       ", or lower TRNCCL_ARENA_BYTES")));
      return nullptr;
    }
    arena_filled_ = true;
  }
  std::optional<Arena::Piece> piece = arena_.Next(bytes);
  if (!piece.has_value()) {
    for (Sending& link : sending_) Refresh(link);
    piece = arena_.Next(bytes);
  }
  if (!piece.has_value()) {
    for (const LinkId id : links) {
      const Sending& link = sending_[id.index];
      if (link.next != link.released) return nullptr;
    }
    piece = arena_.Apart();
  }
  reserved_ = {.bytes = bytes, .kind = MessageKind::kArena, .piece = *piece};
  return own_.arena() + piece->offset;
}

inline void ShmTransport::Wake(const Sending& link) {
  if (!rings_peers_) return;
  // Between our word in the queue and the look at the peer's flag: see
  // sleep_barrier.h.
  if (fences_) [[unlikely]] {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  if (link.asleep->load(std::memory_order_relaxed) != 0) [[unlikely]]
    Ring(*link.peer);
}

inline void ShmTransport::Publish(Sending& link, const Envelope& envelope,
                                  MessageWord word) {
  Descriptor& descriptor = link.ring[link.next % kRingDepth];
  descriptor.envelope = envelope;
  descriptor.head.store(uint64_t{word.Pack()} << 32 | link.next,
                        std::memory_order_release);
  ++link.next;
}

bool ShmTransport::Send(std::span<const LinkId> links,
                        const Outgoing& message) {
  if (message.region != nullptr) return SendRegion(links, message);
  TRNCCL_CHECK(message.bytes <= reserved_.bytes);
  const MessageWord word = {.kind = reserved_.kind,
                            .bytes = static_cast<uint32_t>(message.bytes)};
  if (links.size() == 1 && word.kind == MessageKind::kInline) [[likely]] {
    Sending& link = sending_[links[0].index];
    Publish(link, message.envelope, word);
    Wake(link);
    return true;
  }
  if (word.kind == MessageKind::kArena) {
    SendInArena(links, message, word);
  } else {
    for (const LinkId id : links) {
      Sending& link = sending_[id.index];
      std::memcpy(link.ring[link.next % kRingDepth].payload.data(),
                  staging_.data(), message.bytes);
      Publish(link, message.envelope, word);
    }
  }
  for (const LinkId id : links) Wake(sending_[id.index]);
  return true;
}

void ShmTransport::SendInArena(std::span<const LinkId> links,
                               const Outgoing& message, MessageWord word) {
  arena_.Hold(reserved_.piece, {.bytes = message.bytes,
                                .links = static_cast<uint32_t>(links.size())});
  for (const LinkId id : links) {
    Sending& link = sending_[id.index];
    link.slices[link.next % kRingDepth] = reserved_.piece.slice;
    WritePayload(link.ring[link.next % kRingDepth],
                 uint64_t{reserved_.piece.offset});
    Publish(link, message.envelope, word);
  }
}

bool ShmTransport::SendRegion(std::span<const LinkId> links,
                              const Outgoing& message) {
  const auto& region = static_cast<const ShmRegion&>(*message.region);
  TRNCCL_CHECK(message.offset <= region.bytes() &&
               message.bytes <= region.bytes() - message.offset);
  if (region.by_reference() && message.bytes > kInlineBytes)
    return SendReference(links, message, region.piece());
  std::byte* slice = Reserve(links, message.bytes);
  if (slice == nullptr) return false;
  std::memcpy(slice, region.base() + message.offset, message.bytes);
  return Send(links, {.envelope = message.envelope, .bytes = message.bytes});
}

bool ShmTransport::SendReference(std::span<const LinkId> links,
                                 const Outgoing& message,
                                 const SharedPiece& region) {
  TRNCCL_CHECK(message.bytes <= traits_.slice_bytes);
  for (const LinkId link : links) {
    if (Full(sending_[link.index])) return false;
  }
  SharedPiece piece = region;
  piece.offset += message.offset;
  for (const LinkId id : links) {
    Sending& link = sending_[id.index];
    WritePayload(link.ring[link.next % kRingDepth], piece);
    Publish(link, message.envelope,
            {.kind = MessageKind::kReference,
             .bytes = static_cast<uint32_t>(message.bytes)});
    Wake(link);
  }
  return true;
}

void ShmTransport::Ring(const Peer& peer) {
  if (peer.process->ringer() != nullptr) peer.process->ringer()->Ring();
}

size_t ShmTransport::Pending(LinkId link) {
  Sending& sending = sending_[link.index];
  Refresh(sending);
  return sending.next - sending.released;
}

const Incoming* ShmTransport::Peek(LinkId link, const Expected*) {
  Receiving& receiving = receiving_[link.index];
  if (receiving.peeked) return &receiving.incoming;
  const Descriptor& descriptor = receiving.ring[receiving.next % kRingDepth];
  const uint64_t head = descriptor.head.load(std::memory_order_acquire);
  if (static_cast<uint32_t>(head) != receiving.next) return nullptr;
  const auto word = static_cast<uint32_t>(head >> 32);
  // The word of an inline message is its length.
  if (word > kInlineBytes)
    return Open(receiving, descriptor, MessageWord::Unpack(word));
  receiving.incoming = {.envelope = descriptor.envelope,
                        .data = descriptor.payload.data(),
                        .bytes = word,
                        .by_reference = false};
  receiving.peeked = true;
  return &receiving.incoming;
}

const Incoming* ShmTransport::Open(Receiving& link,
                                   const Descriptor& descriptor,
                                   MessageWord word) {
  absl::StatusOr<const std::byte*> data = Locate(link, descriptor, word);
  if (!data.ok()) [[unlikely]] {
    Fail(
        absl::Status(data.status().code(),
                     absl::StrCat("shm: a message of ", link.peer->Name(), ": ",
                                  absl::string_view(data.status().message()))));
    return nullptr;
  }
  link.incoming.envelope = descriptor.envelope;
  link.incoming.by_reference = word.kind == MessageKind::kReference;
  link.incoming.data = *data;
  link.incoming.bytes = word.bytes;
  link.peeked = true;
  return &link.incoming;
}

absl::StatusOr<const std::byte*> ShmTransport::Locate(
    Receiving& link, const Descriptor& descriptor, MessageWord word) {
  const Shape& shape = own_.shape();
  if (word.kind == MessageKind::kInline || word.bytes > traits_.slice_bytes) {
    return absl::InternalError(
        absl::StrCat("its length can't be: ", word.bytes));
  }
  if (word.kind == MessageKind::kArena) {
    const auto offset = ReadPayload<uint64_t>(descriptor);
    if (offset > shape.arena_bytes - word.bytes) {
      return absl::InternalError(
          absl::StrCat("it begins beyond the arena, at ", offset));
    }
    return link.peer->control.arena() + offset;
  }
  if (word.kind == MessageKind::kReference) {
    const auto piece = ReadPayload<SharedPiece>(descriptor);
    if (piece.memory.bytes < word.bytes ||
        piece.offset > piece.memory.bytes - word.bytes) {
      return absl::InternalError("it reaches beyond its memory");
    }
    ASSIGN_OR_RETURN(link.mapping, mappings_.Get(piece.memory));
    return link.mapping.base() + piece.offset;
  }
  return absl::InternalError("its kind can't be");
}

void ShmTransport::Release(LinkId link) {
  Receiving& receiving = receiving_[link.index];
  TRNCCL_CHECK(receiving.peeked);
  receiving.peeked = false;
  ++receiving.next;
  receiving.consumed->store(receiving.next, std::memory_order_release);
  Wake(sending_[link.index]);
}

absl::Status ShmTransport::Progress() {
  if (++progress_calls_ % kProgressCallsPerCheck == 0 || check_peers_now_) {
    check_peers_now_ = false;
    CheckPeers();
  }
  return status_;
}

void ShmTransport::CheckPeers() {
  if (watches_all_ && poll(deaths_.data(), deaths_.size(), 0) <= 0) return;
  for (Peer& peer : peers_) {
    if (peer.gone || peer.process->alive()) continue;
    peer.gone = true;
    // One that left in order may have died since.
    if (peer.control.header().closed.load(std::memory_order_acquire) != 0) {
      continue;
    }
    Fail(WithOrigin(
        absl::UnavailableError(absl::StrCat("shm: ", peer.Name(), " died")),
        peer.rank));
  }
}

void ShmTransport::Fail(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

void ShmTransport::SetPresence(Presence presence) {
  const bool asleep = presence == Presence::kAsleep;
  own_.header().asleep.store(asleep ? 1 : 0, std::memory_order_relaxed);
  check_peers_now_ = !asleep;
  if (!asleep) return;
  if (sleep_barriers_) RunSleepBarrier();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace trnccl::shm
