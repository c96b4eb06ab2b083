// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The ranks of a job's communicators and their last calls, wherever that was
// learnt: from the memory of processes (rings.h) or from dumps (dump_file.h).
// What follows from it is in diagnosis.h.
//
// Thread rule: plain values.
//
//   Job job;
//   AddMember({.id = "3f2a9c01", .ranks = {0, 1}}, {.rank = 1}, &job);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trnccl::cli {

// Times are dates, in nanoseconds since 1970; 0: not yet.
struct JobCall {
  enum State : uint8_t { kScheduled, kStarted, kCompleted, kFailed };

  uint32_t sequence = 0;  // among its collectives, or its messages; it wraps
  bool message = false;
  std::string kind;  // "all_reduce", "send"
  std::string type;  // "float32"
  std::string op;    // of reductions; empty: not known
  // Elements of the larger of its buffers; none where ranks may differ in it.
  std::optional<uint64_t> count;
  uint64_t bytes = 0;  // of these
  int64_t peer = -1;   // root, or other side of a message
  int64_t tag = -1;
  std::string algorithm;
  State state = kScheduled;
  int64_t created_ns = 0;
  int64_t started_ns = 0;
  int64_t finished_ns = 0;
};

// A rank of a communicator.
struct Member {
  int rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string process;     // "running", "stopped"; empty: of a dump
  std::string file;        // the dump
  std::string cause;       // of its communicator's failure; empty: none
  int64_t read_ns = 0;     // when all this was so
  uint32_t scheduled = 0;  // the last collective of each kind
  uint32_t completed = 0;
  std::vector<JobCall> calls;  // the oldest first
};

struct JobCommunicator {
  std::string id;               // alike on all its ranks
  std::string name;             // likewise
  std::vector<int> ranks;       // how its members are numbered
  std::vector<Member> members;  // those that are known of, by rank
};

struct Unread {
  std::string what;  // a file or process
  std::string why;
};

struct Job {
  std::vector<JobCommunicator> communicators;
  std::vector<Unread> unread;
};

// Adds a member to the communicator that is like `like`, itself new if none is.
void AddMember(const JobCommunicator& like, Member member, Job* job);

// How far the second of two numbers is behind the first; both may have wrapped.
inline int64_t Ahead(uint32_t first, uint32_t second) {
  return static_cast<int32_t>(first - second);
}

// The member's collective that has begun and not ended; null: none that's
// known.
const JobCall* CurrentCall(const Member& member);
// Its last collective that is complete, or null.
const JobCall* LastCall(const Member& member);
// Its oldest message that has begun and not ended, or null.
const JobCall* CurrentMessage(const Member& member);

}  // namespace trnccl::cli
