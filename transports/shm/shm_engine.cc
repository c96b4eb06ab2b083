// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm_engine.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "transports/shared_memory.h"
#include "transports/shm/mapping_table.h"

namespace trnccl {
namespace {

constexpr size_t kLineBytes = 64;
// What one Advance() reads, about: some tens of microseconds.
constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kMinOperandBytes = 16 << 10;
// Memories of peers that stay mapped between calls.
constexpr size_t kMappings = 256;

// Whose input and output a rank must reach.
enum class Reach { kNone, kOwn, kRoot, kAll };

struct Access {
  bool folds = false;
  Reach inputs = Reach::kNone;
  Reach outputs = Reach::kNone;
  // Blocks of a rank's input and output: one, or one a rank.
  bool input_blocks = false;
  bool output_blocks = false;
};

std::optional<Access> AccessOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return Access{true, Reach::kAll, Reach::kAll, false, false};
    case Collective::kReduce:
      return Access{true, Reach::kAll, Reach::kRoot, false, false};
    case Collective::kReduceScatter:
      return Access{true, Reach::kAll, Reach::kOwn, true, false};
    case Collective::kAllGather:
      return Access{false, Reach::kAll, Reach::kOwn, false, true};
    case Collective::kBroadcast:
      return Access{false, Reach::kRoot, Reach::kOwn, false, false};
    case Collective::kScatter:
      return Access{false, Reach::kRoot, Reach::kOwn, true, false};
    case Collective::kGather:
      return Access{false, Reach::kOwn, Reach::kRoot, false, true};
    case Collective::kAllToAll:
      return Access{false, Reach::kAll, Reach::kOwn, true, true};
    default:
      return std::nullopt;
  }
}

// Offer::bytes. A memory of no bytes: peers don't need that buffer.
struct OfferedPieces {
  SharedPiece input;
  SharedPiece output;
};
static_assert(sizeof(OfferedPieces) <= sizeof(Offer::bytes));

class ShmEngine final : public Engine {
 public:
  explicit ShmEngine(const Membership& membership)
      : membership_(membership),
        mappings_(kMappings),
        mapped_(2 * static_cast<size_t>(membership.ranks)),
        inputs_(static_cast<size_t>(membership.ranks)),
        outputs_(static_cast<size_t>(membership.ranks)),
        run_(this) {}

  bool Accepts(const EngineCall& call) const override;
  Offer MakeOffer(const EngineCall& call) override;
  absl::StatusOr<EngineRun*> Start(const EngineCall& call,
                                   std::span<const Offer> offers) override;

 private:
  struct Copy {
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    size_t bytes = 0;
  };

  // What's left of this rank's part.
  class Run final : public EngineRun {
   public:
    explicit Run(ShmEngine* engine) : engine_(engine) {}
    absl::StatusOr<bool> Advance() override {
      return engine_->access_.folds ? engine_->AdvanceFold()
                                    : engine_->AdvanceCopies();
    }

   private:
    ShmEngine* engine_;
  };

  struct Mapped {
    SharedReference reference;
    SharedMapping mapping;
  };

  int ranks() const { return membership_.ranks; }
  size_t block_bytes() const {
    return static_cast<size_t>(call_.count) * call_.element_bytes;
  }
  bool Reaches(Reach reach, int rank) const;
  absl::StatusOr<std::byte*> Locate(const SharedPiece& piece, size_t bytes,
                                    Mapped& mapped);
  absl::Status MapBuffers(std::span<const Offer> offers);
  void PlanFold();
  void PlanCopies();
  void AddCopy(const std::byte* source, std::byte* target);
  bool AdvanceFold();
  bool AdvanceCopies();

  const Membership membership_;
  shm::MappingTable mappings_;
  // Inputs by rank, then outputs: mostly those of the call before.
  std::vector<Mapped> mapped_;

