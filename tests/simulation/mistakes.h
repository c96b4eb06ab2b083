// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a rank may call in place of what all were to call.
//
// Thread rule: pure functions.
//
//   if (MakeMistake(ranks, &draw, &submission)) ... it differs now
#pragma once

#include "tests/simulation/scenario.h"

namespace trnccl {

// Changes a collective of the submission so that its fingerprint differs; false
// if there's none in it.
bool MakeMistake(int ranks, Draw* draw, SimSubmission* submission);

}  // namespace trnccl
