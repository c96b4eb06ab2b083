// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/conformance/team.h"

#include <thread>

#include "ccl/base/check.h"
#include "gtest/gtest.h"

namespace trnccl {

Team::Team(const Subject& subject, const TeamOptions& options)
    : options_(options) {
  std::vector<std::string> addresses;
  for (int rank = 0; rank < options.ranks; ++rank) {
    RankOptions rank_options = {.first_sequence = options.first_sequence};
    if (options.doorbells) {
      auto doorbell = Doorbell::Create();
      TRNCCL_CHECK(doorbell.ok());
      doorbells_.push_back(*std::move(doorbell));
      rank_options.doorbell = doorbells_.back().get();
    }
    auto transport = subject.make(rank_options);
    EXPECT_TRUE(transport.ok()) << transport.status();
    TRNCCL_CHECK(transport.ok());
    ranks_.push_back(*std::move(transport));
    addresses.push_back(ranks_.back()->traits().address);
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status =
          ranks_[rank]->Connect(OptionsOf(addresses, rank, options.lanes));
      EXPECT_TRUE(status.ok()) << status;
      TRNCCL_CHECK(status.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<Transport*> Team::all() const {
  std::vector<Transport*> all;
  for (const auto& rank : ranks_)
    if (rank != nullptr) all.push_back(rank.get());
  return all;
}

std::byte* Team::Reserve(int rank, std::span<const LinkId> links,
                         size_t bytes) {
  std::byte* slice = nullptr;
  const bool came = ProgressUntil(all(), [&] {
    slice = ranks_[rank]->Reserve(links, bytes);
    return slice != nullptr;
  });
  return came ? slice : nullptr;
}

const Incoming* Team::Await(int rank, LinkId link) {
  const Incoming* message = nullptr;
  const bool came = ProgressUntil(all(), [&] {
    message = ranks_[rank]->Peek(link, nullptr);
    return message != nullptr;
  });
  return came ? message : nullptr;
}

bool Team::AwaitDelivery(int rank, LinkId link) {
  return ProgressUntil(all(), [&] { return ranks_[rank]->Pending(link) == 0; });
}

LinkId Team::With(int rank, int peer, int lane) const {
  const size_t index = static_cast<size_t>(peer < rank ? peer : peer - 1);
  return ranks_[rank]->Link(index, lane);
}

bool ProgressUntil(std::span<Transport* const> transports,
                   const std::function<bool()>& done) {
  const Deadline deadline = Deadline::After(30'000);
  while (!done()) {
    if (deadline.expired()) return false;
    for (Transport* transport : transports)
      if (!transport->Progress().ok()) return done();
  }
  return true;
}

ConnectOptions OptionsOf(const std::vector<std::string>& addresses, int rank,
                         int lanes) {
  ConnectOptions options = {
      .rank = rank, .lanes = lanes, .deadline = Deadline::After(60'000)};
  for (size_t peer = 0; peer < addresses.size(); ++peer) {
    if (static_cast<int>(peer) == rank) continue;
    options.peers.push_back(
        {.rank = static_cast<int>(peer), .address = addresses[peer]});
  }
  return options;
}

SubjectMemory::SubjectMemory(const Subject& subject, size_t bytes)
    : subject_(subject), bytes_(bytes) {
  if (subject.allocate) {
    data_ = subject.allocate(bytes);
  } else {
    own_.resize(bytes);
    data_ = own_.data();
  }
}

SubjectMemory::~SubjectMemory() {
  if (subject_.allocate) subject_.free(data_);
}

}  // namespace trnccl
