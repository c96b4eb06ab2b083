// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/cost.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "algorithms/network.h"
#include "algorithms/schedule.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

// Steps of all ranks that are played rather than taken for one rank's: some
// ten milliseconds.
constexpr size_t kMostStepsPlayed = 40000;

// Of one segment.
struct SegmentCost {
  double chain_s = 0;  // from start to end
  double busy_s = 0;   // of the busiest rank
};

class Pricer {
 public:
  Pricer(const PlanShape& plan, const LinkModel& model)
      : plan_(plan), model_(model) {
    if (plan.shape.grid == nullptr) return;
    node_of_.resize(static_cast<size_t>(plan.shape.ranks));
    for (size_t node = 0; node < plan.shape.grid->nodes.size(); ++node) {
      for (int rank : plan.shape.grid->nodes[node]) {
        node_of_[static_cast<size_t>(rank)] = node;
      }
    }
  }

  SegmentCost Price() const {
    size_t steps = 0;
    std::vector<Program> programs;
    for (int rank : CanonicalRanks()) {
      programs.push_back(Build(rank));
      size_t own = 0;
      for (const Lane& lane : programs.back().lanes) own += lane.steps.size();
      steps = std::max(steps, own);
    }
    if (steps * static_cast<size_t>(plan_.shape.ranks) <= kMostStepsPlayed) {
      return PriceAllRanks();
    }
    SegmentCost cost;
    size_t i = 0;
    for (int rank : CanonicalRanks()) {
      const SegmentCost own = PriceInStep(programs[i++], rank);
      cost.chain_s = std::max(cost.chain_s, own.chain_s);
      cost.busy_s = std::max(cost.busy_s, own.busy_s);
    }
    return cost;
  }

 private:
  // A few ranks that stand for all, the same wherever they're chosen.
  std::set<int> CanonicalRanks() const {
    const int ranks = plan_.shape.ranks;
    return {0, plan_.shape.root, ranks / 2, ranks - 1};
  }

  Program Build(int rank) const {
    Shape shape = plan_.shape;
    shape.rank = rank;
    return plan_.algorithm->build(shape);
  }

  bool SameNode(int a, int b) const {
    return node_of_.empty() ||
           node_of_[static_cast<size_t>(a)] == node_of_[static_cast<size_t>(b)];
  }

  double LatencyTo(int rank, int peer) const {
    return SameNode(rank, peer) ? model_.same_node.latency_s
                                : model_.other_node.latency_s;
  }

  // What the rank itself has to do for the step.
  double BusySeconds(const Step& step, int rank,
                     int64_t chunks_per_block) const {
    const auto segment =
        static_cast<double>(std::min(plan_.segment_count, plan_.block_count));
    const double bytes = segment / static_cast<double>(chunks_per_block) *
                         static_cast<double>(ChunkCount(step)) *
                         static_cast<double>(plan_.element_bytes);
    double seconds = model_.step_s;
    if (step.operands.size() > 1) {
      seconds += model_.fold_seconds_per_byte * bytes *
                 static_cast<double>(step.operands.size());
    } else if (step.stores) {
      seconds += model_.copy_seconds_per_byte * bytes;
    }
    bool wrote_in_node = false;
    for (int peer : step.send_to) {
      const bool in_node = SameNode(rank, peer);
      const LinkModel::Link& link =
          in_node ? model_.same_node : model_.other_node;
      seconds += link.message_s;
      if (!in_node || !wrote_in_node) seconds += link.seconds_per_byte * bytes;
      wrote_in_node |= in_node;
    }
    return seconds;
  }

  SegmentCost PriceAllRanks() const {
    const Shape& shape = plan_.shape;
    Schedule schedule;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      schedule.programs.push_back(Build(rank));
    }
    const int64_t chunks_per_block = schedule.programs[0].chunks_per_block;
    const auto ranks = static_cast<size_t>(shape.ranks);
    std::vector<double> lane_end(ranks * schedule.programs[0].lanes.size());
    std::vector<double> busy(ranks);
    std::vector<double> sent;  // when each payload was written
    Network network(schedule);
    while (const std::optional<Firing> firing = network.Next()) {
      const auto rank = static_cast<size_t>(firing->rank);
      double& end = lane_end[static_cast<size_t>(firing->lane) * ranks + rank];
      size_t message = 0;
      for (const Operand& operand : firing->step->operands) {
        if (operand.peer == Operand::kNoPeer) continue;
        const auto payload =
            static_cast<size_t>(network.messages()[message++].payload);
        end = std::max(end,
                       sent[payload] + LatencyTo(firing->rank, operand.peer));
      }
      const double seconds =
          BusySeconds(*firing->step, firing->rank, chunks_per_block);
      end += seconds;
      busy[rank] += seconds;
      network.Send(*firing, static_cast<int32_t>(sent.size()));
      sent.push_back(end);
    }
    const double busiest = *std::ranges::max_element(busy);
    const double last =
        lane_end.empty() ? 0 : *std::ranges::max_element(lane_end);
    return {.chain_s = std::max(last, busiest), .busy_s = busiest};
  }

  SegmentCost PriceInStep(const Program& program, int rank) const {
    SegmentCost cost;
    double longest_wait = 0;
    for (const Lane& lane : program.lanes) {
      double waits = 0;
      bool has_sent = true;  // others have, at the start
      for (const Step& step : lane.steps) {
        double latency = 0;
        for (const Operand& operand : step.operands) {
          if (operand.peer == Operand::kNoPeer) continue;
          latency = std::max(latency, LatencyTo(rank, operand.peer));
        }
        if (has_sent && latency > 0) {
          waits += latency;
          has_sent = false;
        }
        has_sent |= !step.send_to.empty();
        cost.busy_s += BusySeconds(step, rank, program.chunks_per_block);
      }
      longest_wait = std::max(longest_wait, waits);
    }
    cost.chain_s = cost.busy_s + longest_wait;
    return cost;
  }

  const PlanShape& plan_;
  const LinkModel& model_;
  std::vector<size_t> node_of_;  // by rank; empty: all in one
};

}  // namespace

double CostSeconds(const PlanShape& plan, const LinkModel& model) {
  TRNCCL_CHECK(plan.segment_count > 0 && plan.segments_in_flight > 0);
  const SegmentCost segment = Pricer(plan, model).Price();
  const double further_segments =
      std::max(0.0, static_cast<double>(plan.block_count) /
                            static_cast<double>(plan.segment_count) -
                        1);
  const double apart =
      std::max(segment.busy_s, segment.chain_s / plan.segments_in_flight);
  return (segment.chain_s + further_segments * apart) *
         std::max(1.0, model.ranks_per_core);
}

}  // namespace trnccl
