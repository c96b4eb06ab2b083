// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What kind of collective a benchmark is for.
//
// Thread rule: a plain constant.
//
//   static constexpr Traits kTraits = {.name = "reduce", .call = "Reduce",
//                                      .reduces = true, .rooted = true};
#pragma once

namespace trnccl::perf {

struct Traits {
  const char* name;           // "all_reduce"
  const char* call;           // "AllReduce"
  bool reduces = false;       // has an operator
  bool rooted = false;        // has a root
  bool moves_data = true;     // has buffers
  bool has_in_place = true;   // may be called in place
  int requests_per_call = 1;  // of an asynchronous call
};

}  // namespace trnccl::perf
