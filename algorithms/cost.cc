// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/cost.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>

#include "algorithms/network.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

// Steps of all ranks that are played rather than taken for one rank's: some
// ten milliseconds.
constexpr size_t kMostStepsPlayed = 40000;
// Their operands: a step that waits for a thousand messages takes as long as
// some hundred steps.
constexpr size_t kMostOperandsPlayed = 10 * kMostStepsPlayed;

size_t StepsOf(const Program& program) {
  size_t steps = 0;
  for (const Lane& lane : program.lanes) steps += lane.steps.size();
  return steps;
}

// Of rooted collectives, only one rank's steps have many: none are counted.
size_t OperandsOf(const Program& program, const Algorithm& algorithm) {
  size_t operands = 0;
  if (SpecOf(algorithm.collective).rooted) return operands;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps) operands += step.operands.size();
  return operands;
}

size_t SendsOf(const Program& program) {
  size_t sends = 0;
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps) sends += step.send_to.size();
  }
  return sends;
}

// A few ranks that stand for all, the same wherever they're chosen.
std::set<int> CanonicalRanks(const Shape& shape) {
  return {0, shape.root, shape.ranks / 2, shape.ranks - 1};
}

// Which ranks share a node; without a grid, all.
class Nodes {
 public:
  explicit Nodes(const Shape& shape) : grid_(shape.grid) {
    if (grid_ == nullptr) return;
    node_of_.resize(static_cast<size_t>(shape.ranks));
    for (size_t node = 0; node < grid_->nodes.size(); ++node) {
      for (int rank : grid_->nodes[node]) {
        node_of_[static_cast<size_t>(rank)] = node;
      }
    }
  }

  size_t Of(int rank) const {
    return node_of_.empty() ? 0 : node_of_[static_cast<size_t>(rank)];
  }
  bool Share(int a, int b) const { return Of(a) == Of(b); }
  bool known() const { return grid_ != nullptr; }
  size_t count() const { return known() ? grid_->nodes.size() : 1; }
  // The ranks of this rank's node, where nodes are known.
  const std::vector<int>& Mates(int rank) const {
    return grid_->nodes[Of(rank)];
  }

 private:
  const Grid* grid_;
  std::vector<size_t> node_of_;  // by rank
};

}  // namespace

PlanCost::Linear& PlanCost::Linear::operator+=(const Linear& other) {
  fixed_s += other.fixed_s;
  seconds_per_chunk_byte += other.seconds_per_chunk_byte;
  return *this;
}

// What steps and messages cost, by the programs that it has been shown.
class PlanCost::Prices {
 public:
  Prices(const Nodes& nodes, const LinkModel& model)
      : nodes_(nodes), model_(model) {}

  // Counts what the rank exchanges with other nodes.
  void Show(int rank, const Program& program) {
    const Crossing own = Count(rank, program);
    Crossing& node = by_node_[nodes_.Of(rank)];
    sent_by_rank_[rank] = own.sent;
    node.sent += own.sent;
    node.received += own.received;
  }
  // As if all ranks of its node did the same.
  void ShowAlike(int rank, const Program& program) {
    const Crossing own = Count(rank, program);
    const auto ranks = static_cast<double>(nodes_.Mates(rank).size());
    Crossing& node = by_node_[nodes_.Of(rank)];
    sent_by_rank_[rank] = own.sent;
    node.sent = std::max(node.sent, own.sent * ranks);
    node.received = std::max(node.received, own.received * ranks);
  }

  bool Knows(int rank) const { return sent_by_rank_.contains(rank); }

  bool IsAcross(int rank, int peer) const { return !nodes_.Share(rank, peer); }
  double LatencyTo(int rank, int peer) const {
    return LinkTo(rank, peer).latency_s;
  }

  // From one node's taking a message to the next one's.
  double HopSeconds() const {
    return model_.step_s + model_.other_node.message_s +
           model_.other_node.latency_s + model_.other_node.receive_s;
  }

