// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/conformance/conformance.h"
#include "transports/shared_memory.h"
#include "transports/shm/corruptions.h"
#include "transports/shm/shm.h"

namespace trnccl {
namespace {

Subject Shm(const std::string& name, const ShmOptions& form) {
  Subject subject;
  subject.name = name;
  subject.make = [form](const RankOptions& rank) {
    ShmOptions options = form;
    options.doorbell = rank.doorbell;
    options.first_sequence = rank.first_sequence;
    return MakeShmTransport(options);
  };
  subject.allocate = [](size_t bytes) { return *AllocateShared(bytes); };
  subject.free = [](std::byte* base) { EXPECT_TRUE(FreeShared(base).ok()); };
  subject.processes = true;
  subject.corruptions = shm::Corruptions();
  return subject;
}

INSTANTIATE_TEST_SUITE_P(
    Shm, Conformance,
    ::testing::Values(Shm("default", {}), Shm("tiny_arena", {.arena_bytes = 1}),
                      Shm("no_reference", {.by_reference = false}),
                      Shm("fences", {.sleep_barriers = false})),
    SubjectName);

}  // namespace
}  // namespace trnccl
