// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/create.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/bootstrap.h"
#include "ccl/bootstrap/own_addresses.h"
#include "ccl/communicator/outcome.h"
#include "ccl/planner/model_file.h"
#include "ccl/progress/sleepers.h"
#include "ccl/topology/hardware.h"
#include "ccl/topology/host_facts.h"
#include "ccl/topology/network.h"

namespace trnccl {
namespace {

constexpr std::string_view kVersion = "0.1.0";

// Enough to keep several segments in flight; alike on all ranks by agreement.
constexpr int kAutoLanes = 4;

// Not secret: it tells communicators apart, it keeps nobody out.
uint32_t CookieOf(const Secret& secret) {
  uint64_t words[2] = {};
  std::memcpy(words, secret.data(), std::min(sizeof(words), secret.size()));
  return MixCookie(words[0] ^ words[1]);
}

// What is exchanged before anything else: where each rank is.
absl::StatusOr<Topology> TopologyOf(const std::vector<std::string>& facts,
                                    int rank) {
  std::vector<HostFacts> hosts;
  for (const std::string& text : facts) {
    ASSIGN_OR_RETURN(HostFacts host, ParseHostFacts(text));
    hosts.push_back(std::move(host));
  }
  return MakeTopology(std::move(hosts), rank);
}

// The same exchange, over a tree of sockets or over a parent communicator.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Every member's text, by the new rank.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) = 0;
};

struct Founding {
  Communicator::Parts parts;
  absl::Status refused;  // what has gone wrong on this rank so far
  Deadline deadline = Deadline::Never();
  const std::atomic<bool>* abort = nullptr;
  Secret secret = {};  // of those who are its ranks
};

absl::Status MakeTransports(Communicator::Parts* parts) {
  ASSIGN_OR_RETURN(parts->sleepers, Sleepers::OfProcess());
  ASSIGN_OR_RETURN(
      parts->transports,
      TransportSet::Create(
          {.membership = parts->membership,
           .settings = &parts->settings,
           .doorbell = &parts->sleepers->doorbell(),
           .lanes = parts->collective_lanes + Communicator::kOwnLanes,
           .nodes = static_cast<int>(parts->topology.grid.nodes.size()),
           .network = parts->network,
           .first_sequence = parts->first_sequence}));
  return absl::OkStatus();
}

// Cards are looked at only where there's a choice: it takes milliseconds.
NetworkChoice ChooseNetwork(const Topology& topology, int rank,
                            const Settings& settings) {
  NetworkChoice choice{
      .adapters = settings.fabric_adapters,
      .addresses = NetworkAddresses(topology.hosts, rank),
      .sharers = static_cast<int>(topology.local_ranks().size())};
  const HostFacts& mine = topology.hosts[static_cast<size_t>(rank)];
  if (topology.grid.nodes.size() == 1 || mine.nics.size() < 2) return choice;
  const absl::StatusOr<Hardware> hardware = Hardware::Load();
  if (hardware.ok()) choice.pci = PciOrder(topology, *hardware);
  return choice;
}

std::vector<std::string> IpTexts(const std::vector<SocketAddress>& addresses) {
  std::vector<std::string> texts;
  for (const SocketAddress& address : addresses)
    texts.push_back(address.IpText());
  return texts;
}

absl::Status ConnectTransports(const Founding& founding,
                               std::vector<std::string> addresses) {
  const Communicator::Parts& parts = founding.parts;
  TransportSet::ConnectRequest request{.deadline = founding.deadline,
                                       .abort = founding.abort};
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    const HostFacts& facts = parts.topology.hosts[rank];
    request.peers.push_back(
        {.address = std::move(addresses[rank]),
         .host = facts.host_id,
         .process = absl::StrCat(facts.hostname, ":", facts.pid)});
  }
  return parts.transports->Connect(request);
}

// Cuts them off.
std::vector<std::string> TakeFirstLines(std::vector<std::string>* texts) {
  std::vector<std::string> lines;
  for (std::string& text : *texts) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.erase(0, end + 1);
  }
  return lines;
}

