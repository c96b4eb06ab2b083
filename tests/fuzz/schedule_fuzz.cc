// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Schedules of any form, which the verifier refuses or proves.
#include <cstdint>

#include "algorithms/schedule.h"
#include "algorithms/schedule_form.h"
#include "algorithms/verifier.h"
#include "tests/fuzz/input.h"

namespace trnccl {
namespace {

// Mostly small, now and then anything.
int64_t TakeNumber(fuzz::Input& input) {
  const auto small = input.Take<int8_t>();
  return small == -128 ? input.Take<int64_t>() : small;
}

Step TakeStep(fuzz::Input& input) {
  Step step;
  const uint8_t form = input.Take<uint8_t>();
  step.stores = form & 1;
  step.completes = form & 2;
  step.partial = form & 4;
  step.store = {.buffer = static_cast<Buffer>(form >> 4 & 3),
                .slot = TakeNumber(input)};
  if (step.store.buffer > Buffer::kScratch) step.store.buffer = Buffer::kInput;
  const uint8_t counts = input.Take<uint8_t>();
  for (int i = 0; i < (counts & 3); ++i)
    step.spans.push_back({.first = TakeNumber(input),
                          .chunks = TakeNumber(input),
                          .stride = TakeNumber(input)});
  for (int i = 0; i < (counts >> 2 & 3); ++i) {
    const uint8_t what = input.Take<uint8_t>();
    Operand operand;
    operand.partial = what & 1;
    operand.peer = what & 2 ? static_cast<int>(TakeNumber(input)) : -1;
    operand.place = {.buffer = static_cast<Buffer>((what >> 2) % 3),
                     .slot = TakeNumber(input)};
    step.operands.push_back(operand);
  }
  for (int i = 0; i < (counts >> 4 & 3); ++i)
    step.send_to.push_back(static_cast<int>(TakeNumber(input)));
  return step;
}

}  // namespace
}  // namespace trnccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trnccl;
  fuzz::Input input(data, size);
  const int ranks = 1 + input.Take<uint8_t>() % 4;
  const auto collective =
      static_cast<Collective>(input.Take<uint8_t>() % kCollectives);
  Schedule schedule;
  schedule.programs.resize(static_cast<size_t>(ranks));
  const uint8_t shape = input.Take<uint8_t>();
  const int64_t chunks = TakeNumber(input);
  const int64_t slots = TakeNumber(input);
  for (Program& program : schedule.programs) {
    program.chunks_per_block = chunks;
    program.scratch_slots = slots;
    program.lanes.resize(1 + shape % 2);
  }
  while (!input.empty()) {
    const uint8_t at = input.Take<uint8_t>();
    Program& program = schedule.programs[static_cast<size_t>(at % 4 % ranks)];
    program.lanes[at / 4 % program.lanes.size()].steps.push_back(
        TakeStep(input));
  }
  const bool formed =
      CheckForm(schedule, {.ranks = ranks, .blocks = ranks}).ok();
  // A proof takes time and memory by chunks and slots, which builders choose.
  if (formed && chunks <= 64 && slots <= 64)
    static_cast<void>(Verify(
        schedule, {.collective = collective, .ranks = ranks, .proofs = {}}));
  return 0;
}
