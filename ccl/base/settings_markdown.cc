// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <cstdio>

#include "ccl/base/settings.h"

int main() { std::fputs(trnccl::SettingsMarkdown().c_str(), stdout); }
