// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Little-endian encoding of the bootstrap's small messages. The reader trusts
// no byte: past the end it turns bad, stays so, and reads zeros.
//
// Thread rule: plain values.
//
//   WireWriter writer;                  WireReader reader(bytes);
//   writer.U32(rank);                   const uint32_t rank = reader.U32();
//   writer.Text(host);                  const std::string host =
//   Send(writer.bytes());                   reader.Text(kMaxHostChars);
//                                       if (!reader.Finished()) return Bad();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trnccl {

class WireWriter {
 public:
  void U8(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void U32(uint32_t value);
  void Raw(std::string_view bytes) { bytes_.append(bytes); }
  // A text or blob with its length in front.
  void Text(std::string_view text);

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Borrows the bytes that it reads.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : left_(bytes) {}

  uint8_t U8();
  uint32_t U32();
  // Exactly `count` bytes; empty if there are fewer.
  std::string_view Raw(size_t count);
  // What Text wrote; bad if longer than `max_bytes`.
  std::string_view Text(size_t max_bytes);

  bool ok() const { return ok_; }
  // All was read, nothing was missing.
  bool Finished() const { return ok_ && left_.empty(); }

 private:
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace trnccl