  EngineCall call_;
  Access access_;
  std::vector<const std::byte*> inputs_;  // by rank; of the rest of a fold
  std::vector<std::byte*> outputs_;       // by rank, null out of reach
  std::vector<std::byte*> results_;       // of the rest of a fold
  size_t left_ = 0;                       // elements of the fold
  std::vector<Copy> copies_;              // the rest, the last one first
  Run run_;
};

bool ShmEngine::Accepts(const EngineCall& call) const {
  const std::optional<Access> access = AccessOf(call.collective);
  if (!access.has_value() || ranks() < 2 || call.count <= 0) return false;
  const size_t most = SIZE_MAX / 4 / call.element_bytes;
  return static_cast<size_t>(call.count) <= most / static_cast<size_t>(ranks());
}

// Whether a peer of `rank`'s must reach that buffer of its.
bool ReachedByPeers(Reach reach, int rank, int root) {
  return reach == Reach::kAll || (reach == Reach::kRoot && rank == root);
}

Offer ShmEngine::MakeOffer(const EngineCall& call) {
  const Access access = *AccessOf(call.collective);
  const bool in_place = call.input == call.output;
  if (call.collective == Collective::kAllToAll && in_place) return {};
  const size_t block = static_cast<size_t>(call.count) * call.element_bytes;
  const size_t all = block * static_cast<size_t>(ranks());
  OfferedPieces pieces;
  if (ReachedByPeers(access.inputs, membership_.rank, call.root)) {
    auto piece = FindShared(call.input, access.input_blocks ? all : block);
    if (!piece.has_value()) return {};
    pieces.input = *piece;
  }
  if (ReachedByPeers(access.outputs, membership_.rank, call.root)) {
    auto piece = FindShared(call.output, access.output_blocks ? all : block);
    if (!piece.has_value()) return {};
    pieces.output = *piece;
  }
  Offer offer = {.made = true};
  std::memcpy(offer.bytes.data(), &pieces, sizeof(pieces));
  return offer;
}

bool ShmEngine::Reaches(Reach reach, int rank) const {
  return reach == Reach::kAll ||
         (reach == Reach::kRoot && rank == call_.root) ||
         (reach == Reach::kOwn && rank == membership_.rank);
}

absl::StatusOr<std::byte*> ShmEngine::Locate(const SharedPiece& piece,
                                             size_t bytes, Mapped& mapped) {
  if (piece.memory.bytes < bytes || piece.offset > piece.memory.bytes - bytes) {
    return absl::InternalError("its offer reaches beyond its memory");
  }
  if (mapped.mapping.base() == nullptr || mapped.reference != piece.memory) {
    ASSIGN_OR_RETURN(mapped.mapping, mappings_.Get(piece.memory));
    mapped.reference = piece.memory;
  }
  return mapped.mapping.base() + piece.offset;
}

