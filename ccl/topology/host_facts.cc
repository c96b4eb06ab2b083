// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/host_facts.h"

#include <netinet/in.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"
#include "transports/system_error.h"

namespace trnccl {
namespace {

constexpr std::string_view kBootIdFile = "/proc/sys/kernel/random/boot_id";
constexpr absl::string_view kFirstWord = "trnccl-host";
constexpr absl::string_view kVersion = "3";
constexpr size_t kMaxTextBytes = 256 << 10;
constexpr size_t kMaxNameChars = 4096;
constexpr size_t kMaxAddresses = 64;

// The first line of a small file of the kernel's; "" if there's none, and errno
// says why.
std::string ReadLine(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

absl::StatusOr<CpuSet> AllowedCpus() {
  cpu_set_t* mask = CPU_ALLOC(kMaxCpus);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> owner(
      mask, [](cpu_set_t* allocated) { CPU_FREE(allocated); });
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  CPU_ZERO_S(bytes, mask);
  if (sched_getaffinity(0, bytes, mask) != 0) {
    return absl::InternalError(
        absl::StrCat("sched_getaffinity: ", std::strerror(errno)));
  }
  CpuSet cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, bytes, mask)) cpus.push_back(cpu);
  }
  return cpus;
}

// The groups that `file` of each processor's folder names.
std::vector<CpuSet> Groups(const CpuSet& cpus, std::string_view file) {
  std::vector<CpuSet> groups;
  std::vector<bool> seen(kMaxCpus);
  const auto was_seen = [&seen](int cpu) {
    return seen[static_cast<size_t>(cpu)];
  };
  for (const int cpu : cpus) {
    if (was_seen(cpu)) continue;
    const absl::StatusOr<CpuSet> group = ParseCpuSet(ReadLine(absl::StrCat(
        "/sys/devices/system/cpu/cpu", cpu, "/", std::string(file))));
    if (!group.ok() || !std::binary_search(group->begin(), group->end(), cpu) ||
        std::any_of(group->begin(), group->end(), was_seen)) {
      continue;
    }
    for (const int member : *group) seen[static_cast<size_t>(member)] = true;
    groups.push_back(*group);
  }
  return groups;
}

absl::Status Malformed(absl::string_view cause) {
  return absl::InvalidArgumentError(
      absl::StrCat("host facts: ", cause, "; all ranks must run one version"));
}

absl::Status ParseName(absl::string_view value, std::string* name) {
  if (value.size() > kMaxNameChars || !absl::CUnescape(value, name)) {
    return Malformed("a name is too long or badly escaped");
  }
  return absl::OkStatus();
}

// Of IPv4 or IPv6, with commas.
absl::Status ParseAddresses(absl::string_view value,
                            std::vector<std::string>* addresses) {
  if (value.empty()) return absl::OkStatus();
  *addresses = absl::StrSplit(value, ',');
  const auto is_ip = [](const std::string& text) {
    return !text.empty() && text.size() < INET6_ADDRSTRLEN &&
           text.find_first_not_of("0123456789abcdef:.") == text.npos;
  };
  if (addresses->size() > kMaxAddresses ||
      !std::all_of(addresses->begin(), addresses->end(), is_ip))
    return Malformed("bad addresses");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostFacts> GatherHostFacts(const std::string& host_id) {
  HostFacts facts;
  std::array<char, HOST_NAME_MAX + 1> hostname = {};
  if (gethostname(hostname.data(), hostname.size() - 1) != 0) {
    return absl::InternalError(
        absl::StrCat("gethostname: ", std::strerror(errno)));
  }
  facts.hostname = hostname.data();
  facts.host_id = host_id;
  const std::string boot_id = ReadLine(std::string(kBootIdFile));
  if (boot_id.empty() && errno == EMFILE)
    return SystemError(errno,
                       absl::StrCat("reading ", std::string(kBootIdFile)));
  if (boot_id.empty() && host_id.empty()) {
    return absl::NotFoundError(
        absl::StrCat("can't tell this machine from others: no boot id in ",
                     std::string(kBootIdFile),
                     "; set TRNCCL_HOST_ID to a text of its own on each"));
  }
  facts.machine = boot_id.empty() ? host_id : boot_id;
  if (host_id.empty())
    facts.host_id = absl::StrCat(facts.hostname, "/", boot_id);
  facts.pid = getpid();
  ASSIGN_OR_RETURN(facts.cpus, AllowedCpus());
  facts.cores = Groups(facts.cpus, "topology/thread_siblings_list");
  facts.l3_groups = Groups(facts.cpus, "cache/index3/shared_cpu_list");
  facts.nics = ListNics("/sys");
  return facts;
}

std::string HostFactsText(const HostFacts& facts) {
  return absl::StrCat(
      kFirstWord, " ", kVersion, "\nhost_id ", absl::CHexEscape(facts.host_id),
      "\nmachine ", absl::CHexEscape(facts.machine), "\nhostname ",
      absl::CHexEscape(facts.hostname), "\npid ", facts.pid, "\ncpus ",
      CpuSetText(facts.cpus), "\ncores ", CpuSetsText(facts.cores),
      "\nl3_groups ", CpuSetsText(facts.l3_groups), "\nnics ",
      NicsText(facts.nics), "\nmet_at ", absl::StrJoin(facts.met_at, ","),
      "\naddresses ", absl::StrJoin(facts.addresses, ","), "\n");
}

absl::StatusOr<HostFacts> ParseHostFacts(std::string_view text) {
  constexpr std::array<absl::string_view, kHostFactsLines> kKeys = {
      kFirstWord, "host_id",   "machine", "hostname", "pid",      "cpus",
      "cores",    "l3_groups", "nics",    "met_at",   "addresses"};
  if (text.size() > kMaxTextBytes) return Malformed("the text is too long");
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  std::array<absl::string_view, kHostFactsLines> values;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(i < lines.size() ? lines[i] : absl::string_view(),
                       absl::MaxSplits(' ', 1));
    if (words.first != kKeys[i]) {
      return Malformed(absl::StrCat("no line ", kKeys[i]));
    }
    values[i] = words.second;
    if (i == 0 && words.second != kVersion) {
      return Malformed(absl::StrCat(
          "version \"", absl::CHexEscape(words.second.substr(0, 20)),
          "\" isn't ", kVersion));
    }
  }
  HostFacts facts;
  RETURN_IF_ERROR(ParseName(values[1], &facts.host_id));
  RETURN_IF_ERROR(ParseName(values[2], &facts.machine));
  RETURN_IF_ERROR(ParseName(values[3], &facts.hostname));
  if (!absl::SimpleAtoi(values[4], &facts.pid)) return Malformed("bad pid");
  const auto view = [&values](size_t i) {
    return std::string_view(values[i].data(), values[i].size());
  };
  ASSIGN_OR_RETURN(facts.cpus, ParseCpuSet(view(5)));
  ASSIGN_OR_RETURN(facts.cores, ParseCpuSets(view(6)));
  ASSIGN_OR_RETURN(facts.l3_groups, ParseCpuSets(view(7)));
  ASSIGN_OR_RETURN(facts.nics, ParseNics(view(8)));
  RETURN_IF_ERROR(ParseAddresses(values[9], &facts.met_at));
  RETURN_IF_ERROR(ParseAddresses(values[10], &facts.addresses));
  // Whatever the parsers above let through, there's one way to write a fact.
  if (HostFactsText(facts) != text) return Malformed("not as written here");
  return facts;
}

}  // namespace trnccl