  // What the rank itself has to do for the step.
  Linear Of(const Step& step, int rank) const {
    const auto chunks = static_cast<double>(ChunkCount(step));
    Linear work = {.fixed_s = model_.step_s};
    double& rate = work.seconds_per_chunk_byte;
    if (step.operands.size() > 1) {
      rate += model_.fold_seconds_per_byte * chunks *
              static_cast<double>(step.operands.size());
    } else if (step.stores) {
      rate += model_.copy_seconds_per_byte * chunks;
    }
    for (const Operand& operand : step.operands) {
      if (operand.peer == Operand::kNoPeer) continue;
      work.fixed_s += LinkTo(rank, operand.peer).receive_s;
    }
    bool wrote_in_node = false;
    for (const int peer : step.send_to) {
      const bool in_node = nodes_.Share(rank, peer);
      const LinkModel::Link& link = LinkTo(rank, peer);
      work.fixed_s += link.message_s;
      if (!in_node) rate += link.seconds_per_byte * chunks * CrowdAt(rank);
      if (in_node && !wrote_in_node) rate += link.seconds_per_byte * chunks;
      wrote_in_node |= in_node;
    }
    return work;
  }

  double MostSent() const {
    double most = 0;
    for (const auto& [node, crossing] : by_node_) {
      most = std::max(most, crossing.sent);
    }
    return most;
  }
  Linear Incoming() const {
    double most = 0;
    for (const auto& [node, crossing] : by_node_) {
      most = std::max(most, crossing.received);
    }
    return {
        .fixed_s = most > 0 ? model_.other_node.latency_s : 0,
        .seconds_per_chunk_byte = most * model_.other_node.seconds_per_byte};
  }

 private:
  // In chunks.
  struct Crossing {
    double sent = 0;
    double received = 0;
  };

  Crossing Count(int rank, const Program& program) const {
    Crossing crossing;
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        const auto chunks = static_cast<double>(ChunkCount(step));
        for (const int peer : step.send_to) {
          if (!nodes_.Share(rank, peer)) crossing.sent += chunks;
        }
        for (const Operand& operand : step.operands) {
          if (operand.peer == Operand::kNoPeer) continue;
          if (!nodes_.Share(rank, operand.peer)) crossing.received += chunks;
        }
      }
    }
    return crossing;
  }

  const LinkModel::Link& LinkTo(int rank, int peer) const {
    return nodes_.Share(rank, peer) ? model_.same_node : model_.other_node;
  }

  // How many times longer a rank's bytes take because its node's other ranks
  // send as well.
  double CrowdAt(int rank) const {
    const double own = sent_by_rank_.at(rank);
    return own > 0 ? by_node_.at(nodes_.Of(rank)).sent / own : 1;
  }

  const Nodes& nodes_;
  const LinkModel& model_;
  std::map<int, double> sent_by_rank_;  // chunks
  std::map<size_t, Crossing> by_node_;
};

PlanCost::PlanCost(const Algorithm& algorithm, const Shape& shape,
                   const LinkModel& model)
    : ranks_per_core_(std::max(1.0, model.ranks_per_core)),
      ranks_(static_cast<size_t>(shape.ranks)) {
  const auto build = [&](int rank) {
    Shape of_rank = shape;
    of_rank.rank = rank;
    return algorithm.build(of_rank);
  };
  const Nodes nodes(shape);
  Prices prices(nodes, model);
  std::map<int, Program> canonical;
  size_t steps = 0;
  size_t operands = 0;
  for (const int rank : CanonicalRanks(shape)) {
    const Program& program = canonical[rank] = build(rank);
    steps = std::max(steps, StepsOf(program));
    operands = std::max(operands, OperandsOf(program, algorithm));
  }
  chunks_per_block_ = canonical.at(0).chunks_per_block;
  if (steps * ranks_ <= kMostStepsPlayed &&
      operands * ranks_ <= kMostOperandsPlayed) {
    Schedule schedule;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      schedule.programs.push_back(build(rank));
      prices.Show(rank, schedule.programs.back());
    }
    Play(schedule, prices);
  } else {
    for (const auto& [rank, program] : canonical) {
      if (!nodes.known()) break;
      const std::vector<int>& mates = nodes.Mates(rank);
      if (mates.size() * steps > kMostStepsPlayed) {
        prices.ShowAlike(rank, program);
      } else if (!prices.Knows(rank)) {
        for (const int mate : mates) prices.Show(mate, build(mate));
      }
    }
    std::set<size_t> sends;
    for (const auto& [rank, program] : canonical) {
      told_.push_back(Tell(program, rank, prices));
      sends.insert(SendsOf(program));
    }
    // Ranks that don't all send alike stand in a tree over the nodes: where one
    // waits, a message goes all the way up and down.
    const int hops = 2 * std::bit_width(nodes.count() - 1);
    for (Told& told : told_) {
      if (sends.size() == 1 || hops == 0) continue;
      told.waits_s += (hops - 1) * told.waits_across * prices.HopSeconds();
    }
  }
  incoming_ = prices.Incoming();
  sent_across_ = prices.MostSent() / static_cast<double>(chunks_per_block_);
}

