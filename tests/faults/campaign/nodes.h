// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Nodes as bin/nodes makes them, for one process that forks the ranks of all:
// each node is known by a process in it.
//
//   EnterNode(pid);                 // in a fresh child: it's a rank there now
//   SetLink(pid, Link::kDown);      // the node's network is gone
//
// Thread rule: of the whole process; before it has threads.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace trnccl {

// Ends the process where that's not possible, here and below.
void EnterNode(pid_t member);

enum class Link { kDown, kUp };

void SetLink(pid_t member, Link link);

// Waits until its network is there: some time after all links are up.
void AwaitNetwork(pid_t member);

// The names in the node's /dev/shm, sorted.
std::vector<std::string> MemoryFiles(pid_t member);

// Meets the same program on the other nodes, by files in a folder that all see.
// Returns a process of each on node 0; elsewhere it ends the process, once
// Part() was called there.
std::vector<pid_t> Meet(const std::string& folder);
void Part(const std::string& folder);

}  // namespace trnccl
