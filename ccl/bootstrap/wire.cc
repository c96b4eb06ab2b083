// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/wire.h"

namespace trnccl {

void WireWriter::U32(uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) {
    U8(static_cast<uint8_t>(value >> shift));
  }
}

void WireWriter::Text(std::string_view text) {
  U32(static_cast<uint32_t>(text.size()));
  Raw(text);
}

std::string_view WireReader::Raw(size_t count) {
  if (!ok_ || count > left_.size()) {
    ok_ = false;
    return {};
  }
  const std::string_view bytes = left_.substr(0, count);
  left_.remove_prefix(count);
  return bytes;
}

uint8_t WireReader::U8() {
  const std::string_view byte = Raw(1);
  return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
}

uint32_t WireReader::U32() {
  uint32_t value = 0;
  const std::string_view bytes = Raw(4);
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

std::string_view WireReader::Text(size_t max_bytes) {
  const uint32_t size = U32();
  if (size > max_bytes) ok_ = false;
  return Raw(size);
}

}  // namespace trnccl
