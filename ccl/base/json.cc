// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/json.h"

#include "absl/strings/str_cat.h"

namespace trnccl {

std::string JsonText(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (byte < 0x20 || byte >= 0x7f) {
      absl::StrAppend(&quoted, "\\u", absl::Hex(byte, absl::kZeroPad4));
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

}  // namespace trnccl
