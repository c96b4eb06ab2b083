// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/shm_engine.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/origin.h"
#include "ccl/base/status_macros.h"
#include "transports/shm/mapping_table.h"
#include "transports/shm/rank_buffer.h"

namespace trnccl {
namespace {

using shm::OfferedBuffer;
using shm::RankBuffer;

constexpr size_t kLineBytes = 64;
// What one Advance() copies, or reads to fold, about: some tens of
// microseconds. A fold's operands stay in the private cache while they come by
// the kernel.
constexpr size_t kCopyBytes = 1024 << 10;
constexpr size_t kFoldBytes = 512 << 10;
constexpr size_t kMinOperandBytes = 16 << 10;
constexpr size_t kMaxOperandBytes = 128 << 10;
constexpr size_t kMinReducePartBytes = 128 << 10;
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

// Offer::bytes. kNone: peers don't need that buffer.
struct OfferedBuffers {
  OfferedBuffer input;
  OfferedBuffer output;
  // Whether this rank reaches memory of its peers that isn't mapped.
  uint8_t reaches_unmapped = 0;
};
static_assert(sizeof(OfferedBuffers) <= sizeof(Offer::bytes));

OfferedBuffers BuffersOf(const Offer& offer) {
  OfferedBuffers buffers;
  std::memcpy(&buffers, offer.bytes.data(), sizeof(buffers));
  return buffers;
}

class ShmEngine final : public Engine {
 public:
  explicit ShmEngine(const ShmEngineOptions& options)
      : membership_(options.membership),
        reaches_unmapped_(options.reaches_unmapped),
        gate_(options.gate),
        mappings_(kMappings),
        pids_(static_cast<size_t>(options.membership.ranks)),
        inputs_(static_cast<size_t>(options.membership.ranks)),
        outputs_(static_cast<size_t>(options.membership.ranks)),
        operands_(static_cast<size_t>(options.membership.ranks)),
        run_(this) {
    const auto ranks = static_cast<size_t>(options.membership.ranks);
    for (size_t i = 0; i < 2 * ranks; ++i) {
      const size_t rank = i % ranks;
      const pid_t pid = rank < options.pids.size() ? options.pids[rank] : 0;
      caches_.emplace_back(&own_, pid);
    }
  }

  bool Accepts(const EngineCall& call) const override;
  Offer MakeOffer(const EngineCall& call) override;
  absl::StatusOr<EngineRun*> Start(const EngineCall& call,
                                   std::span<const Offer> offers) override;
  absl::Status Leave() override { return gate_->Leave(); }

 private:
  struct Copy {
    RankBuffer source;
    RankBuffer target;
    size_t bytes = 0;
  };

  // What's left of this rank's part.
  class Run final : public EngineRun {
   public:
    explicit Run(ShmEngine* engine) : engine_(engine) {}
    absl::StatusOr<bool> Advance() override { return engine_->Advance(); }

   private:
    ShmEngine* engine_;
  };

  int ranks() const { return membership_.ranks; }
  size_t block_bytes() const {
    return static_cast<size_t>(call_.count) * call_.element_bytes;
  }
  bool Reaches(Reach reach, int rank) const;
  absl::Status FindBuffers(std::span<const Offer> offers);
  // Says whose buffer couldn't be read or written.
  absl::Status About(const RankBuffer& buffer,
                     const absl::Status& status) const;
  bool LeavesAllToRoot() const;
  absl::Status PlanFold();
  absl::Status MakeBounces();
  void PlanCopies();
  void AddCopy(const RankBuffer& source, const RankBuffer& target);
  absl::StatusOr<bool> Advance();
  absl::StatusOr<bool> AdvanceFold();
  absl::Status FoldPiece(size_t count);
  absl::StatusOr<bool> AdvanceCopies();
  // Of each operand that's folded at once.
  size_t operand_bytes() const {
    return std::clamp(kFoldBytes / inputs_.size(), kMinOperandBytes,
                      kMaxOperandBytes);
  }
  std::byte* bounce(size_t operand) const {
    return bounces_.get() + operand * operand_bytes();
  }

  const Membership membership_;
  const bool reaches_unmapped_;
  shm::Gate* const gate_;
  const shm::OwnProcess own_;
  shm::MappingTable mappings_;
  // Inputs by rank, then outputs.
  std::vector<shm::RankBufferCache> caches_;

