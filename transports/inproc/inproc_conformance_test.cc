// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/conformance/conformance.h"
#include "transports/inproc/inproc.h"

namespace trnccl {
namespace {

Subject Inproc(const std::string& name, size_t slice_bytes) {
  Subject subject;
  subject.name = name;
  subject.make = [slice_bytes](const RankOptions& rank) {
    return MakeInprocTransport(
        {.slice_bytes = slice_bytes, .doorbell = rank.doorbell});
  };
  return subject;
}

INSTANTIATE_TEST_SUITE_P(Inproc, Conformance,
                         ::testing::Values(Inproc("default", 64 << 10),
                                           Inproc("tiny", 16)),
                         SubjectName);

}  // namespace
}  // namespace trnccl