void PlanCost::Play(const Schedule& schedule, const Prices& prices) {
  lanes_ = schedule.programs.front().lanes.size() * ranks_;
  Network network(schedule);
  while (const std::optional<Firing> firing = network.Next()) {
    const auto rank = static_cast<size_t>(firing->rank);
    size_t message = 0;
    for (const Operand& operand : firing->step->operands) {
      if (operand.peer == Operand::kNoPeer) continue;
      awaited_.push_back(
          {.step = static_cast<size_t>(network.messages()[message++].payload),
           .latency_s = prices.LatencyTo(firing->rank, operand.peer)});
    }
    network.Send(*firing, static_cast<int32_t>(played_.size()));
    played_.push_back(
        {.rank = rank,
         .lane = static_cast<size_t>(firing->lane) * ranks_ + rank,
         .work = prices.Of(*firing->step, firing->rank),
         .messages_end = awaited_.size()});
  }
}

PlanCost::Told PlanCost::Tell(const Program& program, int rank,
                              const Prices& prices) {
  Told told;
  for (const Lane& lane : program.lanes) {
    double waits = 0;
    int waits_across = 0;
    bool has_sent = true;  // others have, at the start
    for (const Step& step : lane.steps) {
      double latency = 0;
      bool across = false;
      for (const Operand& operand : step.operands) {
        if (operand.peer == Operand::kNoPeer) continue;
        latency = std::max(latency, prices.LatencyTo(rank, operand.peer));
        across |= prices.IsAcross(rank, operand.peer);
      }
      if (has_sent && latency > 0) {
        waits += latency;
        waits_across += across ? 1 : 0;
        has_sent = false;
      }
      has_sent |= !step.send_to.empty();
      told.busy += prices.Of(step, rank);
    }
    told.waits_s = std::max(told.waits_s, waits);
    told.waits_across = std::max(told.waits_across, waits_across);
  }
  return told;
}

PlanCost::SegmentCost PlanCost::PricePlayed(double chunk_bytes) const {
  std::vector<double> lane_end(lanes_);
  std::vector<double> busy(ranks_);
  std::vector<double> done(played_.size());
  SegmentCost cost;
  size_t message = 0;
  for (size_t i = 0; i < played_.size(); ++i) {
    const Played& step = played_[i];
    double& end = lane_end[step.lane];
    for (; message < step.messages_end; ++message) {
      const Awaited& awaited = awaited_[message];
      end = std::max(end, done[awaited.step] + awaited.latency_s);
    }
    const double seconds = step.work.At(chunk_bytes);
    end += seconds;
    busy[step.rank] += seconds;
    done[i] = end;
    cost.chain_s = std::max(cost.chain_s, end);
    cost.busy_s = std::max(cost.busy_s, busy[step.rank]);
  }
  return cost;
}

PlanCost::SegmentCost PlanCost::PriceTold(double chunk_bytes) const {
  SegmentCost cost;
  for (const Told& told : told_) {
    const double busy = told.busy.At(chunk_bytes);
    cost.busy_s = std::max(cost.busy_s, busy);
    cost.chain_s = std::max(cost.chain_s, busy + told.waits_s);
  }
  return cost;
}

double PlanCost::Seconds(const CallCut& cut) const {
  TRNCCL_CHECK(cut.segment_count > 0 && cut.segments_in_flight > 0);
  const double chunk_bytes =
      static_cast<double>(std::min(cut.segment_count, cut.block_count)) /
      static_cast<double>(chunks_per_block_) *
      static_cast<double>(cut.element_bytes);
  SegmentCost segment =
      told_.empty() ? PricePlayed(chunk_bytes) : PriceTold(chunk_bytes);
  segment.busy_s =
      std::max(segment.busy_s, incoming_.seconds_per_chunk_byte * chunk_bytes);
  segment.chain_s =
      std::max({segment.chain_s, segment.busy_s, incoming_.At(chunk_bytes)});
  const double further_segments =
      std::max(0.0, static_cast<double>(cut.block_count) /
                            static_cast<double>(cut.segment_count) -
                        1);
  const double apart =
      std::max(segment.busy_s, segment.chain_s / cut.segments_in_flight);
  return (segment.chain_s + further_segments * apart) * ranks_per_core_;
}

}  // namespace trnccl
