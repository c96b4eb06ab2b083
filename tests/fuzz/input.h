// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The bytes of one run of a harness, taken piece by piece: first what chooses
// the case, then what a hostile peer sends. Past the end there are zeros.
//
// Not here: how the bytes are made (driver.cc, or libFuzzer).
//
// Thread rule: thread-compatible.
//
//   Input input(data, size);
//   if (input.Take<uint8_t>() % 2 == 0) Parse(input.Rest());
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace trnccl::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }

  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value = {};
    const std::string_view bytes = TakeBytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // At most so many.
  std::string_view TakeBytes(size_t count) {
    const std::string_view bytes = left_.substr(0, count);
    left_.remove_prefix(bytes.size());
    return bytes;
  }
  // A piece with its length in front, up to 255 bytes.
  std::string_view TakePiece() { return TakeBytes(Take<uint8_t>()); }
  std::string_view Rest() { return std::exchange(left_, {}); }

 private:
  std::string_view left_;
};

}  // namespace trnccl::fuzz
