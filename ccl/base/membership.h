// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which rank of how many: the pair that every layer needs together.
//
//   Membership{.rank = 0, .ranks = 4}
#pragma once

namespace trnccl {

struct Membership {
  int rank = 0;
  int ranks = 1;
};

}  // namespace trnccl
