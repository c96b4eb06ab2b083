// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/catalog.h"

#include "algorithms/binomial.h"
#include "algorithms/bruck.h"
#include "algorithms/chain.h"
#include "algorithms/direct.h"
#include "algorithms/dissemination.h"
#include "algorithms/halving.h"
#include "algorithms/hierarchical.h"
#include "algorithms/pairwise.h"
#include "algorithms/pat.h"
#include "algorithms/recursive_doubling.h"
#include "algorithms/ring.h"
#include "algorithms/tree.h"

namespace trnccl {
namespace {

using enum Collective;
using Proofs = Algorithm::Proofs;

constexpr Proofs kInPlace = {.in_place = true};
constexpr Proofs kByReference = {.in_place = true, .by_reference = true};
constexpr Proofs kByReferenceUneven = {
    .in_place = true, .by_reference = true, .uneven = true};
constexpr Proofs kInPlaceUneven = {.in_place = true, .uneven = true};
constexpr Proofs kStrict = {
    .in_place = true, .by_reference = true, .left_fold = true};
constexpr Proofs kStrictUneven = {
    .in_place = true, .by_reference = true, .left_fold = true, .uneven = true};

bool Always(const Shape&) { return true; }

constexpr Algorithm kCatalog[] = {
    {"one_step",
     kAllReduce,
     {.in_place = true, .left_fold = true},
     Always,
     direct::AllReduceOneStep},
    {"two_step", kAllReduce, kStrict, Always, direct::AllReduceTwoStep},
    {"ring", kAllReduce, kByReference, Always, ring::AllReduce},
    {"chain", kAllReduce, kStrict, Always, chain::RankOrderAllReduce},
    {"double_tree", kAllReduce, kByReference, Always,
     tree::DoubleTreeAllReduce},
    {"halving_doubling", kAllReduce, kByReference, Always, halving::AllReduce},
    {"recursive_doubling", kAllReduce, kInPlace, Always,
     recursive_doubling::AllReduce},
    {"hierarchical_doubling", kAllReduce, kInPlace, hierarchical::HasLevels,
     hierarchical::AllReduce<recursive_doubling::AllReduce>},
    {"hierarchical_halving", kAllReduce, kByReference, hierarchical::HasLevels,
     hierarchical::AllReduce<halving::AllReduce>},
    {"hierarchical_pat", kAllReduce, kByReference, hierarchical::HasLevels,
     hierarchical::AllReduce<pat::AllReduce>},
    {"hierarchical_tree", kAllReduce, kByReference, hierarchical::HasLevels,
     hierarchical::AllReduce<tree::DoubleTreeAllReduce>},
    {"hierarchical_ring", kAllReduce, kByReference, hierarchical::HasLevels,
     hierarchical::AllReduce<ring::AllReduce>},

    {"direct", kReduceScatter, kStrictUneven, Always, direct::ReduceScatter},
    {"ring", kReduceScatter, kByReferenceUneven, Always, ring::ReduceScatter},
    {"halving", kReduceScatter, kByReferenceUneven, Always,
     halving::ReduceScatter},
    {"pat", kReduceScatter, kByReferenceUneven, Always, pat::ReduceScatter},
    {"hierarchical_direct", kReduceScatter, kByReferenceUneven,
     hierarchical::HasLevels,
     hierarchical::ReduceScatter<direct::ReduceScatter>},
    {"hierarchical_pat", kReduceScatter, kByReferenceUneven,
     hierarchical::HasLevels, hierarchical::ReduceScatter<pat::ReduceScatter>},
    {"hierarchical_ring", kReduceScatter, kByReferenceUneven,
     hierarchical::HasLevels, hierarchical::ReduceScatter<ring::ReduceScatter>},

    {"direct", kAllGather, kByReferenceUneven, Always, direct::AllGather},
    {"ring", kAllGather, kByReferenceUneven, Always, ring::AllGather},
    {"doubling", kAllGather, kByReferenceUneven, Always, halving::AllGather},
    {"bruck", kAllGather, kByReferenceUneven, Always, bruck::AllGather},
    {"pat", kAllGather, kByReferenceUneven, Always, pat::AllGather},
    {"hierarchical_direct", kAllGather, kByReferenceUneven,
     hierarchical::HasLevels, hierarchical::AllGather<direct::AllGather>},
    {"hierarchical_pat", kAllGather, kByReferenceUneven,
     hierarchical::HasLevels, hierarchical::AllGather<pat::AllGather>},
    {"hierarchical_ring", kAllGather, kByReferenceUneven,
     hierarchical::HasLevels, hierarchical::AllGather<ring::AllGather>},

    {"direct", kBroadcast, kByReference, Always, direct::Broadcast},
    {"binomial", kBroadcast, kByReference, Always, binomial::Broadcast},
    {"binary", kBroadcast, kByReference, Always, tree::Broadcast},
    {"chain", kBroadcast, kByReference, Always, chain::Broadcast},
    {"hierarchical_binomial", kBroadcast, kByReference, hierarchical::HasLevels,
     hierarchical::Broadcast<binomial::Broadcast>},
    {"hierarchical_chain", kBroadcast, kByReference, hierarchical::HasLevels,
     hierarchical::Broadcast<chain::Broadcast>},
    {"hierarchical_scatter_gather", kBroadcast, kByReference,
     hierarchical::HasNodes, hierarchical::BroadcastScatterGather},

    {"direct", kReduce, kStrict, Always, direct::Reduce},
    {"binomial", kReduce, kByReference, Always, binomial::Reduce},
    {"binary", kReduce, kByReference, Always, tree::Reduce},
    {"chain", kReduce, kByReference, Always, chain::Reduce},
    {"rank_chain", kReduce, kStrict, Always, chain::RankOrderReduce},
    {"hierarchical_binomial", kReduce, kByReference, hierarchical::HasLevels,
     hierarchical::Reduce<binomial::Reduce>},
    {"hierarchical_chain", kReduce, kByReference, hierarchical::HasLevels,
     hierarchical::Reduce<chain::Reduce>},
    {"hierarchical_scatter_gather", kReduce, kByReference,
     hierarchical::HasNodes, hierarchical::ReduceScatterGather},

    {"direct", kAllToAll, kInPlaceUneven, Always, direct::AllToAll},
    {"pairwise", kAllToAll, kInPlaceUneven, Always, pairwise::AllToAll},
    {"bruck", kAllToAll, kInPlace, Always, bruck::AllToAll},
    {"hierarchical", kAllToAll, kInPlace, hierarchical::HasLevels,
     hierarchical::AllToAll},

    {"direct", kGather, kByReference, Always, direct::Gather},
    {"binomial", kGather, kByReference, Always, binomial::Gather},

    {"direct", kScatter, kByReference, Always, direct::Scatter},
    {"binomial", kScatter, kByReference, Always, binomial::Scatter},

    {"dissemination", kBarrier, kByReference, Always, dissemination::Barrier},
};

Collective EvenSister(Collective collective) {
  switch (collective) {
    case kAllGatherV:
      return kAllGather;
    case kReduceScatterV:
      return kReduceScatter;
    case kAllToAllV:
      return kAllToAll;
    default:
      return collective;
  }
}

}  // namespace

std::span<const Algorithm> Catalog() { return kCatalog; }

const Algorithm* FindAlgorithm(Collective collective, std::string_view name) {
  const Collective served_by = EvenSister(collective);
  for (const Algorithm& algorithm : kCatalog) {
    if (algorithm.collective != served_by || algorithm.name != name) continue;
    if (served_by != collective && !algorithm.proofs.uneven) return nullptr;
    return &algorithm;
  }
  return nullptr;
}

}  // namespace trnccl
