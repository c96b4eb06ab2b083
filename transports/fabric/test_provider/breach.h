// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How the test provider answers a caller that breaks a rule of libfabric or of
// EFA: one sentence on stderr, then abort(). A real provider would corrupt data
// or fail much later. What may go wrong without anyone's fault isn't a breach:
// that's an error code or an error completion.
//
// Thread rule: any thread.
//
//   if (bytes > limit) Breach("fi_inject of ", bytes, " bytes, over ", limit);
#pragma once

#include <sstream>
#include <string>

namespace trnccl::manners {

[[noreturn]] void Abort(const std::string& sentence);

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <typename... Parts>
[[noreturn]] void Breach(const Parts&... parts) {
  Abort(Text(parts...));
}

}  // namespace trnccl::manners
