// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "ccl/kernels/fold_oracle.h"

namespace trnccl {
namespace {

constexpr size_t kMargin = 64;
constexpr uint8_t kCanary = 0xa5;

// Bytes at an odd alignment between two margins of canaries.
class GuardedBytes {
 public:
  GuardedBytes(size_t bytes, size_t misalignment)
      : offset_(kMargin + misalignment),
        bytes_(bytes),
        storage_(offset_ + bytes + kMargin, kCanary) {}

  uint8_t* data() { return storage_.data() + offset_; }
  size_t bytes() const { return bytes_; }
  bool intact() const {
    const auto is_canary = [](uint8_t byte) { return byte == kCanary; };
    return std::all_of(storage_.begin(), storage_.begin() + offset_,
                       is_canary) &&
           std::all_of(storage_.end() - kMargin, storage_.end(), is_canary);
  }

 private:
  size_t offset_;
  size_t bytes_;
  std::vector<uint8_t> storage_;
};

// Small numbers, whose folds stay exact or nearly so.
template <class T>
void FillSmall(uint8_t* data, size_t bytes, std::mt19937_64& random) {
  for (size_t i = 0; i < bytes / sizeof(T); ++i) {
    const T value =
        static_cast<T>(static_cast<double>(random() % 4001) / 16 - 125);
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
}

// Half the time any bits at all: NaN, infinity, subnormals, extremes.
void Fill(DataType type, GuardedBytes& bytes, std::mt19937_64& random) {
  const bool is_small = random() % 2 == 0;
  if (is_small && (type == DataType::kFloat32 || type == DataType::kComplex64))
    return FillSmall<float>(bytes.data(), bytes.bytes(), random);
  if (is_small && (type == DataType::kFloat64 || type == DataType::kComplex128))
    return FillSmall<double>(bytes.data(), bytes.bytes(), random);
  const uint64_t ordinary = is_small && IsNarrowFloat(type) ? 0xbf : 0xff;
  for (size_t i = 0; i < bytes.bytes(); ++i)
    bytes.data()[i] = static_cast<uint8_t>(random() & ordinary);
}

// The partials of a minimum or maximum are values of the type itself.
void KeepPartials(const FoldSpec& spec, GuardedBytes& bytes) {
  if (spec.op != ReduceOp::kMin && spec.op != ReduceOp::kMax) return;
  for (size_t i = 0; i < bytes.bytes(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, bytes.data() + i, sizeof(value));
    value = static_cast<float>(
        DecodeNarrow(spec.type, EncodeNarrow(spec.type, value)));
    std::memcpy(bytes.data() + i, &value, sizeof(value));
  }
}

}  // namespace

std::string FirstDifference(DataType type, const std::vector<uint8_t>& expected,
                            const uint8_t* actual) {
  size_t lane = ElementBytes(type);
  if (type == DataType::kComplex64 || type == DataType::kComplex128) lane /= 2;
  const auto is_nan = [&](const uint8_t* bytes) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes, lane);
    if (IsNarrowFloat(type))
      return std::isnan(DecodeNarrow(type, static_cast<uint32_t>(bits)));
    if (type == DataType::kFloat32 || type == DataType::kComplex64)
      return (bits & 0x7fffffff) > 0x7f800000;
    if (type == DataType::kFloat64 || type == DataType::kComplex128)
      return (bits & INT64_MAX) > 0x7ff0000000000000;
    return false;
  };
  for (size_t i = 0; i < expected.size(); i += lane) {
    if (std::memcmp(&expected[i], actual + i, lane) == 0) continue;
    if (is_nan(&expected[i]) && is_nan(actual + i)) continue;
    uint64_t want = 0;
    uint64_t got = 0;
    std::memcpy(&want, &expected[i], lane);
    std::memcpy(&got, actual + i, lane);
    char text[120];
    std::snprintf(text, sizeof(text), "%s number %zu is %#llx instead of %#llx",
                  std::string(Name(type)).c_str(), i / lane,
                  static_cast<unsigned long long>(got),
                  static_cast<unsigned long long>(want));
    return text;
  }
  return "";
}

std::string CheckRandomFold(const RandomFold& c, const FoldUnderTest& fold) {
  std::mt19937_64 random(c.seed);
  const auto coin = [&] { return random() % 2 == 0; };
  const bool narrow = IsNarrowFloat(c.spec.type);
  const auto make = [&](bool wide) {
    return GuardedBytes(c.count * (wide ? 4 : ElementBytes(c.spec.type)),
                        random() % 16);
  };

  std::vector<GuardedBytes> inputs;
  std::vector<FoldOperand> operands;
  for (size_t k = 0; k < c.operands; ++k) {
    const bool wide = narrow && random() % 4 == 0;
    inputs.push_back(make(wide));
    Fill(wide ? DataType::kFloat32 : c.spec.type, inputs.back(), random);
    if (wide) KeepPartials(c.spec, inputs.back());
    // An operand that isn't raw was prepared by whoever sent it.
    const bool raw = coin();
    if (!raw && c.spec.type == DataType::kBool)
      for (size_t i = 0; i < c.count; ++i) inputs.back().data()[i] &= 1;
    operands.push_back({inputs.back().data(), raw, wide});
  }
  const bool wide_result = narrow && random() % 4 == 0;
  std::vector<GuardedBytes> outputs;
  std::vector<void*> results;
  const size_t result_count = 1 + random() % 2;
  for (size_t r = 0; r < result_count; ++r) {
    outputs.push_back(make(wide_result));
    results.push_back(outputs.back().data());
  }
  const size_t in_place = random() % (2 * c.operands);
  if (in_place < c.operands && operands[in_place].wide == wide_result)
    results[0] = inputs[in_place].data();

  const FoldCall call = {operands, results, c.count, coin(), wide_result};
  const std::vector<uint8_t> expected = ExpectedFold(c.spec, call);
  fold(c.spec, call);
  for (void* result : results) {
    const std::string difference =
        FirstDifference(wide_result ? DataType::kFloat32 : c.spec.type,
                        expected, static_cast<const uint8_t*>(result));
    if (!difference.empty()) return difference;
  }
  for (const GuardedBytes& bytes : inputs)
    if (!bytes.intact()) return "wrote outside an operand";
  for (const GuardedBytes& bytes : outputs)
    if (!bytes.intact()) return "wrote outside a result";
  return "";
}

}  // namespace trnccl
