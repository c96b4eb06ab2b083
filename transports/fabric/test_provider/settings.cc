// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/settings.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "transports/fabric/test_provider/breach.h"

namespace trnccl::manners {
namespace {

constexpr const char* kFaultNames[] = {
    "getinfo", "fabric", "domain",  "cq",   "av",        "endpoint",
    "bind",    "enable", "getname", "mr",   "av_insert", "post",
    "tx",      "rx",     "peer",    "reset"};
static_assert(std::size(kFaultNames) == static_cast<size_t>(Fault::kCount));

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');)
    words.push_back(word);
  return words;
}

uint64_t Number(const std::string& text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || !std::isdigit(text[0]) || *end != '\0')
    Breach("'", text, "' in a MANNERS_ setting isn't a number");
  return value;
}

Fault FaultOf(const std::string& name) {
  for (size_t i = 0; i < std::size(kFaultNames); ++i) {
    if (name == kFaultNames[i]) return static_cast<Fault>(i);
  }
  Breach("MANNERS_FAIL names '", name, "', which isn't a fault");
}

Flavour FlavourOf(const std::string& name) {
  if (name == NameOf(Flavour::kEfa)) return Flavour::kEfa;
  if (name == NameOf(Flavour::kEfaDirect)) return Flavour::kEfaDirect;
  Breach("MANNERS_FABRIC names '", name, "': efa and efa-direct are known");
}

ReceiverNotReady ReceiverNotReadyOf(const std::string& name) {
  if (name == "retry") return ReceiverNotReady::kRetry;
  if (name == "error") return ReceiverNotReady::kError;
  Breach("MANNERS_RNR is '", name, "': retry and error are known");
}

size_t Percent(const std::string& text) {
  const size_t value = Number(text);
  if (value > 99) Breach("MANNERS_EAGAIN of ", value, ": nothing would pass");
  return value;
}

struct Row {
  const char* name;
  void (*read)(Settings& settings, const std::string& text);
};

template <size_t Settings::*kMember>
void ReadNumber(Settings& settings, const std::string& text) {
  settings.*kMember = Number(text);
}

constexpr Row kRows[] = {
    {"MANNERS_FABRIC",
     [](Settings& settings, const std::string& text) {
       settings.fabrics.clear();
       for (const std::string& name : Split(text))
         settings.fabrics.push_back(FlavourOf(name));
     }},
    {"MANNERS_NICS", ReadNumber<&Settings::nics>},
    {"MANNERS_PCI",
     [](Settings& settings, const std::string& text) {
       settings.pci = Split(text);
     }},
    {"MANNERS_SEED", ReadNumber<&Settings::seed>},
    {"MANNERS_HOLD", ReadNumber<&Settings::hold>},
    {"MANNERS_EAGAIN",
     [](Settings& settings, const std::string& text) {
       settings.eagain_percent = Percent(text);
     }},
    {"MANNERS_SLOW", ReadNumber<&Settings::slow>},
    {"MANNERS_RNR",
     [](Settings& settings, const std::string& text) {
       settings.receiver_not_ready = ReceiverNotReadyOf(text);
     }},
    {"MANNERS_TX_SIZE", ReadNumber<&Settings::transmits>},
    {"MANNERS_RX_SIZE", ReadNumber<&Settings::receives>},
    {"MANNERS_CQ_SIZE", ReadNumber<&Settings::completions>},
    {"MANNERS_INJECT_SIZE", ReadNumber<&Settings::inject_bytes>},
    {"MANNERS_EAGER_SIZE", ReadNumber<&Settings::eager_bytes>},
    {"MANNERS_MSG_SIZE", ReadNumber<&Settings::message_bytes>},
    {"MANNERS_IOV_LIMIT", ReadNumber<&Settings::segments>},
    {"MANNERS_PINS", ReadNumber<&Settings::pins>},
    {"MANNERS_EMULATED_WRITE", ReadNumber<&Settings::emulated_write>},
    {"MANNERS_DMABUF", ReadNumber<&Settings::dmabuf>},
    {"MANNERS_FAIL",
     [](Settings& settings, const std::string& text) { settings.fail = text; }},
};

void Read(const std::string& name, const std::string& text,
          Settings& settings) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.read(settings, text);
  }
  Breach(name, " isn't a setting of this provider");
}

}  // namespace

const char* NameOf(Flavour flavour) {
  return flavour == Flavour::kEfa ? "efa" : "efa-direct";
}

FaultPlan::FaultPlan(const std::string& text) {
  for (const std::string& word : Split(text)) {
    const size_t colon = word.find(':');
    Rule rule = {FaultOf(word.substr(0, colon)), 1, UINT64_MAX};
    if (colon != std::string::npos) {
      std::string count = word.substr(colon + 1);
      const bool onwards = count.ends_with('+');
      if (onwards) count.pop_back();
      rule.first = Number(count);
      if (!onwards) rule.last = rule.first;
    }
    rules_.push_back(rule);
  }
}

bool FaultPlan::Strikes(Fault fault) {
  const uint64_t call = ++calls_[static_cast<size_t>(fault)];
  for (const Rule& rule : rules_) {
    if (rule.fault == fault && rule.first <= call && call <= rule.last)
      return true;
  }
  return false;
}

Settings ReadSettings() {
  Settings settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("MANNERS_") || equals == text.npos) continue;
    Read(std::string(text.substr(0, equals)),
         std::string(text.substr(equals + 1)), settings);
  }
  settings.faults = FaultPlan(settings.fail);
  return settings;
}

}  // namespace trnccl::manners
