// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the test provider offers and which faults it injects, from the
// environment: the table of README.md. Read anew for each fi_getinfo() and
// each fi_fabric(), so that one process can test many. A word that isn't
// understood aborts: a test that asks for a misspelt fault would pass.
//
// Thread rule: ReadSettings() must not race with setenv(); the rest is
// thread-compatible.
//
//   Settings settings = ReadSettings();
//   if (settings.faults.Strikes(Fault::kDomain)) return -FI_ENODEV;
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trnccl::manners {

// EFA's two fabrics: emulated RDM, and what the device itself does.
enum class Flavour : uint32_t { kEfa, kEfaDirect };
const char* NameOf(Flavour flavour);

// What becomes of a message for which no receive is posted.
enum class ReceiverNotReady { kRetry, kError };

// The calls and events that can be made to fail, by their names in
// MANNERS_FAIL.
enum class Fault {
  kGetinfo,
  kFabric,
  kDomain,
  kCompletionQueue,
  kAddressVector,
  kEndpoint,
  kBind,
  kEnable,
  kGetname,
  kRegister,
  kInsert,
  kPost,
  kTransmitCompletion,
  kReceiveCompletion,
  kPeer,
  kReset,
  kCount,
};

// MANNERS_FAIL: "mr:5+,tx:12" is every registration from the fifth on, and the
// twelfth completion of a transmit. A name alone is every call.
class FaultPlan {
 public:
  FaultPlan() = default;
  explicit FaultPlan(const std::string& text);

  // Counts one call, and says whether it's to fail.
  bool Strikes(Fault fault);

 private:
  struct Rule {
    Fault fault;
    uint64_t first;
    uint64_t last;
  };

  std::vector<Rule> rules_;
  std::array<uint64_t, static_cast<size_t>(Fault::kCount)> calls_ = {};
};

struct Settings {
  std::vector<Flavour> fabrics = {Flavour::kEfaDirect, Flavour::kEfa};
  size_t nics = 2;
  std::vector<std::string> pci;  // "0000:10:1e.0", one a NIC
  uint64_t seed = 1;
  size_t hold = 3;
  size_t eagain_percent = 0;
  size_t slow = 0;
  ReceiverNotReady receiver_not_ready = ReceiverNotReady::kRetry;
  size_t transmits = 64;
  size_t receives = 256;
  size_t completions = 1024;
  size_t inject_bytes = 32;
  size_t eager_bytes = 8192;
  size_t message_bytes = 8192;
  size_t segments = 2;
  size_t dmabuf = 0;          // 1: before API 1.20, too
  size_t pins = 0;            // 1: memory must stay mapped while registered
  size_t emulated_write = 0;  // 1: says that it emulates writes
  std::string fail;
  FaultPlan faults;
};

Settings ReadSettings();

}  // namespace trnccl::manners