  std::vector<pid_t> pids_;  // by rank; of the last call's offers
  EngineCall call_;
  Access access_;
  std::vector<RankBuffer> inputs_;   // by rank; of the rest of a fold
  std::vector<RankBuffer> outputs_;  // by rank, where in reach
  std::vector<RankBuffer> results_;  // of the rest of a fold
  size_t left_ = 0;                  // elements of the fold
  std::vector<Copy> copies_;         // the rest, the last one first
  // Of one piece of a fold: where operands and results lie in this process.
  std::vector<const std::byte*> operands_;  // by rank
  std::vector<std::byte*> targets_;
  // For operands, and one result, that aren't mapped.
  std::unique_ptr<std::byte[]> bounces_;
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
  const auto unmapped = call.unmapped_pays && reaches_unmapped_
                            ? Unmapped::kOffered
                            : Unmapped::kRefused;
  OfferedBuffers buffers = {.reaches_unmapped = reaches_unmapped_};
  if (ReachedByPeers(access.inputs, membership_.rank, call.root)) {
    auto offered = own_.OfferBuffer(
        {call.input, access.input_blocks ? all : block}, unmapped);
    if (!offered.has_value()) return {};
    buffers.input = *offered;
  }
  if (ReachedByPeers(access.outputs, membership_.rank, call.root)) {
    auto offered = own_.OfferBuffer(
        {call.output, access.output_blocks ? all : block}, unmapped);
    if (!offered.has_value()) return {};
    buffers.output = *offered;
  }
  Offer offer = {.made = true};
  std::memcpy(offer.bytes.data(), &buffers, sizeof(buffers));
  return offer;
}

// Whether all ranks reach what all have offered.
bool Suffice(std::span<const Offer> offers) {
  bool all_mapped = true;
  bool all_reach = true;
  for (const Offer& offer : offers) {
    if (!offer.made) return false;
    const OfferedBuffers buffers = BuffersOf(offer);
    all_mapped &= buffers.input.kind != OfferedBuffer::kProcess &&
                  buffers.output.kind != OfferedBuffer::kProcess;
    all_reach &= buffers.reaches_unmapped == 1;
  }
  return all_mapped || all_reach;
}

bool ShmEngine::Reaches(Reach reach, int rank) const {
  return reach == Reach::kAll ||
         (reach == Reach::kRoot && rank == call_.root) ||
         (reach == Reach::kOwn && rank == membership_.rank);
}

absl::Status ShmEngine::FindBuffers(std::span<const Offer> offers) {
  const size_t all = block_bytes() * static_cast<size_t>(ranks());
  const size_t input_bytes = access_.input_blocks ? all : block_bytes();
  const size_t output_bytes = access_.output_blocks ? all : block_bytes();
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    inputs_[r] = outputs_[r] = RankBuffer();
    pids_[r] = 0;
    if (rank == membership_.rank) {
      inputs_[r] = RankBuffer(const_cast<std::byte*>(call_.input));
      if (Reaches(access_.outputs, rank))
        outputs_[r] = RankBuffer(call_.output);
      continue;
    }
    const OfferedBuffers buffers = BuffersOf(offers[r]);
    absl::Status status;
    if (Reaches(access_.inputs, rank)) {
      auto found = caches_[r].Find(buffers.input, input_bytes, mappings_);
      if (found.ok()) inputs_[r] = *found;
      if (found.ok()) pids_[r] = found->pid();
      status.Update(found.status());
    }
    if (Reaches(access_.outputs, rank)) {
      auto found = caches_[r + static_cast<size_t>(ranks())].Find(
          buffers.output, output_bytes, mappings_);
      if (found.ok()) outputs_[r] = *found;
      if (found.ok() && found->pid() != 0) pids_[r] = found->pid();
      status.Update(found.status());
    }
    if (status.ok()) continue;
    return absl::Status(
        status.code(), absl::StrCat("shm engine: the buffers of rank ", rank,
                                    ": ", absl::string_view(status.message())));
  }
  return absl::OkStatus();
}

// Not the kernel's own code: a process that's gone is a rank that died, and the
// origin of whatever follows.
absl::Status ShmEngine::About(const RankBuffer& buffer,
                              const absl::Status& status) const {
  if (status.ok()) [[likely]]
    return status;
  const auto pid = std::find(pids_.begin(), pids_.end(), buffer.pid());
  const auto rank = pid - pids_.begin();
  if (absl::IsUnavailable(status)) {
    return WithOrigin(
        absl::UnavailableError(absl::StrCat("shm engine: rank ", rank, " (pid ",
                                            buffer.pid(), ") died")),
        static_cast<int>(rank));
  }
  return absl::InternalError(absl::StrCat(
      "shm engine: the buffers of rank ", rank, ": ",
      absl::string_view(status.message()),
      "; if it lives, TRNCCL_SHM_PEER_MEMORY=off on any rank does without"));
}

absl::StatusOr<EngineRun*> ShmEngine::Start(const EngineCall& call,
                                            std::span<const Offer> offers) {
  if (!Suffice(offers)) return nullptr;
  call_ = call;
  access_ = *AccessOf(call.collective);
  RETURN_IF_ERROR(FindBuffers(offers));
  if (access_.folds) {
    RETURN_IF_ERROR(PlanFold());
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

// The root of a short reduce has it sooner by itself than from others' hands:
// lines that they write must come back out of their caches.
bool ShmEngine::LeavesAllToRoot() const {
  return call_.collective == Collective::kReduce &&
         block_bytes() / static_cast<size_t>(ranks()) < kMinReducePartBytes;
}

absl::Status ShmEngine::PlanFold() {
  const auto count = static_cast<size_t>(call_.count);
  const auto rank = static_cast<size_t>(membership_.rank);
  size_t first = 0;  // byte of all inputs
  size_t shift = 0;  // byte of all outputs
  if (access_.input_blocks) {
    first = rank * block_bytes();
    left_ = count;
  } else if (LeavesAllToRoot()) {
    left_ = membership_.rank == call_.root ? count : 0;
  } else {
    const size_t begin = PartBegin(count, call_.element_bytes, membership_);
    const size_t end =
        PartBegin(count, call_.element_bytes,
                  {.rank = membership_.rank + 1, .ranks = membership_.ranks});
    first = shift = begin * call_.element_bytes;
    left_ = end - begin;
  }
  bool all_mapped = true;
  for (RankBuffer& input : inputs_) {
    all_mapped &= input.mapped() != nullptr;
    input = input + first;
  }
  results_.clear();
  for (const RankBuffer& output : outputs_) {
    if (output == RankBuffer()) continue;
    all_mapped &= output.mapped() != nullptr;
    results_.push_back(output + shift);
  }
  return all_mapped ? absl::OkStatus() : MakeBounces();
}

absl::Status ShmEngine::MakeBounces() {
  if (bounces_ != nullptr) return absl::OkStatus();
  const size_t bytes = (inputs_.size() + 1) * operand_bytes();
  bounces_.reset(new (std::nothrow) std::byte[bytes]);
  if (bounces_ != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("shm engine: rank ", membership_.rank, ": no memory for ",
                   bytes, " bytes; TRNCCL_SHM_PEER_MEMORY=0 does without"));
}

absl::StatusOr<bool> ShmEngine::Advance() {
  if (const std::optional<int> left = gate_->Enter()) [[unlikely]] {
    return WithOrigin(
        absl::UnavailableError(
            absl::StrCat("shm engine: rank ", *left, " has given up the call")),
        *left);
  }
  absl::StatusOr<bool> done = access_.folds ? AdvanceFold() : AdvanceCopies();
  gate_->Exit();
  return done;
}

absl::StatusOr<bool> ShmEngine::AdvanceFold() {
  const size_t count = std::min(left_, operand_bytes() / call_.element_bytes);
  if (count > 0) RETURN_IF_ERROR(FoldPiece(count));
  left_ -= count;
  const size_t bytes = count * call_.element_bytes;
  for (RankBuffer& input : inputs_) input = input + bytes;
  for (RankBuffer& result : results_) result = result + bytes;
  return left_ == 0;
}

absl::Status ShmEngine::FoldPiece(size_t count) {
  const size_t bytes = count * call_.element_bytes;
  for (size_t rank = 0; rank < inputs_.size(); ++rank) {
    operands_[rank] = inputs_[rank].mapped();
    if (operands_[rank] != nullptr) continue;
    RETURN_IF_ERROR(
        About(inputs_[rank], inputs_[rank].Read({bounce(rank), bytes})));
    operands_[rank] = bounce(rank);
  }
  targets_.clear();
  for (const RankBuffer& result : results_) {
    if (result.mapped() != nullptr) targets_.push_back(result.mapped());
  }
  const size_t mapped = targets_.size();
  if (mapped == 0) targets_.push_back(bounce(inputs_.size()));
  call_.fold->Fold(operands_, targets_, count);
  if (mapped == results_.size()) return absl::OkStatus();
  for (const RankBuffer& result : results_) {
    if (result.mapped() == nullptr)
      RETURN_IF_ERROR(About(result, result.Write({targets_[0], bytes})));
  }
  return absl::OkStatus();
}

void ShmEngine::AddCopy(const RankBuffer& source, const RankBuffer& target) {
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

// One end of each copy is this rank's own.
absl::StatusOr<bool> ShmEngine::AdvanceCopies() {
  if (copies_.empty()) return true;
  Copy& copy = copies_.back();
  const size_t bytes = std::min(copy.bytes, kCopyBytes);
  if (copy.target.mapped() != nullptr) {
    RETURN_IF_ERROR(
        About(copy.source, copy.source.Read({copy.target.mapped(), bytes})));
  } else {
    RETURN_IF_ERROR(
        About(copy.target, copy.target.Write({copy.source.mapped(), bytes})));
  }
  copy.source = copy.source + bytes;
  copy.target = copy.target + bytes;
  copy.bytes -= bytes;
  if (copy.bytes == 0) copies_.pop_back();
  return copies_.empty();
}

}  // namespace

std::unique_ptr<Engine> MakeShmEngine(const ShmEngineOptions& options) {
  return std::make_unique<ShmEngine>(options);
}

}  // namespace trnccl
