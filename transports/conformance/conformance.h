// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The contract of transports/transport.h as tests. A transport joins by one
// file beside it, which names its forms:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, Conformance, ::testing::Values(Default(),
//                            TinyArena()), SubjectName);
#pragma once

#include <string>

#include "gtest/gtest.h"
#include "transports/conformance/team.h"

namespace trnccl {

class Conformance : public ::testing::TestWithParam<Subject> {};

inline std::string SubjectName(const ::testing::TestParamInfo<Subject>& info) {
  return info.param.name;
}

}  // namespace trnccl