// Makes and connects the transports. A rank that fails still takes part in both
// exchanges, so that all ranks hear of it at once and nobody goes on alone.
absl::Status Connect(Exchange* exchange, Founding* founding) {
  Communicator::Parts& parts = founding->parts;
  parts.collective_lanes = CollectiveLanes(parts.settings);
  parts.model.ranks_per_core = RanksPerCore(parts.topology);
  absl::Status mine = founding->refused;
  if (mine.ok()) mine = MakeTransports(&parts);
  parts.reunion =
      Reunion::Open(founding->secret, parts.membership, parts.topology);
  ASSIGN_OR_RETURN(std::vector<std::string> addresses,
                   exchange->AllGather(absl::StrCat(
                       parts.reunion->address(), "\n",
                       mine.ok() ? parts.transports->address() : "")));
  parts.reunion->SetPlaces(TakeFirstLines(&addresses));
  if (mine.ok()) mine = ConnectTransports(*founding, std::move(addresses));
  // Who waits for this rank sees that it's gone.
  if (!mine.ok()) parts.transports.reset();
  const Outcome outcome{
      .status = mine,
      .slice_bytes = mine.ok() ? parts.transports->slice_bytes() : 0};
  ASSIGN_OR_RETURN(std::vector<std::string> outcomes,
                   exchange->AllGather(OutcomeText(outcome)));
  parts.slice_bytes = CommonSlice(outcomes);
  return VerdictOf(outcomes, parts.membership, parts.topology);
}

// While a split connects, nobody makes calls on the parent. If it fails then,
// those who know leave, and the others needn't wait for them.
class ParentGuard : public Drivable {
 public:
  static absl::StatusOr<std::unique_ptr<ParentGuard>> Over(
      Communicator* parent) {
    ASSIGN_OR_RETURN(ProgressThread * thread, ProgressThread::OfProcess());
    auto guard = std::unique_ptr<ParentGuard>(new ParentGuard(parent, thread));
    thread->Add(guard.get());
    thread->Notify();
    return guard;
  }
  ~ParentGuard() override { thread_->Remove(this); }

  const std::atomic<bool>* failed() const { return &failed_; }

  Drive DriveOnce() override {
    parent_->Watch();
    if (!parent_->failure().ok()) failed_.store(true);
    return Drive::kIdle;
  }
  Drive PrepareSleep(std::vector<int>*) override { return Drive::kIdle; }

 private:
  ParentGuard(Communicator* parent, ProgressThread* thread)
      : parent_(parent), thread_(thread) {}

  Communicator* parent_;
  ProgressThread* thread_;
  std::atomic<bool> failed_ = false;
};

class BootstrapExchange : public Exchange {
 public:
  BootstrapExchange(Bootstrap* bootstrap, Deadline deadline)
      : bootstrap_(bootstrap), deadline_(deadline) {}
  absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) override {
    return bootstrap_->AllGather(mine, deadline_);
  }

 private:
  Bootstrap* bootstrap_;
  Deadline deadline_;
};

// Gathers texts of any length over a communicator: first their lengths, then
// the texts, padded to the longest. Keeps those of the members.
class ParentExchange : public Exchange {
 public:
  ParentExchange(Communicator* parent, std::vector<int> members)
      : parent_(parent), members_(std::move(members)) {}

  absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) override {
    const uint64_t bytes = mine.size();
    ASSIGN_OR_RETURN(
        std::string lengths,
        Gather({reinterpret_cast<const char*>(&bytes), sizeof(bytes)}));
    std::vector<uint64_t> sizes(parent_->membership().ranks);
    std::memcpy(sizes.data(), lengths.data(), lengths.size());
    const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
    if (longest > kMaxBlobBytes) {
      return absl::InternalError(absl::StrCat(
          "a rank announced a text of ", longest,
          " bytes to the others; at most ", kMaxBlobBytes, " are possible"));
    }
    std::string padded = mine;
    padded.resize(longest);
    ASSIGN_OR_RETURN(std::string all, Gather(padded));
    std::vector<std::string> texts;
    for (const int member : members_)
      texts.push_back(all.substr(member * longest, sizes[member]));
    return texts;
  }

  // As many bytes from every rank of the parent.
  absl::StatusOr<std::string> Gather(std::string_view mine) {
    std::string all(mine.size() * parent_->membership().ranks, '\0');
    const auto count = static_cast<int64_t>(mine.size());
    Operation operation;
    operation.call = {.collective = Collective::kAllGather,
                      .type = DataType::kUint8,
                      .input = reinterpret_cast<const std::byte*>(mine.data()),
                      .output = reinterpret_cast<std::byte*>(all.data()),
                      .input_counts = BlockCounts::Even(count),
                      .output_counts = BlockCounts::Even(count)};
    RETURN_IF_ERROR(parent_->Run(&operation));
    return all;
  }

 private:
  Communicator* parent_;
  std::vector<int> members_;
};

