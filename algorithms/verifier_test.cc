// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/verifier.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using testing::HasSubstr;

constexpr Algorithm::Proofs kEverything = {
    .in_place = true, .by_reference = true, .left_fold = true, .uneven = true};

Schedule OneLane(std::vector<std::vector<Step>> ranks, int64_t scratch_slots) {
  Schedule schedule;
  for (std::vector<Step>& steps : ranks) {
    Program& program = schedule.programs.emplace_back();
    program.scratch_slots = scratch_slots;
    program.lanes.push_back({std::move(steps)});
  }
  return schedule;
}

Span Chunk(int64_t chunk) { return {.first = chunk}; }

const Operand kInput = Operand::Of(Buffer::kInput);
const Operand kOutput = Operand::Of(Buffer::kOutput);
constexpr Place kToOutput = {Buffer::kOutput};
constexpr Place kToSlot0 = {Buffer::kScratch, 0};

// Three ranks fold along a chain, in their order, and the last tells all.
Schedule Chain() {
  const Step head = {.spans = {Chunk(0)}, .operands = {kInput}, .send_to = {1}};
  const Step middle = {.spans = {Chunk(0)},
                       .operands = {Operand::From(0), kInput},
                       .send_to = {2},
                       .partial = true};
  const Step tail = {.spans = {Chunk(0)},
                     .operands = {Operand::PartialFrom(1), kInput},
                     .stores = true,
                     .store = kToOutput,
                     .send_to = {0, 1},
                     .completes = true};
  const Step result = {.spans = {Chunk(0)},
                       .operands = {Operand::From(2)},
                       .stores = true,
                       .store = kToOutput};
  return OneLane({{head, result}, {middle, result}, {tail}}, 0);
}

Step& StepOf(Schedule& schedule, size_t rank, size_t index) {
  return schedule.programs[rank].lanes[0].steps[index];
}

Claim ClaimOf(Collective collective, int ranks) {
  return {.collective = collective, .ranks = ranks, .proofs = kEverything};
}

std::string VerdictOn(const Schedule& schedule, const Claim& claim) {
  return std::string(Verify(schedule, claim).status().message());
}

std::string VerdictOnChain(const std::function<void(Schedule&)>& change) {
  Schedule schedule = Chain();
  change(schedule);
  return VerdictOn(schedule, ClaimOf(Collective::kAllReduce, 3));
}

TEST(Verifier, AcceptsAChainAndCountsIt) {
  const auto proven = Verify(Chain(), ClaimOf(Collective::kAllReduce, 3));
  ASSERT_TRUE(proven.ok()) << proven.status();
  EXPECT_EQ(proven->rounds, 3);
  EXPECT_EQ(proven->most_chunks_sent, 2);
  EXPECT_EQ(proven->most_chunks_received, 2);
  EXPECT_EQ(proven->most_messages_sent, 2);
}

TEST(Verifier, AcceptsOneRankThatCopiesItsInput) {
  const Step copy = {.spans = {Chunk(0)},
                     .operands = {kInput},
                     .stores = true,
                     .store = kToOutput,
                     .completes = true};
  EXPECT_EQ(VerdictOn(OneLane({{copy}}, 0), ClaimOf(Collective::kReduce, 1)),
            "");
  Step unmarked = copy;
  unmarked.completes = false;
  EXPECT_THAT(
      VerdictOn(OneLane({{unmarked}}, 0), ClaimOf(Collective::kReduce, 1)),
      HasSubstr("is marked not complete, but chunk 0 gets 1 of 1"));
}

TEST(Verifier, RefusesADroppedSendAsADeadlockThatNamesWhoWaits) {
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).send_to.clear();
                StepOf(schedule, 1, 0).stores = true;
                StepOf(schedule, 1, 0).store = kToOutput;
              }),
              HasSubstr("keeps a partial result in the output"));
  EXPECT_THAT(
      VerdictOnChain(
          [](Schedule& schedule) { StepOf(schedule, 2, 0).send_to = {0}; }),
      HasSubstr("deadlock: rank 1, lane 0, step 1 waits for a message from "
                "rank 2"));
}

