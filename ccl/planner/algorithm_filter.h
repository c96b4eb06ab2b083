// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// TRNCCL_ALGORITHM: which algorithms may be chosen. Entries apart by ";" are
// "collective:names" or "names" for every collective that has one of them;
// names apart by ","; "^" before the names forbids them instead.
//
//   all_reduce:ring,two_step;all_gather:^bruck
//   direct
//
// An unknown collective or algorithm is an error, and so is a collective that
// is named and left without any.
//
// Thread rule: immutable once parsed.
//
//   ASSIGN_OR_RETURN(auto filter, AlgorithmFilter::Parse("^bruck"));
//   if (filter.Allows(algorithm)) ...
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/catalog.h"

namespace trnccl {

class AlgorithmFilter {
 public:
  static absl::StatusOr<AlgorithmFilter> Parse(std::string_view text);

  bool Allows(const Algorithm& algorithm) const;
  // Whether it lists what is to be used for the collective, or its even sister.
  bool Names(Collective collective) const;

 private:
  std::vector<const Algorithm*> named_;
  std::vector<const Algorithm*> forbidden_;
};

}  // namespace trnccl