// Shared memory watches by itself, over who it reaches.
bool NeedsWatch(const Communicator::Parts& parts) {
  const Routes& routes = parts.transports->routes();
  return std::any_of(routes.begin(), routes.end(), [](const Route& route) {
    return route.transport != nullptr && route.transport->traits().delivers;
  });
}

std::vector<int> AllRanks(const Membership& membership) {
  std::vector<int> ranks(static_cast<size_t>(membership.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Of a communicator whose ranks have met.
absl::StatusOr<JobWatch> WatchOver(Bootstrap* bootstrap, int64_t silence_ms) {
  const Membership& me = bootstrap->membership();
  JobWatch watch{.ranks = AllRanks(me)};
  ASSIGN_OR_RETURN(watch.vigil, Vigil::Start({.tree = bootstrap->TakeTree(),
                                              .rank = me.rank,
                                              .ranks = me.ranks,
                                              .silence_ms = silence_ms}));
  return watch;
}

struct Choice {
  int32_t color = 0;
  int32_t key = 0;
};

// What all ranks of a communicator must have alike: lines "name=value".
std::string AgreementText(const Settings& settings, const LinkModel& model) {
  return absl::StrCat("version=", std::string(kVersion), "\n",
                      AgreedSettingsText(settings),
                      absl::StrReplaceAll(ModelText(model), {{" ", ""}}));
}

std::string MembersText(const std::string& members) {
  return members.empty() ? "" : absl::StrCat("members=", members, "\n");
}

// The same on all ranks: the first line that the first two ranks which differ
// have unlike.
absl::Status CheckAgreement(const std::vector<std::string>& agreements) {
  for (size_t rank = 1; rank < agreements.size(); ++rank) {
    if (agreements[rank].empty() || agreements[0].empty()) continue;
    const std::vector<std::string> first = absl::StrSplit(agreements[0], '\n');
    const std::vector<std::string> other =
        absl::StrSplit(agreements[rank], '\n');
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
      if (first[i] == other[i]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the ranks' settings differ: rank 0 has ", first[i], ", rank ", rank,
          " has ", other[i], "; set it alike on all ranks"));
    }
  }
  return absl::OkStatus();
}

// The parent's ranks of one color, by key and then by rank.
std::vector<int> MembersOf(const std::vector<Choice>& choices, int color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < choices.size(); ++rank)
    if (choices[rank].color == color) members.push_back(static_cast<int>(rank));
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[a].key < choices[b].key;
  });
  return members;
}

}  // namespace

int CollectiveLanes(const Settings& settings) {
  return settings.lanes > 0 ? static_cast<int>(settings.lanes) : kAutoLanes;
}

absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(
    const MakeRequest& request) {
  const Settings& settings = request.settings;
  const Deadline deadline = Deadline::After(settings.bootstrap_timeout_ms);
  ASSIGN_OR_RETURN(HostFacts facts, GatherHostFacts(settings.host_id));
  ASSIGN_OR_RETURN(const LinkModel model, ChosenModel(settings.tuning_file));
  BootstrapOptions options{
      .patience = {deadline, request.abort},
      .host = absl::StrCat(facts.hostname, ", pid ", getpid()),
      .agreement =
          AgreementText(settings, model) + MembersText(request.members),
      .interfaces = {.names = settings.socket_ifname,
                     .family = settings.socket_family}};
  std::vector<Socket> listeners;
  if (request.place != nullptr) {
    ASSIGN_OR_RETURN(listeners, request.place->Listeners());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Bootstrap> bootstrap,
                   Bootstrap::Connect(request.id, request.membership, options,
                                      std::move(listeners)));
  Founding founding{.parts = {.membership = request.membership,
                              .name = request.name,
                              .settings = settings,
                              .cookie = CookieOf(request.id.secret),
                              .first_sequence = request.first_sequence},
                    .deadline = deadline,
                    .abort = request.abort,
                    .secret = DeriveSecret(request.id.secret, "reunion")};
  founding.parts.model = model;
  const OwnAddresses own = OwnAddressesOf(*bootstrap, options.interfaces);
  facts.met_at = IpTexts(own.met);
  facts.addresses = IpTexts(own.chosen);
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   bootstrap->AllGather(HostFactsText(facts), deadline));
  ASSIGN_OR_RETURN(founding.parts.topology,
                   TopologyOf(all, request.membership.rank));
  founding.parts.network =
      ChooseNetwork(founding.parts.topology, request.membership.rank, settings);
  BootstrapExchange exchange(bootstrap.get(), deadline);
  RETURN_IF_ERROR(Connect(&exchange, &founding));
  if (NeedsWatch(founding.parts)) {
    ASSIGN_OR_RETURN(founding.parts.watch,
                     WatchOver(bootstrap.get(), settings.heartbeat_ms));
  }
  return Communicator::Create(std::move(founding.parts));
}

absl::StatusOr<std::unique_ptr<Communicator>> SplitCommunicator(
    Communicator* parent, const SplitRequest& request) {
  const int parent_ranks = parent->membership().ranks;
  const Choice mine{request.color, request.key};
  ParentExchange everyone(parent, {});
  ASSIGN_OR_RETURN(
      const std::string gathered,
      everyone.Gather({reinterpret_cast<const char*>(&mine), sizeof(mine)}));
  std::vector<Choice> choices(parent_ranks);
  std::memcpy(choices.data(), gathered.data(), gathered.size());
  const std::vector<int> members = MembersOf(choices, request.color);
  const auto me =
      std::find(members.begin(), members.end(), parent->membership().rank);
  Founding founding{.deadline =
                        Deadline::After(request.settings.bootstrap_timeout_ms)};
  Communicator::Parts& parts = founding.parts;
  parts.name = request.name;
  parts.settings = request.settings;
  const absl::StatusOr<LinkModel> model =
      ChosenModel(request.settings.tuning_file);
  founding.refused = model.status();
  if (model.ok()) parts.model = *model;
  parts.cookie = parent->NextCookie(request.color);
  founding.secret = parent->reunion().SecretFor(absl::StrCat(parts.cookie));
  parts.membership = {.rank = static_cast<int>(me - members.begin()),
                      .ranks = static_cast<int>(members.size())};
  ParentExchange exchange(parent, members);
  if (request.color == kNoColor) {
    // The others' three exchanges are collective over the parent.
    for (int i = 0; i < 3; ++i)
      RETURN_IF_ERROR(exchange.AllGather("").status());
    return nullptr;
  }
  std::vector<HostFacts> hosts;
  for (const int member : members)
    hosts.push_back(parent->topology().hosts[member]);
  parts.topology = MakeTopology(std::move(hosts), parts.membership.rank);
  parts.network = parent->network();
  if (parent->watch().vigil != nullptr) {
    parts.watch.vigil = parent->watch().vigil;
    for (const int member : members)
      parts.watch.ranks.push_back(parent->watch().ranks[member]);
  }
  ASSIGN_OR_RETURN(
      const std::vector<std::string> agreements,
      exchange.AllGather(model.ok() ? AgreementText(request.settings, *model)
                                    : ""));
  if (founding.refused.ok()) founding.refused = CheckAgreement(agreements);
  const auto guard = ParentGuard::Over(parent);
  if (guard.ok()) founding.abort = (*guard)->failed();
  if (founding.refused.ok()) founding.refused = guard.status();
  RETURN_IF_ERROR(Connect(&exchange, &founding));
  return Communicator::Create(std::move(parts));
}

absl::StatusOr<std::vector<std::string>> GatherTexts(Communicator* communicator,
                                                     const std::string& mine) {
  return ParentExchange(communicator, AllRanks(communicator->membership()))
      .AllGather(mine);
}

}  // namespace trnccl