TEST(Verifier, RefusesStepsThatCanNotStart) {
  const Step first = {.spans = {Chunk(0)},
                      .operands = {Operand::From(1)},
                      .stores = true,
                      .store = kToOutput};
  Step second = first;
  second.operands = {Operand::From(0)};
  const std::string verdict = VerdictOn(OneLane({{first}, {second}}, 0),
                                        ClaimOf(Collective::kBroadcast, 2));
  EXPECT_THAT(verdict, HasSubstr("rank 0, lane 0, step 0 waits for a message "
                                 "from rank 1; rank 1, lane 0, step 0 waits"));
}

TEST(Verifier, RefusesSchedulesThatNeedRoomForTwoMessages) {
  const Step copy = {.spans = {Chunk(0)},
                     .operands = {kInput},
                     .stores = true,
                     .store = kToOutput,
                     .send_to = {1}};
  const Step again = {
      .spans = {Chunk(0)}, .operands = {kOutput}, .send_to = {1}};
  const Step wait = {.operands = {Operand::From(1)}};
  const Step tell = {.send_to = {0}};
  const Step take = {.spans = {Chunk(0)},
                     .operands = {Operand::From(0)},
                     .stores = true,
                     .store = kToOutput};
  const Claim claim = {.collective = Collective::kBroadcast, .ranks = 2};
  // The sender wants to be two messages ahead of what rank 1 takes.
  EXPECT_THAT(
      VerdictOn(OneLane({{copy, again, wait}, {tell, tell, take, take}}, 0),
                claim),
      HasSubstr("deadlock: rank 0, lane 0, step 1 waits for room on "
                "its link to rank 1"));
  EXPECT_EQ(
      VerdictOn(OneLane({{copy, again, wait}, {tell, take, take}}, 0), claim),
      "");
}

TEST(Verifier, RefusesAMessageThatNobodyTakes) {
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                schedule.programs[0].lanes[0].steps.pop_back();
              }),
              HasSubstr("a message from rank 2 to rank 0 on lane 0 is never"));
}

TEST(Verifier, RefusesADroppedStore) {
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 2, 0).stores = false;
              }),
              HasSubstr("rank 2 ends without output chunk 0"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 0, 1).stores = false;
              }),
              HasSubstr("rank 0, lane 0, step 1: [0] from 2: delivers its "
                        "result nowhere"));
}

TEST(Verifier, RefusesWrongMarks) {
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 2, 0).completes = false;
              }),
              HasSubstr("rank 2, lane 0, step 0: [0] partial from 1 + input => "
                        "output -> 0, 1: is marked not complete"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 0, 1).completes = true;
              }),
              HasSubstr("complete before"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).completes = true;
              }),
              HasSubstr("chunk 0 gets 2 of 3 contributions"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).partial = false;
              }),
              HasSubstr("isn't marked partial"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 2, 0).operands[0].partial = false;
              }),
              HasSubstr("disagree on whether its message is partial"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 2, 0).partial = true;
              }),
              HasSubstr("is marked partial, but chunk 0 is complete"));
}

TEST(Verifier, RefusesAFoldOutOfOrderWhereTheLeftFoldIsClaimed) {
  const auto swap = [](Schedule& schedule) {
    std::swap(StepOf(schedule, 1, 0).operands[0],
              StepOf(schedule, 1, 0).operands[1]);
  };
  EXPECT_THAT(VerdictOnChain(swap), HasSubstr("doesn't fold chunk 0 in the "
                                              "order of the ranks"));
  Schedule schedule = Chain();
  swap(schedule);
  EXPECT_EQ(
      VerdictOn(schedule, {.collective = Collective::kAllReduce, .ranks = 3}),
      "");
}

// Two ranks that exchange their inputs, each folding for itself.
Schedule Exchange(Operand first_of_0, Operand second_of_0) {
  const Step send = {.spans = {Chunk(0)}, .operands = {kInput}, .send_to = {1}};
  const Step fold = {.spans = {Chunk(0)},
                     .operands = {first_of_0, second_of_0},
                     .stores = true,
                     .store = kToOutput,
                     .completes = true};
  Step send_back = send;
  send_back.send_to = {0};
  Step fold_back = fold;
  fold_back.operands = {Operand::From(0), kInput};
  return OneLane({{send, fold}, {send_back, fold_back}}, 0);
}

