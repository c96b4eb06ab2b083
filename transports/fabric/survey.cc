// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/survey.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/library.h"
#include "transports/fabric/provider.h"

namespace trnccl {

absl::StatusOr<FabricSurvey> SurveyFabric(const fabric::PortOptions& options) {
  ASSIGN_OR_RETURN(const fabric::FabricLibrary* library,
                   fabric::FabricLibrary::Load(options.library));
  const uint32_t version = library->version();
  FabricSurvey survey{
      .library = library->path,
      .version = absl::StrCat(FI_MAJOR(version), ".", FI_MINOR(version)),
      .offers = fabric::ListOffers(*library, options)};
  const absl::StatusOr<fabric::Provider> provider =
      fabric::ChooseProvider(*library, options);
  survey.choice = provider.status();
  if (!provider.ok()) return survey;
  survey.provider = provider->name;
  survey.protocol =
      provider->writes ? FabricProtocol::kWrite : FabricProtocol::kTagged;
  for (const fabric::Info& rail : provider->rails)
    survey.adapters.emplace_back(rail->domain_attr->name);
  return survey;
}

}  // namespace trnccl
