// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/settings.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

enum class Kind { kInt, kBytes, kMs, kUs, kChoice, kBool, kText, kList };
enum class Scope { kEachRank, kAllRanksAlike };

// How a row reaches its field: numbers, choices and bools as a number, texts
// and lists as a text.
struct Binding {
  int64_t (*number)(const Settings&) = nullptr;
  void (*set_number)(Settings&, int64_t) = nullptr;
  std::string (*text)(const Settings&) = nullptr;
  void (*set_text)(Settings&, std::string_view) = nullptr;
};

struct Row {
  std::string_view name;
  Kind kind;
  Scope scope;
  Binding field;
  int64_t min;  // of a number; of a text's length
  int64_t max;
  std::string_view choices;  // of a choice, separated by |
  std::string_view doc;
};

template <auto kField>
constexpr Binding NumberField() {
  using Field =
      std::remove_reference_t<decltype(std::declval<Settings&>().*kField)>;
  Binding binding;
  binding.number = [](const Settings& settings) {
    return static_cast<int64_t>(settings.*kField);
  };
  binding.set_number = [](Settings& settings, int64_t value) {
    settings.*kField = static_cast<Field>(value);
  };
  return binding;
}

constexpr int64_t kMaxTextChars = 1024;
constexpr size_t kMaxShownChars = 80;  // of what the user wrote, in an error
constexpr Scope kEach = Scope::kEachRank;
constexpr Scope kAlike = Scope::kAllRanksAlike;

struct Bounds {
  int64_t min;
  int64_t max;
};

template <auto kField>
constexpr Row Number(Kind kind, Scope scope, std::string_view name,
                     Bounds bounds, std::string_view doc) {
  return {name,       kind,       scope, NumberField<kField>(),
          bounds.min, bounds.max, "",    doc};
}

template <auto kField>
constexpr Row Choice(Scope scope, std::string_view name,
                     std::string_view choices, std::string_view doc) {
  return {name, Kind::kChoice, scope,   NumberField<kField>(),
          0,    INT64_MAX,     choices, doc};
}

template <auto kField>
constexpr Row Bool(Scope scope, std::string_view name, std::string_view doc) {
  return {name, Kind::kBool, scope, NumberField<kField>(), 0, 1, "on|off", doc};
}

template <std::string Settings::*kField>
constexpr Row Text(Scope scope, std::string_view name, std::string_view doc) {
  Binding binding;
  binding.text = [](const Settings& settings) { return settings.*kField; };
  binding.set_text = [](Settings& settings, std::string_view value) {
    settings.*kField = std::string(value);
  };
  return {name, Kind::kText, scope, binding, 0, kMaxTextChars, "", doc};
}

template <std::vector<std::string> Settings::*kField>
constexpr Row List(Scope scope, std::string_view name, std::string_view doc) {
  Binding binding;
  binding.text = [](const Settings& settings) {
    return absl::StrJoin(settings.*kField, ",");
  };
  binding.set_text = [](Settings& settings, std::string_view value) {
    settings.*kField =
        absl::StrSplit(absl::string_view(value.data(), value.size()), ',',
                       absl::SkipWhitespace());
  };
  return {name, Kind::kList, scope, binding, 0, kMaxTextChars, "", doc};
}

constexpr int64_t kDayMs = 86'400'000;
constexpr int64_t kGiB = int64_t{1} << 30;