absl::Status ShmEngine::MapBuffers(std::span<const Offer> offers) {
  const size_t all = block_bytes() * static_cast<size_t>(ranks());
  const size_t input_bytes = access_.input_blocks ? all : block_bytes();
  const size_t output_bytes = access_.output_blocks ? all : block_bytes();
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    inputs_[r] = nullptr;
    outputs_[r] = nullptr;
    if (rank == membership_.rank) {
      inputs_[r] = call_.input;
      if (Reaches(access_.outputs, rank)) outputs_[r] = call_.output;
      continue;
    }
    OfferedPieces pieces;
    std::memcpy(&pieces, offers[r].bytes.data(), sizeof(pieces));
    absl::Status status;
    if (Reaches(access_.inputs, rank)) {
      auto base = Locate(pieces.input, input_bytes, mapped_[r]);
      if (base.ok()) inputs_[r] = *base;
      status.Update(base.status());
    }
    if (Reaches(access_.outputs, rank)) {
      auto base = Locate(pieces.output, output_bytes,
                         mapped_[r + static_cast<size_t>(ranks())]);
      if (base.ok()) outputs_[r] = *base;
      status.Update(base.status());
    }
    if (status.ok()) continue;
    return absl::Status(
        status.code(), absl::StrCat("shm engine: the buffers of rank ", rank,
                                    ": ", absl::string_view(status.message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineRun*> ShmEngine::Start(const EngineCall& call,
                                            std::span<const Offer> offers) {
  call_ = call;
  access_ = *AccessOf(call.collective);
  RETURN_IF_ERROR(MapBuffers(offers));
  if (access_.folds) {
    PlanFold();
  } else {
    PlanCopies();
  }
  return &run_;
}

// The first element of a rank's part: even parts, cut between lines.
size_t PartBegin(size_t elements, size_t element_bytes,
                 const Membership& part) {
  const size_t per_line = std::max<size_t>(kLineBytes / element_bytes, 1);
  const size_t lines = elements / per_line + (elements % per_line != 0);
  const auto ranks = static_cast<size_t>(part.ranks);
  const auto rank = static_cast<size_t>(part.rank);
  const size_t begin = rank * (lines / ranks) + std::min(rank, lines % ranks);
  return std::min(elements, begin * per_line);
}

void ShmEngine::PlanFold() {
  const auto count = static_cast<size_t>(call_.count);
  const auto rank = static_cast<size_t>(membership_.rank);
  size_t first = 0;  // byte of all inputs
  size_t shift = 0;  // byte of all outputs
  if (access_.input_blocks) {
    first = rank * block_bytes();
    left_ = count;
  } else {
    const size_t begin = PartBegin(count, call_.element_bytes, membership_);
    const size_t end =
        PartBegin(count, call_.element_bytes,
                  {.rank = membership_.rank + 1, .ranks = membership_.ranks});
    first = shift = begin * call_.element_bytes;
    left_ = end - begin;
  }
  for (const std::byte*& input : inputs_) input += first;
  results_.clear();
  for (std::byte* output : outputs_) {
    if (output != nullptr) results_.push_back(output + shift);
  }
}

bool ShmEngine::AdvanceFold() {
  const size_t operand_bytes =
      std::max(kPieceBytes / inputs_.size(), kMinOperandBytes);
  const size_t count = std::min(left_, operand_bytes / call_.element_bytes);
  if (count > 0) call_.fold->Fold(inputs_, results_, count);
  left_ -= count;
  for (const std::byte*& input : inputs_) input += count * call_.element_bytes;
  for (std::byte*& result : results_) result += count * call_.element_bytes;
  return left_ == 0;
}

void ShmEngine::AddCopy(const std::byte* source, std::byte* target) {
  if (source != target) copies_.push_back({source, target, block_bytes()});
}

void ShmEngine::PlanCopies() {
  copies_.clear();
  const auto self = static_cast<size_t>(membership_.rank);
  const auto root = static_cast<size_t>(call_.root);
  const size_t block = block_bytes();
  switch (call_.collective) {
    case Collective::kBroadcast:
      return AddCopy(inputs_[root], outputs_[self]);
    case Collective::kScatter:
      return AddCopy(inputs_[root] + self * block, outputs_[self]);
    case Collective::kGather:
      return AddCopy(inputs_[self], outputs_[root] + self * block);
    default:
      break;
  }
  // Each begins with another, so that ranks don't queue for one memory.
  const size_t skip = access_.input_blocks ? self * block : 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const size_t peer = (self + i) % inputs_.size();
    AddCopy(inputs_[peer] + skip, outputs_[self] + peer * block);
  }
}

bool ShmEngine::AdvanceCopies() {
  if (copies_.empty()) return true;
  Copy& copy = copies_.back();
  const size_t bytes = std::min(copy.bytes, kPieceBytes);
  std::memcpy(copy.target, copy.source, bytes);
  copy.source += bytes;
  copy.target += bytes;
  copy.bytes -= bytes;
  if (copy.bytes == 0) copies_.pop_back();
  return copies_.empty();
}

}  // namespace

std::unique_ptr<Engine> MakeShmEngine(const Membership& membership) {
  return std::make_unique<ShmEngine>(membership);
}

}  // namespace trnccl