TEST(Verifier, RefusesRanksThatFoldInDifferentOrders) {
  const Claim claim = {.collective = Collective::kAllReduce, .ranks = 2};
  EXPECT_EQ(VerdictOn(Exchange(kInput, Operand::From(1)), claim), "");
  EXPECT_THAT(VerdictOn(Exchange(Operand::From(1), kInput), claim),
              HasSubstr("folds chunk 0 in another order"));
}

TEST(Verifier, RefusesByReferenceWhatThePeerMayStillRead) {
  // In place, rank 0 overwrites the input that rank 1 may not have read yet.
  Claim claim = {.collective = Collective::kAllReduce, .ranks = 2};
  const Schedule schedule = Exchange(kInput, Operand::From(1));
  claim.proofs = {.in_place = true};
  EXPECT_EQ(VerdictOn(schedule, claim), "");
  claim.proofs = {.by_reference = true};
  EXPECT_EQ(VerdictOn(schedule, claim), "");
  claim.proofs = {.in_place = true, .by_reference = true};
  EXPECT_THAT(VerdictOn(schedule, claim),
              HasSubstr("may still be reading it by reference"));
}

TEST(Verifier, RefusesAContributionTwice) {
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 2, 0).operands.push_back(kInput);
              }),
              HasSubstr("folds 4 contributions into chunk 0"));
  // Rank 1 takes part twice and rank 2 not at all: a set would not notice.
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).operands.push_back(kInput);
                StepOf(schedule, 1, 0).partial = false;
                StepOf(schedule, 1, 0).completes = true;
              }),
              HasSubstr("has a contribution to chunk 0 twice"));
}

TEST(Verifier, RefusesToReadAnInputThatWasOverwrittenInPlace) {
  // Copies its input to the output first, then uses the input again.
  const Step keep = {.spans = {Chunk(0)},
                     .operands = {kInput},
                     .stores = true,
                     .store = kToOutput};
  Schedule schedule = Exchange(kInput, Operand::From(1));
  auto& steps = schedule.programs[0].lanes[0].steps;
  steps.insert(steps.begin(), keep);
  Claim claim = {.collective = Collective::kAllReduce, .ranks = 2};
  EXPECT_EQ(VerdictOn(schedule, claim), "");
  claim.proofs.in_place = true;
  EXPECT_THAT(VerdictOn(schedule, claim),
              HasSubstr("in place was overwritten by output chunk 0"));
}

TEST(Verifier, AllToAllInPlaceOverlapsByPosition) {
  const auto program = [](int rank) {
    const int peer = 1 - rank;
    return std::vector<Step>{{.spans = {Chunk(3 * rank)},
                              .operands = {kInput},
                              .stores = true,
                              .store = kToOutput},
                             {.spans = {Chunk(2 * rank + peer)},
                              .operands = {kInput},
                              .send_to = {peer}},
                             {.spans = {Chunk(2 * peer + rank)},
                              .operands = {Operand::From(peer)},
                              .stores = true,
                              .store = kToOutput}};
  };
  Claim claim = {.collective = Collective::kAllToAll, .ranks = 2};
  claim.proofs.in_place = true;
  EXPECT_EQ(VerdictOn(OneLane({program(0), program(1)}, 0), claim), "");
  // Receiving first, rank 1 overwrites what it has yet to send.
  auto hasty = program(1);
  std::swap(hasty[1], hasty[2]);
  const Schedule schedule = OneLane({program(0), hasty}, 0);
  EXPECT_THAT(VerdictOn(schedule, claim),
              HasSubstr("in place was overwritten"));
  claim.proofs.in_place = false;
  EXPECT_EQ(VerdictOn(schedule, claim), "");
}

