// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One of each collective of the public interface, with buffers of its own and a
// check of what comes out, for promises that hold for every call alike.
//
//   for (const EachCall& call : EveryCollective({.ranks = 4, .rank = 1}, 100))
//   {
//     ASSERT_CALL_OK(call.issue(comm, nullptr));
//     EXPECT_TRUE(call.is_right()) << call.name;
//   }
//
// Thread rule: plain values; use each list from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ccl/trnccl.h"

namespace trnccl {

struct EachCall {
  std::string name;
  // Blocking if the request is null. The buffers live as long as this.
  std::function<trncclResult_t(trncclComm_t comm, trncclRequest_t* request)>
      issue;
  // Spoils what it found right: the next call must write it anew.
  std::function<bool()> is_right;
};

struct RankOf {
  int ranks = 1;
  int rank = 0;
};

// Of `count` uint32 elements a block; the v-variants add the block's number.
std::vector<EachCall> EveryCollective(const RankOf& me, size_t count);

// The element of a rank at a position: a hash, so that nothing lost, doubled or
// shuffled goes unseen.
uint32_t ValueOf(int rank, size_t position);

// Polls a request, waiting for nothing, until it's done: the call completes by
// itself or the test fails. Frees it and returns its result.
trncclResult_t ResultByItself(trncclRequest_t request);

}  // namespace trnccl
