// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A whole communicator whose peer sends what it likes on every lane: to the
// executor, to short calls, to point-to-point and to health. Each call ends by
// its deadline, and nothing is written beside its buffers.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/spec.h"
#include "ccl/base/check.h"
#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/communicator/communicator.h"
#include "ccl/executor/call.h"
#include "ccl/planner/model_file.h"
#include "ccl/progress/progress_thread.h"
#include "ccl/progress/sleepers.h"
#include "tests/fuzz/input.h"
#include "transports/sim/sim.h"

namespace trnccl {
namespace {

constexpr uint32_t kCookie = 0xf0220000;
constexpr int kLanes = 2;
constexpr int kAllLanes = kLanes + Communicator::kOwnLanes;
constexpr int64_t kMostCount = 300;
constexpr size_t kSliceBytes = 256;
constexpr int kMostSteps = 20'000;

const SimNetwork* clock_network = nullptr;
int64_t SimNowNs() { return clock_network->now_ns(); }

// Rank 0 is the victim.
class Victim {
 public:
  Victim()
      : network_(std::make_shared<SimNetwork>(1, SimWeather{})),
        sleepers_(*Sleepers::OfProcess()),
        driver_(ProgressThread::WithoutThread(sleepers_)) {
    clock_network = network_.get();
    SetClockForTest(SimNowNs);
    const SimOptions wire{
        .network = network_,
        .form = {
            .capacity = 4, .slice_bytes = kSliceBytes, .inline_bytes = 16}};
    hostile_ = MakeSimTransport(wire);
    Communicator::Parts parts{.membership = {.rank = 0, .ranks = 2},
                              .name = "victim",
                              .cookie = kCookie,
                              .sleepers = sleepers_,
                              .progress_thread = driver_.get(),
                              .model = DefaultModel(),
                              .collective_lanes = kLanes,
                              .slice_bytes = wire.form.slice_bytes};
    parts.settings.lanes = kLanes;
    parts.settings.timeout_ms = 1'000;
    std::vector<HostFacts> hosts(2);
    for (HostFacts& host : hosts) host.host_id = host.hostname = "node";
    parts.topology = MakeTopology(hosts, 0);
    std::vector<TransportSet::Brought> brought(1);
    brought[0].transport = MakeSimTransport(wire);
    const std::string address(brought[0].transport->traits().address);
    parts.transports =
        TransportSet::Of({.membership = parts.membership, .lanes = kAllLanes},
                         std::move(brought));
    TRNCCL_CHECK(
        parts.transports
            ->Connect(
                {.peers = {{.address = parts.transports->address(),
                            .host = "node"},
                           {.address = "sim=" +
                                       std::string(hostile_->traits().address),
                            .host = "node"}}})
            .ok());
    TRNCCL_CHECK(
        hostile_
            ->Connect({.peers = {{0, address}}, .rank = 1, .lanes = kAllLanes})
            .ok());
    auto made = Communicator::Create(std::move(parts));
    TRNCCL_CHECK(made.ok());
    communicator_ = *std::move(made);
  }
  ~Victim() {
    communicator_.reset();
    SetClockForTest(nullptr);
  }

  Communicator& communicator() { return *communicator_; }
  Transport& hostile() { return *hostile_; }
  void Pass(int64_t ns) { network_->Pass(ns); }

 private:
  std::shared_ptr<SimNetwork> network_;
  Sleepers* sleepers_;
  std::unique_ptr<ProgressThread> driver_;
  std::unique_ptr<Transport> hostile_;
  std::unique_ptr<Communicator> communicator_;
};

CollectiveCall TakeCall(fuzz::Input& input) {
  CollectiveCall call{
      .collective =
          static_cast<Collective>(input.Take<uint8_t>() % kCollectives),
      .type = static_cast<DataType>(input.Take<uint8_t>() % kDataTypes),
      .op = static_cast<ReduceOp>(input.Take<uint8_t>() % kReduceOps),
      .root = input.Take<uint8_t>() % 2};
  static std::array<int64_t, 2> counts;
  counts.fill(input.Take<uint16_t>() % kMostCount);
  const BlockCounts even = BlockCounts::Even(counts[0]);
  const BlockCounts uneven = {.counts = counts};
  const bool is_uneven = SpecOf(call.collective).uneven;
  call.input_counts =
      is_uneven && call.collective != Collective::kAllGatherV ? uneven : even;
  call.output_counts =
      is_uneven && call.collective != Collective::kReduceScatterV ? uneven
                                                                  : even;
  return call;
}

// To the call of that sequence, or not quite.
void SendOne(fuzz::Input& input, const CollectiveCall& call, uint32_t sequence,
             Transport& hostile) {
  const uint8_t form = input.Take<uint8_t>();
  const uint8_t where = input.Take<uint8_t>();
  Envelope envelope = FingerprintOf(
      call, {.cookie = kCookie, .sequence = sequence + form / 4 % 2});
  if (form % 4 == 0) envelope = input.Take<Envelope>();
  if (form % 4 == 1)
    envelope.words[where / 64 % 3] ^= uint64_t{1} << (where % 64);
  // Of what fits in a slice, mostly what's due.
  const auto count = static_cast<size_t>(call.input_counts.counts.empty()
                                             ? call.input_counts.even_count
                                             : call.input_counts.counts[0]);
  const size_t due = std::min(kSliceBytes, count * ElementBytes(call.type));
  const size_t bytes = form % 4 == 2 ? input.Take<uint8_t>() : due;
  const LinkId link = hostile.Link(0, where % kAllLanes);
  std::byte* slice = hostile.Reserve({&link, 1}, bytes);
  if (slice == nullptr) return;
  std::memset(slice, form, bytes);
  hostile.Send({&link, 1}, {.envelope = envelope, .bytes = bytes});
}

void TakeAll(Transport& hostile) {
  for (int lane = 0; lane < kAllLanes; ++lane) {
    const LinkId link = hostile.Link(0, lane);
    while (hostile.Peek(link, nullptr) != nullptr) hostile.Release(link);
  }
}

void Play(fuzz::Input& input) {
  // Outlive the communicator; the sanitizer guards them.
  std::vector<std::byte> own(2 * kMostCount * 16);
  std::vector<std::byte> output(own.size());
  Operation operation;
  Victim victim;
  operation.call = TakeCall(input);
  operation.call.input = own.data();
  operation.call.output = output.data();
  if (!victim.communicator().Check(operation.call).ok()) return;
  Operation* const submitted[] = {&operation};
  TRNCCL_CHECK(victim.communicator().Submit(submitted).ok());
  int steps = 0;
  while (!operation.done && steps < kMostSteps) {
    if (!input.empty()) {
      SendOne(input, operation.call, 1, victim.hostile());
    } else if (++steps % 10 == 0) {
      victim.Pass(50'000'000);
    }
    victim.communicator().DriveOnce();
    TakeAll(victim.hostile());
  }
  TRNCCL_CHECK(operation.done);
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  static const bool quiet = ConfigureLog(LogLevel::kError, "/dev/null").ok();
  TRNCCL_CHECK(quiet);
  fuzz::Input input(data, size);
  Play(input);
  return 0;
}