TEST(Verifier, RefusesOtherChunksThanWereSent) {
  Schedule schedule = Chain();
  for (Program& program : schedule.programs) {
    program.chunks_per_block = 2;
    for (Step& step : program.lanes[0].steps) step.spans = {{.chunks = 2}};
  }
  const Claim claim = ClaimOf(Collective::kAllReduce, 3);
  EXPECT_EQ(VerdictOn(schedule, claim), "");
  StepOf(schedule, 1, 0).spans = {Chunk(1), Chunk(0)};
  EXPECT_THAT(VerdictOn(schedule, claim),
              HasSubstr("takes other chunks than rank 0 sent"));
  StepOf(schedule, 1, 0).spans = {Chunk(0), Chunk(1)};
  EXPECT_EQ(VerdictOn(schedule, claim), "");
  StepOf(schedule, 1, 0).spans = {{.first = 1, .chunks = 2}};
  EXPECT_THAT(VerdictOn(schedule, claim),
              HasSubstr("takes other chunks than rank 0 sent"));
  StepOf(schedule, 1, 0).spans = {Chunk(1), Chunk(1)};
  EXPECT_THAT(VerdictOn(schedule, claim), HasSubstr("names chunk 1 twice"));
}

TEST(Verifier, RefusesWhatIsNotInABuffer) {
  Claim claim = {.collective = Collective::kBroadcast, .ranks = 2, .root = 0};
  const Step copy = {.spans = {Chunk(0)},
                     .operands = {kInput},
                     .stores = true,
                     .store = kToOutput};
  EXPECT_THAT(VerdictOn(OneLane({{copy}, {copy}}, 0), claim),
              HasSubstr("rank 1, lane 0, step 0: [0] input => output: reads "
                        "input chunk 0, which this rank doesn't bring"));
  claim.collective = Collective::kGather;
  Step wrong = copy;
  wrong.spans = {Chunk(1)};
  EXPECT_THAT(VerdictOn(OneLane({{copy}, {wrong}}, 0), claim),
              HasSubstr("which isn't in this rank's output"));
}

TEST(Verifier, RefusesBadUseOfScratch) {
  const auto verdict = [](Operand read, Place store, int64_t slots) {
    const Step keep = {.spans = {Chunk(0)},
                       .operands = {kInput},
                       .stores = true,
                       .store = store};
    const Step back = {.spans = {Chunk(0)},
                       .operands = {read},
                       .stores = true,
                       .store = kToOutput};
    return VerdictOn(OneLane({{keep, back}}, slots),
                     ClaimOf(Collective::kBroadcast, 1));
  };
  EXPECT_EQ(verdict(Operand::Slot(0), kToSlot0, 1), "");
  EXPECT_THAT(verdict(Operand::Slot(1), kToSlot0, 2),
              HasSubstr("reads chunk 0 in slot 1 before it's written"));
  EXPECT_THAT(verdict(Operand::Slot(0), kToSlot0, 0),
              HasSubstr("but there are 0 scratch slots"));
  for (const int64_t slot : {INT64_MIN, int64_t{-1}, INT64_MAX}) {
    EXPECT_THAT(verdict(Operand::Slot(slot), kToSlot0, 1),
                HasSubstr("but there are 1 scratch slots"));
    EXPECT_THAT(verdict(Operand::Slot(0), {Buffer::kScratch, slot}, 1),
                HasSubstr("but there are 1 scratch slots"));
  }
  EXPECT_THAT(verdict(Operand::Slot(0), {Buffer::kInput}, 0),
              HasSubstr("writes its input"));
}

TEST(Verifier, RefusesAnotherChunkThanTheSlotHolds) {
  Schedule schedule = OneLane({{{.spans = {{.chunks = 2}},
                                 .operands = {kInput},
                                 .stores = true,
                                 .store = kToSlot0},
                                {.spans = {Chunk(1), Chunk(0)},
                                 .operands = {Operand::Slot(0)},
                                 .stores = true,
                                 .store = kToOutput}}},
                              3);
  schedule.programs[0].chunks_per_block = 2;
  EXPECT_THAT(VerdictOn(schedule, ClaimOf(Collective::kBroadcast, 1)),
              HasSubstr("reads chunk 1 in slot 0, which holds chunk 0"));
  StepOf(schedule, 0, 1) = {.spans = {Chunk(0)},
                            .operands = {Operand::Slot(0)},
                            .stores = true,
                            .store = {Buffer::kScratch, 1}};
  EXPECT_THAT(VerdictOn(schedule, ClaimOf(Collective::kBroadcast, 1)),
              HasSubstr("rank 0 ends without output chunk 0"));
  StepOf(schedule, 0, 1).spans = {{.chunks = 2}};
  EXPECT_THAT(VerdictOn(schedule, ClaimOf(Collective::kBroadcast, 1)),
              HasSubstr("reads slots that it writes at another position"));
}

