// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a transport brings to be tested, and connected ranks of it.
//
// Thread rule: Connect() runs a thread a rank; the rest is the caller's.
//
//   Team team(subject, {.ranks = 3, .lanes = 2});
//   team[0].Reserve({{team.To(0, 1, lane)}}, bytes);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transports/doorbell.h"
#include "transports/transport.h"

namespace trnccl {

struct RankOptions {
  const Doorbell* doorbell = nullptr;
  uint32_t first_sequence =
      0;  // ignored by transports whose numbers never wrap
};

// A transport under test, in one of its forms.
struct Subject {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(const RankOptions&)>
      make;
  // Memory that the transport may send by reference.
  std::function<std::byte*(size_t)> allocate;  // null: any memory
  std::function<void(std::byte*)> free;
  // Whether ranks may be processes.
  bool processes = false;
  // Connections are made as messages need them: Connect() waits for nobody, and
  // sees neither who's gone nor whose lanes differ.
  bool lazy = false;
  // What tells a peer that its message has come may be lost, and is said again
  // only by a rank that makes progress, though it has all that it needs.
  bool lossy = false;
  // A message takes long: tests that send many send fewer.
  bool slow = false;

  int Many(int count) const { return slow ? count / 5 : count; }
  // Of each link, for tests that send on many: more than it holds at once.
  uint64_t messages() const { return slow ? 40 : 100; }
  // Each makes the newest message on the sender's link one that can't be.
  std::vector<std::function<void(Transport&, LinkId)>> corruptions;
};

struct TeamOptions {
  int ranks = 2;
  int lanes = 1;
  uint32_t first_sequence = 0;
  bool doorbells = false;
};

class Team {
 public:
  Team(const Subject& subject, const TeamOptions& options);

  int ranks() const { return options_.ranks; }
  int lanes() const { return options_.lanes; }
  Transport& operator[](int rank) { return *ranks_[rank]; }
  Doorbell& doorbell(int rank) { return *doorbells_[rank]; }
  // All that aren't destroyed.
  std::vector<Transport*> all() const;

  // The link pair of `rank` with `peer`.
  LinkId With(int rank, int peer, int lane = 0) const;

  void Destroy(int rank) { ranks_[rank].reset(); }

  // Room on links that are empty or not full, though the news of it may be on
  // their way still; null if there never is.
  std::byte* Reserve(int rank, std::span<const LinkId> links, size_t bytes);
  // The next message of the link, looked for until it's there; null if it never
  // comes. All ranks make progress meanwhile.
  const Incoming* Await(int rank, LinkId link);
  // Until nothing of what the rank sent on the link is pending.
  bool AwaitDelivery(int rank, LinkId link);

 private:
  const TeamOptions options_;
  std::vector<std::unique_ptr<Doorbell>> doorbells_;
  std::vector<std::unique_ptr<Transport>> ranks_;
};

// Makes progress on all of them until done() or a long time has passed.
bool ProgressUntil(std::span<Transport* const> transports,
                   const std::function<bool()>& done);

// What a rank of `addresses` connects with.
ConnectOptions OptionsOf(const std::vector<std::string>& addresses, int rank,
                         int lanes);

// Memory of the subject's kind, for messages by reference.
class SubjectMemory {
 public:
  SubjectMemory(const Subject& subject, size_t bytes);
  ~SubjectMemory();
  SubjectMemory(const SubjectMemory&) = delete;
  SubjectMemory& operator=(const SubjectMemory&) = delete;

  std::byte* data() { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const Subject& subject_;
  size_t bytes_;
  std::vector<std::byte> own_;
  std::byte* data_;
};

}  // namespace trnccl