// The one table.
constexpr auto kRows = std::to_array<Row>({
    Number<&Settings::timeout_ms>(
        Kind::kMs, kEach, "TRNCCL_TIMEOUT_MS", {1, 30 * kDayMs},
        "Deadline of a call, after which its communicator fails on all ranks."),
    Number<&Settings::bootstrap_timeout_ms>(
        Kind::kMs, kEach, "TRNCCL_BOOTSTRAP_TIMEOUT_MS", {1, kDayMs},
        "How long making a communicator waits for all its ranks."),
    Number<&Settings::heartbeat_ms>(
        Kind::kMs, kEach, "TRNCCL_HEARTBEAT_MS", {1'000, kDayMs},
        "How long a process on another node may give no sign of life before "
        "it counts as lost. The kernel's probes count: a process that's busy "
        "or stopped is alive."),
    Text<&Settings::algorithm>(
        kAlike, "TRNCCL_ALGORITHM",
        "Algorithms to use or, after ^, to avoid, a collective each: "
        "`all_reduce:ring;all_gather:^bruck`. Empty leaves it to the tuner. "
        "Where some are listed, no engine runs, unless "
        "TRNCCL_ENGINE_MIN_BYTES is set."),
    Choice<&Settings::determinism>(
        kAlike, "TRNCCL_DETERMINISM", "default|strict",
        "strict gives the same bits whatever the algorithm, lanes, segments "
        "or placement, for a price in speed."),
    Number<&Settings::lanes>(
        Kind::kInt, kAlike, "TRNCCL_LANES", {0, 8},
        "Lanes of a program that run side by side; 0 leaves it to the tuner."),
    Number<&Settings::segment_bytes>(
        Kind::kBytes, kAlike, "TRNCCL_SEGMENT_BYTES", {0, kGiB},
        "Bytes that one run of a program handles; 0 leaves it to the tuner."),
    Number<&Settings::arena_bytes>(
        Kind::kBytes, kAlike, "TRNCCL_ARENA_BYTES", {64 << 10, kGiB},
        "Shared memory for messages, a rank and communicator."),
    Bool<&Settings::shm_by_reference>(
        kAlike, "TRNCCL_SHM_BY_REFERENCE",
        "Whether big messages in memory that peers have mapped are read where "
        "they lie."),
    Bool<&Settings::shm_peer_memory>(
        kEach, "TRNCCL_SHM_PEER_MEMORY",
        "Whether big calls copy memory that isn't mapped straight between "
        "processes, where the kernel lets them (process_vm_readv)."),
    Number<&Settings::engine_min_bytes>(
        Kind::kBytes, kAlike, "TRNCCL_ENGINE_MIN_BYTES", {0, INT64_MAX},
        "Smallest call that runs directly on the ranks' buffers; 0 leaves it "
        "to "
        "the tuner."),
    Choice<&Settings::wait>(
        kEach, "TRNCCL_WAIT", "auto|spin|yield|sleep",
        "How a rank waits; auto spins only where each rank has a core of its "
        "own, then yields, then sleeps."),
    Number<&Settings::spin_us>(
        Kind::kUs, kEach, "TRNCCL_SPIN_US", {0, 1'000'000},
        "How long a wait spins before it yields the processor."),
    Number<&Settings::yield_us>(
        Kind::kUs, kEach, "TRNCCL_YIELD_US", {0, 1'000'000},
        "How long a wait yields the processor before it sleeps."),
    Text<&Settings::socket_ifname>(
        kEach, "TRNCCL_SOCKET_IFNAME",
        "Network interfaces for sockets: prefixes `eth,ib`, after ^ to avoid "
        "`^docker,lo`, after = exact names `=eth0`. Empty chooses by itself."),
    Choice<&Settings::socket_family>(kEach, "TRNCCL_SOCKET_FAMILY",
                                     "any|ipv4|ipv6",
                                     "Which addresses sockets may use."),
    Text<&Settings::host_id>(
        kEach, "TRNCCL_HOST_ID",
        "Overrides what tells machines apart: ranks with the same text count "
        "as one node. Empty takes host name and boot id."),
    List<&Settings::transport>(
        kAlike, "TRNCCL_TRANSPORT",
        "Transports to use, most wanted first: `shm,fabric`, inproc. Empty "
        "takes shared memory inside a node and the fabric between nodes."),
    Text<&Settings::fabric_library>(
        kEach, "TRNCCL_FABRIC_LIBRARY",
        "File of libfabric, which carries messages between nodes. Empty takes "
        "the system's libfabric.so.1."),
    Text<&Settings::fabric_provider>(
        kAlike, "TRNCCL_FABRIC_PROVIDER",
        "libfabric's provider: `efa`, `net`, `tcp;ofi_rxm`. Empty takes the "
        "best that's there (and that FI_PROVIDER allows)."),
    List<&Settings::fabric_adapters>(
        kEach, "TRNCCL_FABRIC_ADAPTERS",
        "Adapters of the fabric, libfabric's domains, most wanted first: "
        "`rdmap16s27-rdm,rdmap32s27-rdm`, `eth0`. Empty takes those nearest "
        "to the rank; of IP, the network interface by which ranks of other "
        "hosts were met, among those that TRNCCL_SOCKET_IFNAME leaves."),
    Choice<&Settings::fabric_travel>(
        kAlike, "TRNCCL_FABRIC_PROTOCOL", "auto|tagged|write",
        "How long messages travel between nodes: as tagged messages, or "
        "written by the sender's adapter; auto goes by the provider."),
    Number<&Settings::fabric_rails>(
        Kind::kInt, kAlike, "TRNCCL_FABRIC_RAILS", {0, 16},
        "Adapters that a rank uses at once; 0 leaves it to the machine: on "
        "AWS the rank's share of the EFA devices, else one."),
    Number<&Settings::fabric_eager_bytes>(
        Kind::kBytes, kAlike, "TRNCCL_FABRIC_EAGER_BYTES", {0, 1 << 20},
        "The longest message between nodes that's sent without asking the "
        "receiver where to; 0 leaves it to the provider."),
    Number<&Settings::fabric_slice_bytes>(
        Kind::kBytes, kAlike, "TRNCCL_FABRIC_SLICE_BYTES", {0, 1 << 30},
        "The longest message between nodes; 0: 64K over TCP with a congestion "
        "control that paces (BBR), else 512K."),
    Choice<&Settings::log_level>(
        kEach, "TRNCCL_LOG_LEVEL", "error|warn|info|debug|trace",
        "The least important messages that the log shows."),
    Text<&Settings::log_file>(
        kEach, "TRNCCL_LOG_FILE",
        "File that the log is appended to; %h is the host, %p the process id. "
        "Empty is stderr."),
    Bool<&Settings::as_gloo>(
        kEach, "TRNCCL_AS_GLOO",
        "For those who run PyTorch's own tests: whether their runner hands "
        "PyTorch this backend where it would make Gloo's. No effect here."),
    Choice<&Settings::torch_neuron>(
        kEach, "TRNCCL_TORCH_NEURON", "auto|on",
        "Whether the Python package registers the backend \"neuron\" with "
        "PyTorch even where AWS's torch_neuronx has it. Read at import torch."),
    Number<&Settings::recorder_calls>(
        Kind::kInt, kEach, "TRNCCL_RECORDER_CALLS", {1, 1 << 20},
        "Last calls that the recorder keeps, a communicator."),
    Text<&Settings::dump_on_failure>(
        kEach, "TRNCCL_DUMP_ON_FAILURE",
        "Where each rank of a communicator that fails writes its last calls "
        "and "
        "the cause, for `trnccl trace`: /tmp/job/calls_ stands for files "
        "/tmp/job/calls_COMMUNICATOR_RANK, where the communicator is a number "
        "that's the same on all its ranks. Empty: nowhere."),
    Text<&Settings::tuning_file>(
        kEach, "TRNCCL_TUNING_FILE",
        "File of measured constants for the tuner, as `trnccl tune` writes it. "
        "Empty takes the built-in ones."),
});

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

struct Unit {
  std::string_view suffix;
  int64_t scale;
};

constexpr auto kByteUnits =
    std::to_array<Unit>({{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}});
constexpr auto kTimeUnitsUs = std::to_array<Unit>({{"us", 1},
                                                   {"ms", 1'000},
                                                   {"s", 1'000'000},
                                                   {"min", 60'000'000},
                                                   {"h", 3'600'000'000}});

// A whole number, in the setting's own unit or with a unit of `units` behind
// it; `divisor` is the setting's own unit in those of the table.
bool ParseScaled(std::string_view value, absl::Span<const Unit> units,
                 int64_t divisor, int64_t* number) {
  const size_t digits =
      std::min(value.find_first_not_of("0123456789"), value.size());
  if (!absl::SimpleAtoi(View(value.substr(0, digits)), number)) return false;
  const std::string_view suffix = value.substr(digits);
  if (suffix.empty()) return true;
  for (const Unit& unit : units) {
    if (!absl::EqualsIgnoreCase(View(suffix), View(unit.suffix))) continue;
    if (__builtin_mul_overflow(*number, unit.scale, number)) return false;
    if (*number % divisor != 0) return false;
    *number /= divisor;
    return true;
  }
  return false;
}

bool ParseChoice(const Row& row, std::string_view value, int64_t* number) {
  const std::vector<std::string> choices =
      absl::StrSplit(View(row.choices), '|');
  for (size_t i = 0; i < choices.size(); ++i) {
    if (absl::EqualsIgnoreCase(choices[i], View(value))) {
      *number = static_cast<int64_t>(i);
      return true;
    }
  }
  return false;
}

bool ParseBool(std::string_view value, int64_t* number) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"off", "on", "0", "1", "false", "true", "no", "yes"});
  for (size_t i = 0; i < kWords.size(); ++i) {
    if (absl::EqualsIgnoreCase(View(value), View(kWords[i]))) {
      *number = static_cast<int64_t>(i % 2);
      return true;
    }
  }
  return false;
}

bool ParseNumber(const Row& row, std::string_view value, int64_t* number) {
  switch (row.kind) {
    case Kind::kInt:
      return absl::SimpleAtoi(View(value), number);
    case Kind::kBytes:
      return ParseScaled(value, kByteUnits, 1, number);
    case Kind::kMs:
      return ParseScaled(value, kTimeUnitsUs, 1'000, number);
    case Kind::kUs:
      return ParseScaled(value, kTimeUnitsUs, 1, number);
    case Kind::kChoice:
      return ParseChoice(row, value, number);
    case Kind::kBool:
      return ParseBool(value, number);
    case Kind::kText:
    case Kind::kList:
      break;
  }
  return false;
}

std::string BytesText(int64_t bytes) {
  for (size_t i = kByteUnits.size(); i-- > 0;) {
    const auto& [suffix, scale] = kByteUnits[i];
    if (bytes != 0 && bytes % scale == 0) {
      return absl::StrCat(bytes / scale, absl::AsciiStrToUpper(View(suffix)));
    }
  }
  return absl::StrCat(bytes);
}

std::string Allowed(const Row& row) {
  switch (row.kind) {
    case Kind::kInt:
      return absl::StrCat(row.min, " to ", row.max);
    case Kind::kBytes:
      if (row.max == INT64_MAX) return absl::StrCat("bytes, or with K, M, G");
      return absl::StrCat(BytesText(row.min), " to ", BytesText(row.max),
                          " bytes, or with K, M, G");
    case Kind::kMs:
      return absl::StrCat(row.min, " to ", row.max, " ms, or with s, min, h");
    case Kind::kUs:
      return absl::StrCat(row.min, " to ", row.max, " us, or with ms, s");
    case Kind::kChoice:
    case Kind::kBool:
      return absl::StrReplaceAll(View(row.choices), {{"|", ", "}});
    case Kind::kText:
      return "a text";
    case Kind::kList:
      return "a list with commas";
  }
  return "";
}

std::string ValueText(const Row& row, const Settings& settings) {
  if (row.field.text != nullptr) return row.field.text(settings);
  const int64_t number = row.field.number(settings);
  if (row.kind == Kind::kBytes) return BytesText(number);
  if (row.kind == Kind::kBool) return number != 0 ? "on" : "off";
  if (row.kind != Kind::kChoice) return absl::StrCat(number);
  const std::vector<std::string> choices =
      absl::StrSplit(View(row.choices), '|');
  return choices[static_cast<size_t>(number)];
}

// Texts end up in lines and logs, so they hold no control characters.
bool IsPlainText(const Row& row, std::string_view value) {
  return std::all_of(value.begin(), value.end(),
                     [](char c) { return !absl::ascii_iscntrl(c); }) &&
         static_cast<int64_t>(value.size()) <= row.max;
}

absl::Status SetValue(const Row& row, std::string_view value,
                      Settings& settings) {
  if (row.field.set_text != nullptr) {
    if (IsPlainText(row, value)) {
      row.field.set_text(settings, value);
      return absl::OkStatus();
    }
  } else if (int64_t number = 0; ParseNumber(row, value, &number) &&
                                 number >= row.min && number <= row.max) {
    row.field.set_number(settings, number);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      View(row.name), "='",
      absl::CHexEscape(View(value.substr(0, kMaxShownChars))),
      "' is not allowed; allowed is ", Allowed(row), ". ", View(row.doc)));
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> costs(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) costs[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(costs[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = costs[j + 1];
      costs[j + 1] = std::min({replaced, costs[j] + 1, costs[j + 1] + 1});
    }
  }
  return costs.back();
}

absl::Status UnknownSetting(std::string_view name) {
  name = name.substr(0, kMaxShownChars);
  const auto closest = std::min_element(
      kRows.begin(), kRows.end(), [name](const Row& a, const Row& b) {
        return EditDistance(name, a.name) < EditDistance(name, b.name);
      });
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown setting ", absl::CHexEscape(View(name)), "; did you mean ",
      View(closest->name), "? docs/settings.md lists all"));
}

absl::Status SetEntry(std::string_view entry, Settings& settings) {
  const size_t end = std::min(entry.find('='), entry.size());
  const std::string_view name = entry.substr(0, end);
  const auto row =
      std::find_if(kRows.begin(), kRows.end(),
                   [name](const Row& r) { return r.name == name; });
  if (row == kRows.end()) return UnknownSetting(name);
  if (end == entry.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(View(name), " has no value; write ", View(name), "=..."));
  }
  return SetValue(*row, entry.substr(end + 1), settings);
}

}  // namespace

