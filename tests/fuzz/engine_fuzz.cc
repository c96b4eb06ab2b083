// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The shared-memory engine, whose peer offers what it likes: any bytes, or an
// offer of its own with some changed. Nothing of this rank's is touched but the
// output, and each run ends.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ccl/base/check.h"
#include "tests/fuzz/input.h"
#include "transports/shared_memory.h"
#include "transports/shm/gate.h"
#include "transports/shm/shm_engine.h"

namespace trnccl {
namespace {

constexpr size_t kSharedBytes = 256 << 10;
constexpr int64_t kMostCount = 4096;  // of blocks of bytes, two a buffer
constexpr int kMostPieces = 64;

class CopyFirst final : public EngineFold {
 public:
  void Fold(std::span<const std::byte* const> inputs,
            std::span<std::byte* const> results, size_t count) const override {
    for (std::byte* result : results) std::memmove(result, inputs[0], count);
  }
};

// Whose memory the peer's offers may name: nothing that's ours.
pid_t Bystander() {
  static const pid_t pid = [] {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    }
    return child;
  }();
  return pid;
}

struct Peers {
  std::array<std::atomic<uint32_t>, 2> inside = {};
  std::array<std::atomic<uint32_t>, 2> left = {};
  std::array<std::unique_ptr<shm::Gate>, 2> gates;
  std::array<std::unique_ptr<Engine>, 2> engines;

  Peers() {
    for (size_t rank = 0; rank < 2; ++rank) {
      gates[rank] = std::make_unique<shm::Gate>(
          WordsOf(rank), std::vector<shm::Gate::Peer>{
                             {static_cast<int>(1 - rank), WordsOf(1 - rank)}});
      engines[rank] = MakeShmEngine(
          {.membership = {.rank = static_cast<int>(rank), .ranks = 2},
           .reaches_unmapped = true,
           .gate = gates[rank].get(),
           .pids = {getpid(), Bystander()}});
    }
  }
  shm::GateWords WordsOf(size_t rank) {
    return {.inside = &inside[rank], .left = &left[rank]};
  }
};

std::byte* Shared() {
  static std::byte* const shared = [] {
    const auto made = AllocateShared(kSharedBytes);
    TRNCCL_CHECK(made.ok());
    return *made;
  }();
  return shared;
}

Offer TakeOffer(fuzz::Input& input, Offer good) {
  const uint8_t form = input.Take<uint8_t>();
  if (form % 4 == 0) {
    Offer offer{.made = true};
    const std::string_view bytes = input.TakePiece();
    std::memcpy(offer.bytes.data(), bytes.data(),
                std::min(bytes.size(), offer.bytes.size()));
    return offer;
  }
  for (int i = form % 4 - 1; i > 0; --i) {
    const size_t at = input.Take<uint8_t>() % good.bytes.size();
    good.bytes[at] = input.Take<std::byte>();
  }
  good.made = true;
  return good;
}

void Run(fuzz::Input& input, Peers& peers) {
  static const CopyFirst fold;
  std::vector<std::byte> own(4 * kMostCount);
  EngineCall call{.collective = static_cast<Collective>(input.Take<uint8_t>() %
                                                        kCollectives),
                  .count = 1 + input.Take<uint16_t>() % kMostCount,
                  .root = input.Take<uint8_t>() % 2,
                  .fold = &fold,
                  .unmapped_pays = true};
  if (!peers.engines[0]->Accepts(call)) return;
  EngineCall theirs = call;
  theirs.input = Shared();
  theirs.output = Shared() + kSharedBytes / 2;
  call.input = own.data();
  call.output = own.data() + 2 * kMostCount;
  const Offer offers[] = {
      peers.engines[0]->MakeOffer(call),
      TakeOffer(input, peers.engines[1]->MakeOffer(theirs))};
  const absl::StatusOr<EngineRun*> run = peers.engines[0]->Start(call, offers);
  if (!run.ok() || *run == nullptr) return;
  for (int piece = 0; piece < kMostPieces; ++piece) {
    const absl::StatusOr<bool> done = (*run)->Advance();
    if (!done.ok() || *done) return;
  }
  TRNCCL_CHECK(!"a run that doesn't end");
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  static Peers& peers = *new Peers;
  for (int calls = 0; calls < 8 && !input.empty(); ++calls) Run(input, peers);
  return 0;
}
