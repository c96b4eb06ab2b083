// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/simulation/scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ccl/kernels/fold.h"

namespace trnccl {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

// Where calls must not fail, no deadline is to be due, however long the weather
// and slow ranks make them: that they get on is seen otherwise.
constexpr int64_t kADayMs = 24 * 3600 * 1000;

Grid DrawGrid(int ranks, Draw* draw) {
  Grid grid;
  for (int rank = 0; rank < ranks; ++rank) {
    if (grid.nodes.empty() || draw->Percent(35)) grid.nodes.emplace_back();
    // Mostly packed, at times scattered.
    std::vector<int>& node =
        draw->Percent(80) ? grid.nodes.back()
        : draw->Of(grid.nodes).empty()
            ? grid.nodes.back()
            : grid.nodes[static_cast<size_t>(
                  draw->Below(static_cast<int64_t>(grid.nodes.size())))];
    node.push_back(rank);
  }
  std::erase_if(grid.nodes, [](const auto& node) { return node.empty(); });
  std::ranges::sort(grid.nodes);
  return grid;
}

int64_t DrawCount(Draw* draw) {
  switch (draw->Below(4)) {
    case 0:
      return draw->Below(4);
    case 1:
      return draw->Below(40);
    case 2:
      return draw->Below(300);
    default:
      return draw->Below(1500);
  }
}

SimCall DrawMessages(int ranks, Draw* draw) {
  SimCall call{.kind = SimCall::kMessages};
  for (int64_t i = 1 + draw->Below(2 * ranks); i > 0; --i) {
    const bool is_long = draw->Percent(20);
    call.messages.push_back(
        {.from = static_cast<int>(draw->Below(ranks)),
         .to = static_cast<int>(draw->Below(ranks)),
         .tag = draw->Below(SimMessage::kWildTag + 1),
         .bytes = is_long ? 8000 + draw->Below(20'000) : draw->Below(600)});
  }
  return call;
}

void DrawCounts(int ranks, Draw* draw, SimCall* call) {
  const bool by_pair = call->collective == Collective::kAllToAllV;
  for (int i = 0; i < (by_pair ? ranks * ranks : ranks); ++i)
    call->counts.push_back(draw->Percent(25) ? 0 : DrawCount(draw));
}

SimCall DrawCall(int ranks, Draw* draw) {
  if (draw->Percent(20)) return DrawMessages(ranks, draw);
  SimCall call{.collective =
                   static_cast<Collective>(draw->Below(kCollectives))};
  const Spec& spec = SpecOf(call.collective);
  if (call.collective == Collective::kBarrier) {
    call.type = DataType::kInt8;
    return call;
  }
  do {
    call.type = static_cast<DataType>(draw->Below(kDataTypes));
    if (spec.reduces) call.op = static_cast<ReduceOp>(draw->Below(kReduceOps));
  } while (spec.reduces && !IsSupported(call.type, call.op));
  if (spec.rooted) call.root = static_cast<int>(draw->Below(ranks));
  call.count = DrawCount(draw);
  if (spec.uneven) {
    DrawCounts(ranks, draw, &call);
  } else {
    call.in_place =
        call.collective != Collective::kAllToAll && draw->Percent(30);
  }
  return call;
}

// Calls and messages are told apart by number. One that's received from any
// source says which it is.
void NumberAll(std::vector<SimSubmission>* script) {
  int64_t calls = 0;
  int64_t messages = 0;
  for (SimSubmission& submission : *script) {
    for (SimCall& call : submission) {
      call.number = ++calls;
      for (SimMessage& message : call.messages) {
        message.number = ++messages;
        if (!message.is_wild()) continue;
        message.bytes = std::max<int64_t>(message.bytes, sizeof(int64_t));
        message.tag = SimMessage::kWildTag + (&submission - script->data());
      }
    }
  }
}

std::vector<SimSubmission> DrawScript(int ranks, Draw* draw) {
  std::vector<SimSubmission> script;
  int64_t calls = 1 + draw->Below(12);
  while (calls > 0) {
    SimSubmission submission;
    const int64_t together = draw->Percent(25) ? 2 + draw->Below(2) : 1;
    for (int64_t i = 0; i < together; ++i, --calls)
      submission.push_back(DrawCall(ranks, draw));
    // The same again, as loops do.
    for (int64_t i = draw->Percent(50) ? 1 + draw->Below(4) : 0; i > 0; --i)
      script.push_back(submission);
    script.push_back(std::move(submission));
  }
  script.push_back({SimCall{.type = DataType::kInt8}});
  NumberAll(&script);
  return script;
}

Fault DrawFault(const Scenario& scenario, Draw* draw) {
  Fault fault{.kind = static_cast<FaultKind>(draw->Below(kFaultKinds)),
              .rank = static_cast<int>(draw->Below(scenario.ranks))};
  fault.other = static_cast<int>(draw->Below(scenario.ranks - 1));
  if (fault.other >= fault.rank) ++fault.other;
  fault.after_submissions =
      draw->Below(static_cast<int64_t>(scenario.script.size()));
  fault.after_steps = draw->Percent(50) ? draw->Below(12) : draw->Below(150);
  fault.pause_ns = draw->Below(20'000) * kNsPerMs;
  return fault;
}

// Where calls must not fail, it's as bad as it gets; else it leaves faults the
// time to be noticed before a deadline that has nothing to do with them.
void DrawWeather(Draw* draw, Scenario* scenario) {
  SimWeather& weather = scenario->weather;
  const int64_t timeout_ns = scenario->settings.timeout_ms * kNsPerMs;
  weather.delay_ns = draw->Of<int64_t>({0, 1'000, 20'000, 1'000'000});
  if (draw->Percent(20)) {
    weather.lost_per_1000 = draw->Of<int>({5, 50, 300});
    weather.resend_ns = draw->Of<int64_t>({100'000, 3'000'000, 200'000'000});
  }
  weather.detection_ns =
      std::min(draw->Of<int64_t>({0, 300'000, 900'000'000}), timeout_ns / 3);
  if (scenario->fault.kind == FaultKind::kWeather) {
    weather.delay_ns *= 50;
    weather.lost_per_1000 = 100;
    weather.resend_ns = std::max<int64_t>(weather.resend_ns, 1'000'000);
  } else if (IsFatal(scenario->fault.kind)) {
    weather.delay_ns = std::min(weather.delay_ns, timeout_ns / 10'000);
    weather.resend_ns = std::min(weather.resend_ns, timeout_ns / 10'000);
  }
}

void DrawWires(Draw* draw, Scenario* scenario) {
  for (SimOptions* wire : {&scenario->within, &scenario->across}) {
    wire->form.slice_bytes = draw->Of<size_t>({128, 512, 4096, 16'384});
    wire->form.inline_bytes = draw->Of<size_t>({0, 16, 64});
    wire->form.capacity = draw->Of<size_t>({1, 1, 2, 5});
    wire->by_reference = draw->Percent(50);
    wire->any_memory = wire->by_reference && draw->Percent(70);
    wire->form.delivers = draw->Percent(50);
  }
  scenario->within.name = "near";
  scenario->across.name = "far";
}

}  // namespace

std::string_view Name(FaultKind kind) {
  constexpr std::string_view kNames[] = {
      "none",  "weather", "slow", "pause", "mismatch", "refusal",
      "abort", "leave",   "kill", "stop",  "cut_pair", "cut_rank"};
  return kNames[static_cast<size_t>(kind)];
}

Scenario DrawScenario(uint64_t seed) {
  Draw draw(seed);
  Scenario scenario{.seed = seed};
  scenario.ranks = 2 + static_cast<int>(draw.Below(7));
  scenario.grid = DrawGrid(scenario.ranks, &draw);
  Settings& settings = scenario.settings;
  settings.lanes = 1 + draw.Below(4);
  settings.segment_bytes = draw.Of<int64_t>({0, 0, 64, 1000, 4096});
  if (draw.Percent(25)) settings.determinism = Determinism::kStrict;
  settings.recorder_calls = 16;
  // A blocking call that waits lets others go on (stepped_call.h).
  settings.wait = WaitMode::kYield;
  scenario.first_sequence =
      draw.Of<uint32_t>({1, (uint32_t{1} << 31) - 3, UINT32_MAX - 2});
  scenario.window = 1 + static_cast<int>(draw.Below(4));
  scenario.blocking_percent = draw.Of<int>({0, 10, 30, 100});
  scenario.script = DrawScript(scenario.ranks, &draw);
  scenario.fault = DrawFault(scenario, &draw);
  settings.timeout_ms = IsFatal(scenario.fault.kind)
                            ? draw.Of<int64_t>({300, 2'000, 10'000})
                            : kADayMs;
  DrawWeather(&draw, &scenario);
  DrawWires(&draw, &scenario);
  return scenario;
}

std::string Describe(const Scenario& scenario) {
  const Fault& fault = scenario.fault;
  std::string text = absl::StrCat(
      "seed ", scenario.seed, ": ", scenario.ranks, " ranks on ",
      scenario.grid.nodes.size(), " nodes, ", scenario.script.size(),
      " submissions, timeout ", scenario.settings.timeout_ms, " ms, ",
      std::string(Name(fault.kind)), " of rank ", fault.rank,
      fault.kind == FaultKind::kCutPair ? absl::StrCat(" and ", fault.other)
                                        : "",
      " at submission ", fault.after_submissions, " + ", fault.after_steps,
      " steps");
  for (const SimOptions* wire : {&scenario.within, &scenario.across})
    absl::StrAppend(&text, "; ", std::string(wire->name), ": slices of ",
                    wire->form.slice_bytes, ", ", wire->form.capacity,
                    " a link", wire->by_reference ? ", by reference" : "",
                    wire->any_memory ? ", any memory" : "",
                    wire->form.delivers ? ", delivers" : "");
  const SimWeather& weather = scenario.weather;
  return absl::StrCat(text, "; delays up to ", weather.delay_ns / 1000, " us, ",
                      weather.lost_per_1000, " of 1000 lost, resent after ",
                      weather.resend_ns / 1000, " us");
}

}  // namespace trnccl
