// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/transport_set/transport_set.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trnccl {
namespace {

// Two ranks of one process, told that they're on nodes of their own.
class TwoRanks : public testing::Test {
 protected:
  absl::Status Create(int rank, const Settings& settings) {
    absl::StatusOr<std::unique_ptr<TransportSet>> made =
        TransportSet::Create({.membership = {.rank = rank, .ranks = 2},
                              .settings = &settings,
                              .network = {.adapters = {"lo"}}});
    if (!made.ok()) return made.status();
    sets_[rank] = *std::move(made);
    return absl::OkStatus();
  }

  // Of rank 0 and rank 1.
  std::array<absl::Status, 2> Connect() {
    TransportSet::ConnectRequest request{.deadline = Deadline::After(10'000)};
    for (int rank = 0; rank < 2; ++rank)
      request.peers.push_back({.address = sets_[rank]->address(),
                               .host = rank == 0 ? "a" : "b",
                               .process = "one"});
    return Connect(request);
  }

  std::array<absl::Status, 2> Connect(
      const TransportSet::ConnectRequest& request) {
    std::array<absl::Status, 2> statuses;
    std::thread thread([&] { statuses[1] = sets_[1]->Connect(request); });
    statuses[0] = sets_[0]->Connect(request);
    thread.join();
    return statuses;
  }

  std::array<std::unique_ptr<TransportSet>, 2> sets_;
};

void ExpectSays(const absl::Status& status,
                const std::vector<std::string>& parts) {
  const std::string text(status.message());
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), text.npos) << part << " isn't in: " << status;
}

Settings Over(const std::vector<std::string>& transports) {
  Settings settings;
  settings.transport = transports;
  return settings;
}

TEST_F(TwoRanks, LeaveOutWhatReachesNobody) {
  for (int rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(Create(rank, Over({"shm", "inproc"})).ok());
  for (const absl::Status& status : Connect())
    ASSERT_TRUE(status.ok()) << status;
  for (const std::unique_ptr<TransportSet>& set : sets_) {
    EXPECT_EQ(set->name(), "inproc");
    set->SetPresence(Presence::kAsleep);
    set->SetPresence(Presence::kAwake);
    EXPECT_TRUE(set->Progress().ok());
    EXPECT_TRUE(set->AllSent());
  }
}

TEST_F(TwoRanks, RefuseTransportsThatThereArent) {
  const absl::Status status = Create(0, Over({"shm", "pigeon"}));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  ExpectSays(status,
             {"TRNCCL_TRANSPORT", "\"pigeon\"", "shm, inproc and fabric"});
}

TEST_F(TwoRanks, SayWhichOfThemLacksALibrary) {
  Settings settings = Over({"fabric"});
  settings.fabric_library = "/no/such/file";
  const absl::Status status = Create(1, settings);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  ExpectSays(status,
             {"rank 1: fabric: ", "/no/such/file", "TRNCCL_FABRIC_LIBRARY"});
}

TEST_F(TwoRanks, SayWhomTheyCannotReachAndWhatWasTried) {
  for (int rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(Create(rank, Over({"shm"})).ok());
  const auto statuses = Connect();
  for (const absl::Status& status : statuses)
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  ExpectSays(statuses[0],
             {"rank 0 on a can't reach rank 1 on b by shm", "TRNCCL_HOST_ID"});
  ExpectSays(statuses[1], {"rank 1 on b can't reach rank 0 on a by shm"});
}

TEST_F(TwoRanks, CannotReachEachOtherByWhatOnlyOneHas) {
  ASSERT_TRUE(Create(0, Over({"inproc"})).ok());
  ASSERT_TRUE(Create(1, Over({"shm"})).ok());
  const auto statuses = Connect();
  ExpectSays(statuses[0], {"rank 0 on a can't reach rank 1 on b by inproc"});
  ExpectSays(statuses[1], {"rank 1 on b can't reach rank 0 on a by shm"});
}

TEST_F(TwoRanks, SayWhichProvidersTheyHaveWhereThoseDiffer) {
  Settings settings = Over({"fabric"});
  settings.fabric_provider = "net";
  ASSERT_TRUE(Create(0, settings).ok());
  settings.fabric_provider = "tcp;ofi_rxm";
  ASSERT_TRUE(Create(1, settings).ok());
  const auto statuses = Connect();
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    ExpectSays(status, {"net", "tcp;ofi_rxm", "TRNCCL_FABRIC_PROVIDER"});
  }
  ExpectSays(statuses[0], {"rank 0: fabric: connecting to rank 1"});
  ExpectSays(statuses[1], {"rank 1: fabric: connecting to rank 0"});
}

TEST_F(TwoRanks, SayWhoseAddressIsNone) {
  for (int rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(Create(rank, Over({"inproc"})).ok());
  const auto statuses = Connect(
      {.peers = {{.address = "inproc=x", .host = "a", .process = "one"},
                 {.address = "inproc=y", .host = "b", .process = "one"}},
       .deadline = Deadline::After(10'000)});
  ExpectSays(statuses[0], {"rank 0: inproc: connecting to rank 1"});
  ExpectSays(statuses[1], {"rank 1: inproc: connecting to rank 0"});
}

}  // namespace
}  // namespace trnccl
