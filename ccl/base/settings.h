// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every setting of the library: one field here, one row of the table in
// settings.cc. A setting is an environment variable TRNCCL_NAME, which a
// communicator's configuration may override; both are read when a communicator
// is made, and never again.
//
// Thread rule: plain values and pure functions.
//
//   ASSIGN_OR_RETURN(Settings settings,
//                    LoadSettings(environ, {"TRNCCL_LANES=2"}));
//
// To add a setting: a field with its default, a row with its name, bounds and
// doc, then `bazel run //ccl/base:settings_markdown > docs/settings.md`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/log.h"

namespace trnccl {

// The enumerators follow the order of the choices in the table.
enum class Determinism : uint8_t { kDefault, kStrict };
enum class WaitMode : uint8_t { kAuto, kSpin, kYield, kSleep };
enum class TorchNeuron : uint8_t { kAuto, kOn };
enum class SocketFamily : uint8_t { kAny, kIpv4, kIpv6 };
enum class FabricTravel : uint8_t { kAuto, kTagged, kWrite };

// What each field means is said once, by its row.
struct Settings {
  int64_t timeout_ms = 1'800'000;
  int64_t bootstrap_timeout_ms = 60'000;
  int64_t heartbeat_ms = 10'000;
  std::string algorithm;
  Determinism determinism = Determinism::kDefault;
  int64_t lanes = 0;
  int64_t segment_bytes = 0;
  int64_t arena_bytes = 4 << 20;
  bool shm_by_reference = true;
  bool shm_peer_memory = true;
  int64_t engine_min_bytes = 0;
  WaitMode wait = WaitMode::kAuto;
  int64_t spin_us = 1000;
  int64_t yield_us = 50;
  std::string socket_ifname;
  SocketFamily socket_family = SocketFamily::kAny;
  std::string host_id;
  std::vector<std::string> transport;
  std::string fabric_library;
  std::string fabric_provider;
  std::vector<std::string> fabric_adapters;
  FabricTravel fabric_travel = FabricTravel::kAuto;
  int64_t fabric_rails = 0;
  int64_t fabric_eager_bytes = 0;
  int64_t fabric_slice_bytes = 0;
  LogLevel log_level = LogLevel::kWarn;
  std::string log_file;
  bool as_gloo = false;
  TorchNeuron torch_neuron = TorchNeuron::kAuto;
  int64_t recorder_calls = 2048;
  std::string dump_on_failure;
  std::string tuning_file;
};

// Reads "NAME=VALUE" entries: first the TRNCCL_ ones of `environment` (null
// ends it, as in environ), then `overrides`, which win. InvalidArgument names
// an unknown setting and the closest known one, or a bad value with what is
// allowed.
absl::StatusOr<Settings> LoadSettings(
    const char* const* environment, const std::vector<std::string>& overrides);

// The effective values, a line "NAME=VALUE" each.
std::string SettingsText(const Settings& settings);

// Of these, the ones that all ranks must have alike, since ranks decide from
// them on their own what the others will do.
std::string AgreedSettingsText(const Settings& settings);

// The table as docs/settings.md shows it.
std::string SettingsMarkdown();

}  // namespace trnccl
