// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/sim/sim_network.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

bool Concerns(const SimNetwork::LinkRanks& cut,
              const SimNetwork::LinkRanks& link) {
  const auto is = [](int rank, int cut_rank) {
    return cut_rank == -1 || rank == cut_rank;
  };
  return (link.from == cut.from && is(link.to, cut.to)) ||
         (link.to == cut.from && is(link.from, cut.to));
}

}  // namespace

int64_t SimNetwork::NextArrivalNs(int64_t after_ns) {
  MutexLock lock(mutex_);
  int64_t next = INT64_MAX;
  for (const auto& [key, known] : links_)
    if (const auto link = known.link.lock())
      next = std::min(next, link->NextNs(after_ns));
  for (const auto& [rank, death] : deaths_)
    for (const auto& [observer, known_ns] : death.known_ns)
      if (known_ns > after_ns) next = std::min(next, known_ns);
  return next;
}

void SimNetwork::Kill(int rank) {
  MutexLock lock(mutex_);
  deaths_[rank].at_ns = now_ns();
  for (const auto& [key, known] : links_)
    if (const auto link = known.link.lock(); link && known.ranks.from == rank)
      link->LoseSender(now_ns());
  any_dead_.store(true);
}

void SimNetwork::Cut(int rank, int other) {
  MutexLock lock(mutex_);
  cuts_.push_back({rank, other});
  for (const auto& [key, known] : links_)
    if (const auto link = known.link.lock();
        link && Concerns(cuts_.back(), known.ranks))
      link->Cut(now_ns());
}

std::string SimNetwork::Add(const std::shared_ptr<SimEndpoint>& endpoint) {
  MutexLock lock(mutex_);
  endpoint->id = ++added_;
  const std::string address = absl::StrCat("sim ", endpoint->id);
  endpoints_[address] = endpoint;
  return address;
}

std::shared_ptr<SimEndpoint> SimNetwork::Find(const std::string& address) {
  MutexLock lock(mutex_);
  std::erase_if(endpoints_, [](const auto& e) { return e.second.expired(); });
  std::erase_if(links_, [](const auto& l) { return l.second.link.expired(); });
  const auto found = endpoints_.find(address);
  return found == endpoints_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<SimLink> SimNetwork::LinkOf(const LinkKey& key,
                                            const LinkRanks& ranks,
                                            const SimLinkForm& form) {
  MutexLock lock(mutex_);
  Known& known = links_[key];
  std::shared_ptr<SimLink> link = known.link.lock();
  if (link == nullptr) {
    link = std::make_shared<SimLink>(form);
    known = {.link = link, .ranks = ranks};
    for (const LinkRanks& cut : cuts_)
      if (Concerns(cut, ranks)) link->Cut(now_ns());
  }
  return link;
}

int64_t SimNetwork::DrawDelayNs() {
  traffic_.fetch_add(1, std::memory_order_relaxed);
  int64_t delay_ns = 0;
  if (weather_.delay_ns > 0) {
    delay_ns = static_cast<int64_t>(
        random_() % static_cast<uint64_t>(weather_.delay_ns + 1));
  }
  while (weather_.lost_per_1000 > 0 &&
         random_() % 1000 < static_cast<uint64_t>(weather_.lost_per_1000))
    delay_ns += weather_.resend_ns;
  return delay_ns;
}

bool SimNetwork::KnowsDeath(int observer, int rank) {
  if (!any_dead_.load(std::memory_order_relaxed)) return false;
  MutexLock lock(mutex_);
  const auto death = deaths_.find(rank);
  if (death == deaths_.end()) return false;
  const auto [known, drawn] = death->second.known_ns.try_emplace(observer);
  if (drawn)
    known->second =
        death->second.at_ns +
        static_cast<int64_t>(random_() %
                             static_cast<uint64_t>(weather_.detection_ns + 1));
  return now_ns() >= known->second;
}

}  // namespace trnccl
