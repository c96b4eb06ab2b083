// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What libfabric offers here and which of it would be taken, for users to look
// at. Nothing is opened but the library.
//
// Thread rule: thread-safe; what it returns is a plain value.
//
//   ASSIGN_OR_RETURN(const FabricSurvey survey, SurveyFabric({}));
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transports/fabric/fabric.h"

namespace trnccl {

struct FabricSurvey {
  std::string library;  // its file
  std::string version;  // "1.17"
  // "efa on rdmap16s27-rdm", of all that can carry messages between nodes.
  std::vector<std::string> offers;
  absl::Status choice;  // why nothing is chosen
  std::string provider;
  std::vector<std::string> adapters;
  FabricProtocol protocol = FabricProtocol::kAuto;
};

// An error: there's no library.
absl::StatusOr<FabricSurvey> SurveyFabric(const fabric::PortOptions& options);

}  // namespace trnccl