TEST(Verifier, RefusesLanesThatShareWhatOneOfThemWrites) {
  const Step keep = {.spans = {Chunk(0)},
                     .operands = {kInput},
                     .stores = true,
                     .store = kToSlot0};
  const Step copy = {.spans = {Chunk(0)},
                     .operands = {kInput},
                     .stores = true,
                     .store = kToOutput};
  Schedule schedule = OneLane({{keep}}, 1);
  schedule.programs[0].lanes.push_back({{copy}});
  Claim claim = {.collective = Collective::kBroadcast, .ranks = 1};
  // Both read the input, which nobody writes.
  EXPECT_EQ(VerdictOn(schedule, claim), "");
  claim.proofs.in_place = true;
  EXPECT_THAT(VerdictOn(schedule, claim), HasSubstr("as does lane 0"));
  claim.proofs.in_place = false;
  schedule.programs[0].lanes[1].steps[0].operands = {Operand::Slot(0)};
  EXPECT_THAT(VerdictOn(schedule, claim),
              HasSubstr("rank 0, lane 1, step 0: [0] slot 0 => output: touches "
                        "chunk 0 in slot 0, as does lane 0"));
}

TEST(Verifier, RefusesAFoldWhereNothingIsReduced) {
  const Step send = {
      .spans = {Chunk(0)}, .operands = {kInput, kInput}, .send_to = {1}};
  const Step take = {.spans = {Chunk(0)},
                     .operands = {Operand::From(0)},
                     .stores = true,
                     .store = kToOutput};
  EXPECT_THAT(VerdictOn(OneLane({{send}, {take}}, 0),
                        ClaimOf(Collective::kBroadcast, 2)),
              HasSubstr("nothing is reduced"));
}

TEST(Verifier, ABarrierNeedsEveryoneToHearOfAll) {
  const auto program = [](int rank, int ranks) {
    std::vector<Step> steps;
    for (int distance = 1; distance < ranks; distance *= 2) {
      steps.push_back({.send_to = {(rank + distance) % ranks}});
      steps.push_back(
          {.operands = {Operand::From((rank + ranks - distance) % ranks)}});
    }
    return steps;
  };
  std::vector<std::vector<Step>> ranks;
  for (int rank = 0; rank < 5; ++rank) ranks.push_back(program(rank, 5));
  const Claim claim = ClaimOf(Collective::kBarrier, 5);
  const auto proven = Verify(OneLane(ranks, 0), claim);
  ASSERT_TRUE(proven.ok()) << proven.status();
  EXPECT_EQ(proven->rounds, 3);
  for (auto& steps : ranks) steps.resize(4);  // a round less
  EXPECT_THAT(VerdictOn(OneLane(ranks, 0), claim),
              HasSubstr("rank 0 ends without having heard of rank 1"));
}

TEST(Verifier, RefusesMalformedPrograms) {
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).send_to = {1};
              }),
              HasSubstr("has peer 1"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 2, 0).send_to = {0, 1, 0};
              }),
              HasSubstr("has peer 0 twice"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).operands[0].peer = 3;
              }),
              HasSubstr("has peer 3"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).spans = {Chunk(1)};
              }),
              HasSubstr("but there are 1"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                StepOf(schedule, 1, 0).operands.clear();
              }),
              HasSubstr("has no operand"));
  EXPECT_THAT(VerdictOnChain([](Schedule& schedule) {
                schedule.programs[1].scratch_slots = 1;
              }),
              HasSubstr("ranks 0 and 1 differ"));
  EXPECT_THAT(
      VerdictOnChain([](Schedule& schedule) { schedule.programs.pop_back(); }),
      HasSubstr("2 programs for 3 ranks"));
}

}  // namespace
}  // namespace trnccl
