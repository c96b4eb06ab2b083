// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/manners.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "ccl/base/check.h"
#include "ccl/base/clock.h"
#include "gtest/gtest.h"
#include "transports/fabric/conformance_forms.h"

namespace trnccl {
namespace {

std::string VariableOf(const std::string& setting) {
  return "MANNERS_" + setting;
}

}  // namespace

void NameTheTestProvider() {
  setenv("FI_PROVIDER_PATH", "transports/fabric/test_provider", 1);
}

ScopedManners::ScopedManners(const MannersSettings& settings)
    : settings_(settings) {
  for (const auto& [setting, value] : settings)
    setenv(VariableOf(setting).c_str(), value.c_str(), 1);
}

ScopedManners::~ScopedManners() {
  for (const auto& [setting, value] : settings_)
    unsetenv(VariableOf(setting).c_str());
}

FabricOptions OverManners(FabricProtocol protocol) {
  return Over("manners", protocol);
}

Subject Manners(const std::string& name, const MannersSettings& settings,
                const FabricOptions& form) {
  Subject subject = Slow(Fabric(name, form));
  subject.make = [settings, make = subject.make](const RankOptions& rank) {
    const ScopedManners manners(settings);
    return make(rank);
  };
  return subject;
}

Pair::Pair(const Options& options) {
  for (size_t rank = 0; rank < 2; ++rank) {
    const ScopedManners manners(options.settings[rank]);
    fabric::PortOptions port = options.form.port;
    port.rails = options.rails[rank];
    auto opened = OpenFabricPort(port);
    EXPECT_TRUE(opened.ok()) << opened.status();
    TRNCCL_CHECK(opened.ok());
    ports_[rank] = *std::move(opened);
  }
  transports_.resize(static_cast<size_t>(options.communicators));
  for (auto& ranks : transports_) {
    std::vector<std::string> addresses;
    for (size_t rank = 0; rank < 2; ++rank) {
      FabricOptions form = options.form;
      form.own_port = ports_[rank];
      if (options.slice_bytes[rank] > 0)
        form.slice_bytes = options.slice_bytes[rank];
      auto made = MakeFabricTransport(form);
      TRNCCL_CHECK(made.ok());
      ranks[rank] = *std::move(made);
      addresses.push_back(ranks[rank]->traits().address);
    }
    for (int rank = 0; rank < 2; ++rank) {
      const absl::Status status = ranks[static_cast<size_t>(rank)]->Connect(
          OptionsOf(addresses, rank, options.lanes));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

void Pair::Destroy(int rank) {
  for (auto& ranks : transports_) ranks[static_cast<size_t>(rank)].reset();
  ports_[static_cast<size_t>(rank)].reset();
}

bool Pair::Until(const std::function<bool()>& done) {
  const Deadline deadline = Deadline::After(30'000);
  while (!done()) {
    if (deadline.expired()) return false;
    for (auto& ranks : transports_)
      for (auto& transport : ranks)
        if (transport != nullptr) static_cast<void>(transport->Progress());
  }
  return true;
}

const Incoming* Pair::Await(int rank, int communicator) {
  const Incoming* message = nullptr;
  Until([&] {
    Transport& transport = at(rank, communicator);
    message = transport.Peek(link(), nullptr);
    return message != nullptr || !transport.Progress().ok();
  });
  return message;
}

bool Pair::Works(int rank, int communicator) {
  Transport& from = at(1 - rank, communicator);
  const LinkId out = link();
  constexpr std::string_view kText = "still here";
  std::byte* slice = from.Reserve({&out, 1}, kText.size());
  if (slice == nullptr) return false;
  std::memcpy(slice, kText.data(), kText.size());
  if (!from.Send({&out, 1}, {.bytes = kText.size()})) return false;
  const Incoming* message = Await(rank, communicator);
  const bool whole =
      message != nullptr && message->bytes == kText.size() &&
      std::memcmp(message->data, kText.data(), kText.size()) == 0;
  if (message != nullptr) at(rank, communicator).Release(out);
  return whole && from.Progress().ok() &&
         at(rank, communicator).Progress().ok();
}

}  // namespace trnccl
