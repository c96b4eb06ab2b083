// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/nics.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNics = 1024;
constexpr size_t kMaxNameChars = 256;
constexpr char kUp[] = "up";
constexpr char kDown[] = "down";

std::string FirstWord(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

bool IsPciAddress(std::string_view text) {
  constexpr std::string_view kForm = "0000:00:00.0";
  const auto fits = [](char c, char form) {
    const bool digit = absl::ascii_isxdigit(static_cast<unsigned char>(c));
    return form == '0' ? digit : c == form;
  };
  return std::equal(text.begin(), text.end(), kForm.begin(), kForm.end(), fits);
}

bool IsName(std::string_view text) {
  const auto fits = [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != ',' &&
           c != ';';
  };
  return !text.empty() && text.size() <= kMaxNameChars &&
         std::all_of(text.begin(), text.end(), fits);
}

// A class's folder, and where in a card's folder its speed and state are told.
struct NicClass {
  const char* folder;
  const char* speed;
  int64_t mbps_per_unit;
  const char* state;
  const char* up;
};

constexpr NicClass kClasses[] = {
    {"infiniband", "ports/1/rate", 1000, "ports/1/phys_state", "5:"},
    {"net", "speed", 1, "operstate", "up"},
};

std::optional<Nic> NicAt(const fs::path& folder, const NicClass& of) {
  std::error_code error;
  Nic nic{.name = folder.filename(),
          .pci = fs::canonical(folder / "device", error).filename()};
  if (error || !IsPciAddress(nic.pci) || !IsName(nic.name)) return std::nullopt;
  // Where the link is down, the speed is none or negative.
  if (!absl::SimpleAtoi(FirstWord(folder / of.speed), &nic.mbps)) nic.mbps = 0;
  nic.mbps = std::max<int64_t>(0, nic.mbps) * of.mbps_per_unit;
  if (FirstWord(folder / of.state) != of.up) nic.state = Nic::State::kDown;
  return nic;
}

absl::StatusOr<Nic> ParseNic(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  Nic nic;
  if (words.size() != 4 || !IsName(words[0]) ||
      !(words[1].empty() || IsPciAddress(words[1])) ||
      !absl::SimpleAtoi(words[2], &nic.mbps) || nic.mbps < 0 ||
      (words[3] != kUp && words[3] != kDown)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a network card is NAME,PCI,MBPS,up or down, not \"",
                     absl::CHexEscape(text.substr(0, kMaxNameChars)), "\""));
  }
  nic.name = words[0];
  nic.pci = words[1];
  nic.state = words[3] == kUp ? Nic::State::kUp : Nic::State::kDown;
  return nic;
}

}  // namespace

std::vector<Nic> ListNics(const std::string& sysfs) {
  std::vector<Nic> nics;
  for (const NicClass& of : kClasses) {
    std::error_code error;
    fs::directory_iterator entry(fs::path(sysfs) / "class" / of.folder, error);
    for (; !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      const std::optional<Nic> nic = NicAt(entry->path(), of);
      if (nic && nics.size() < kMaxNics) nics.push_back(*nic);
    }
  }
  std::sort(nics.begin(), nics.end(),
            [](const Nic& a, const Nic& b) { return a.name < b.name; });
  return nics;
}

std::string NicsText(const std::vector<Nic>& nics) {
  return absl::StrJoin(nics, ";", [](std::string* out, const Nic& nic) {
    absl::StrAppend(out, nic.name, ",", nic.pci, ",", nic.mbps, ",",
                    nic.state == Nic::State::kUp ? kUp : kDown);
  });
}

absl::StatusOr<std::vector<Nic>> ParseNics(std::string_view text) {
  std::vector<Nic> nics;
  if (text.empty()) return nics;
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ';');
  if (parts.size() > kMaxNics) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.size(), " network cards: too many"));
  }
  for (const std::string& part : parts) {
    ASSIGN_OR_RETURN(Nic nic, ParseNic(part));
    nics.push_back(std::move(nic));
  }
  return nics;
}

}  // namespace trnccl
