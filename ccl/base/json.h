// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Text as JSON writes it. Reading JSON is no part of the library.
//
// Thread rule: pure.
//
//   absl::StrCat("{\"name\": ", JsonText(name), "}")
#pragma once

#include <string>
#include <string_view>

namespace trnccl {

// In quotes, in ASCII: bytes outside it are written by their number.
std::string JsonText(std::string_view text);

}  // namespace trnccl
