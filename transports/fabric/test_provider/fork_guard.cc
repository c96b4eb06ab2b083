// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/fork_guard.h"

#include <pthread.h>

namespace trnccl::manners {
namespace {

struct State {
  std::mutex mutex;
  uint64_t generation = 0;

  // Held over the fork, so that the child finds it free.
  State();
};

State& TheState() {
  static State* state = new State;
  return *state;
}

State::State() {
  pthread_atfork([] { TheState().mutex.lock(); },
                 [] { TheState().mutex.unlock(); },
                 [] {
                   ++TheState().generation;
                   TheState().mutex.unlock();
                 });
}

}  // namespace

std::mutex& ProviderMutex() { return TheState().mutex; }

uint64_t ForkGeneration() { return TheState().generation; }

}  // namespace trnccl::manners