absl::StatusOr<Settings> LoadSettings(
    const char* const* environment, const std::vector<std::string>& overrides) {
  Settings settings;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.starts_with("TRNCCL_")) {
      RETURN_IF_ERROR(SetEntry(entry, settings));
    }
  }
  for (const std::string& entry : overrides) {
    RETURN_IF_ERROR(SetEntry(entry, settings));
  }
  return settings;
}

std::string SettingsText(const Settings& settings) {
  std::string text;
  for (const Row& row : kRows) {
    absl::StrAppend(&text, View(row.name), "=", ValueText(row, settings), "\n");
  }
  return text;
}

std::string AgreedSettingsText(const Settings& settings) {
  std::string text;
  for (const Row& row : kRows) {
    if (row.scope != Scope::kAllRanksAlike) continue;
    absl::StrAppend(&text, View(row.name), "=", ValueText(row, settings), "\n");
  }
  return text;
}

std::string SettingsMarkdown() {
  std::string text =
      "# Settings\n\n"
      "Each is an environment variable, read when a communicator is made; a "
      "communicator's\nconfiguration may override it. An unknown name or a bad "
      "value is an error. *Alike*: the value\nmust be the same on all ranks. "
      "Generated from the table in `ccl/base/settings.cc` by\n"
      "`bazel run //ccl/base:settings_markdown`.\n\n"
      "| name | default | allowed | alike | meaning |\n"
      "|---|---|---|---|---|\n";
  const Settings defaults;
  for (const Row& row : kRows) {
    const std::string value = ValueText(row, defaults);
    absl::StrAppend(&text, "| `", View(row.name), "` | ",
                    value.empty() ? "" : absl::StrCat("`", value, "`"), " | ",
                    Allowed(row), " | ",
                    row.scope == Scope::kAllRanksAlike ? "yes" : "", " | ",
                    View(row.doc), " |\n");
  }
  return text;
}

}  // namespace trnccl
