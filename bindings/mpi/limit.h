// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The copies and folds that no implementation of a collective can do without,
// as work of one rank on its own memory: what the `limit` column measures.
// README.md says which work each collective's is, and why.
//
// Thread rule: pure functions on the caller's memory.
//
//   const LocalWork work = {.inputs = n, .outputs = n, .elements = count / n};
//   DoLocalWork({work, ElementBytes, send, recv});
#pragma once

#include <cstddef>

namespace trnccl::perf {

// With several inputs, which lie one after the other: their sum goes to each of
// `outputs` places, one after the other, in one pass. With one input: it's
// copied `outputs` times.
struct LocalWork {
  int inputs = 1;
  int outputs = 0;      // 0: nothing has to be done
  size_t elements = 0;  // of each input and output
};

struct LocalWorkCall {
  LocalWork work;
  size_t element_bytes = 0;
  const void* source = nullptr;
  void* target = nullptr;  // may be the source, for folds
};

void DoLocalWork(const LocalWorkCall& call);

}  // namespace trnccl::perf
