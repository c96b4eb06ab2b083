// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/info.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ccl/base/json.h"
#include "ccl/base/settings.h"
#include "ccl/base/status_macros.h"
#include "ccl/topology/host_facts.h"
#include "ccl/trnccl.h"
#include "transports/fabric/survey.h"

namespace trnccl::cli {
namespace {

InfoSection LibrarySection() {
  utsname machine = {};
  uname(&machine);
  return {"library",
          {{"version",
            absl::StrCat(TRNCCL_MAJOR, ".", TRNCCL_MINOR, ".", TRNCCL_PATCH)},
           {"compiler", __VERSION__},
           {"kernel", absl::StrCat(machine.sysname, " ", machine.release, " ",
                                   machine.machine)}}};
}

bool IsSet(const char* const* environment, const std::string& name) {
  const std::string start = name + "=";
  for (; *environment != nullptr; ++environment)
    if (std::string_view(*environment).starts_with(start)) return true;
  return false;
}

InfoSection SettingsSection(const Settings& settings,
                            const char* const* environment) {
  InfoSection section{"settings", {}};
  for (const absl::string_view line :
       absl::StrSplit(SettingsText(settings), '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> entry =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    section.lines.push_back(
        {entry.first, entry.second,
         IsSet(environment, entry.first) ? "environment" : "default"});
  }
  return section;
}

InfoSection MachineSection(const HostFacts& facts) {
  return {"machine",
          {{"host", facts.hostname},
           {"host_id", facts.host_id},
           {"machine_id", facts.machine},
           {"processors", CpuSetText(facts.cpus)},
           {"cores", CpuSetsText(facts.cores)},
           {"l3_groups", CpuSetsText(facts.l3_groups)},
           {"network_cards", NicsText(facts.nics)}}};
}

std::string TransportText(const Settings& settings) {
  return settings.transport.empty() ? "shm inside a node, fabric between nodes"
                                    : absl::StrJoin(settings.transport, ", ");
}

InfoSection FabricSection(const Settings& settings) {
  InfoSection section{"fabric", {}};
  const auto add = [&](const char* name, std::string value) {
    section.lines.push_back({name, std::move(value), ""});
  };
  add("transports", TransportText(settings));
  const absl::StatusOr<FabricSurvey> survey = SurveyFabric(
      {.library = settings.fabric_library,
       .provider = settings.fabric_provider,
       .protocol = static_cast<FabricProtocol>(settings.fabric_travel),
       .adapters = settings.fabric_adapters,
       .rails = static_cast<int>(settings.fabric_rails)});
  if (!survey.ok()) {
    add("error", std::string(survey.status().message()));
    return section;
  }
  add("libfabric", absl::StrCat(survey->version, " (", survey->library, ")"));
  add("offers", absl::StrJoin(survey->offers, ", "));
  if (!survey->choice.ok()) {
    add("error", std::string(survey->choice.message()));
    return section;
  }
  add("provider", survey->provider);
  add("adapters", absl::StrJoin(survey->adapters, ", "));
  add("long_messages",
      survey->protocol == FabricProtocol::kWrite ? "written" : "tagged");
  return section;
}

}  // namespace

absl::StatusOr<std::vector<InfoSection>> GatherInfo(
    const char* const* environment) {
  ASSIGN_OR_RETURN(const Settings settings, LoadSettings(environment, {}));
  ASSIGN_OR_RETURN(const HostFacts facts, GatherHostFacts(settings.host_id));
  return std::vector<InfoSection>{
      LibrarySection(), SettingsSection(settings, environment),
      MachineSection(facts), FabricSection(settings)};
}

std::string InfoText(const std::vector<InfoSection>& sections) {
  std::string text;
  for (const InfoSection& section : sections) {
    absl::StrAppend(&text, section.heading, "\n");
    for (const InfoSection::Line& line : section.lines)
      absl::StrAppend(
          &text, absl::StrFormat(
                     "  %-28s %s%s\n", line.name, line.value,
                     line.source == "environment" ? "  (environment)" : ""));
  }
  return absl::StrCat(text, "trnccl plan shows the algorithms.\n");
}

std::string InfoJson(const std::vector<InfoSection>& sections) {
  std::vector<std::string> texts;
  for (const InfoSection& section : sections) {
    std::vector<std::string> lines;
    for (const InfoSection::Line& line : section.lines) {
      lines.push_back(absl::StrCat(
          JsonText(line.name), ": ",
          line.source.empty()
              ? JsonText(line.value)
              : absl::StrCat("{\"value\": ", JsonText(line.value),
                             ", \"source\": ", JsonText(line.source), "}")));
    }
    texts.push_back(absl::StrCat(JsonText(section.heading), ": {\n  ",
                                 absl::StrJoin(lines, ",\n  "), "}"));
  }
  return absl::StrCat("{", absl::StrJoin(texts, ",\n "), "}\n");
}

absl::Status RunInfo(std::span<char* const> arguments) {
  const bool json =
      arguments.size() == 1 && std::string_view(arguments[0]) == "--json";
  if (!arguments.empty() && !json)
    return absl::InvalidArgumentError(
        absl::StrCat("info: \"", arguments.back(), "\" isn't --json alone"));
  // Exits with 1, not with 2: it was called rightly.
  const absl::StatusOr<std::vector<InfoSection>> sections = GatherInfo(environ);
  if (!sections.ok())
    return absl::FailedPreconditionError(
        absl::StrCat("info: ", sections.status().message()));
  std::fputs((json ? InfoJson(*sections) : InfoText(*sections)).c_str(),
             stdout);
  return absl::OkStatus();
}

}  // namespace trnccl::cli
