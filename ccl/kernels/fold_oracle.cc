// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/kernels/fold_oracle.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

namespace trnccl {
namespace {

struct NarrowFormat {
  int exponent_bits;
  int mantissa_bits;
  uint32_t largest;   // the code of the largest finite number
  uint32_t overflow;  // the code of what's beyond
  uint32_t nan;
};

NarrowFormat FormatOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {5, 10, 0x7bff, 0x7c00, 0x7e00};
    case DataType::kBFloat16:
      return {8, 7, 0x7f7f, 0x7f80, 0x7fc0};
    case DataType::kFloat8E4M3:
      return {4, 3, 0x7e, 0x7e, 0x7f};
    default:
      return {5, 2, 0x7b, 0x7c, 0x7f};
  }
}

// The value of a code without its sign, as if every exponent were finite.
double Magnitude(const NarrowFormat& format, uint32_t code) {
  const uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(code >> format.mantissa_bits);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                       : std::ldexp(1 + fraction, exponent - bias);
}

template <class T>
T LoadElement(const void* array, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(array) + index * sizeof(T),
              sizeof(T));
  return value;
}

template <class T>
void AppendElement(T value, std::vector<uint8_t>& bytes) {
  const size_t end = bytes.size();
  bytes.resize(end + sizeof(T));
  std::memcpy(bytes.data() + end, &value, sizeof(T));
}

template <class T>
T Lesser(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <class T>
T Greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a > b ? a : b;
}

// How a type is folded: the element it's computed in, and the operators on it.
template <class T>
struct Numbers {
  using Element = T;

  static T Combine(ReduceOp op, T a, T b) {
    if (op == ReduceOp::kMin) return Lesser(a, b);
    if (op == ReduceOp::kMax) return Greater(a, b);
    if constexpr (std::is_floating_point_v<T>) {
      return op == ReduceOp::kProd ? a * b : a + b;
    } else {
      const uint64_t x = static_cast<uint64_t>(a);
      const uint64_t y = static_cast<uint64_t>(b);
      if (op == ReduceOp::kProd) return static_cast<T>(x * y);
      if (op == ReduceOp::kBand) return static_cast<T>(x & y);
      if (op == ReduceOp::kBor) return static_cast<T>(x | y);
      if (op == ReduceOp::kBxor) return static_cast<T>(x ^ y);
      return static_cast<T>(x + y);
    }
  }
  static T Prepare(const FoldSpec& spec, T a) {
    if (spec.op != ReduceOp::kPremulSum) return a;
    if constexpr (std::is_floating_point_v<T>)
      return a * static_cast<T>(spec.factor.real);
    else
      return static_cast<T>(static_cast<uint64_t>(a) *
                            static_cast<uint64_t>(spec.factor.integer));
  }
  static T Finish(const FoldSpec& spec, T a) {
    if (spec.op != ReduceOp::kAvg) return a;
    if constexpr (std::is_floating_point_v<T> || sizeof(T) == 8)
      return a / static_cast<T>(spec.ranks);
    else
      return static_cast<T>(int64_t{a} / spec.ranks);
  }
};

struct Truth {
  using Element = uint8_t;

  static uint8_t Combine(ReduceOp op, uint8_t a, uint8_t b) {
    if (op == ReduceOp::kBxor) return a != b;
    const bool both =
        op == ReduceOp::kProd || op == ReduceOp::kMin || op == ReduceOp::kBand;
    return both ? a && b : a || b;
  }
  static uint8_t Prepare(const FoldSpec&, uint8_t a) { return a != 0; }
  static uint8_t Finish(const FoldSpec&, uint8_t a) { return a; }
};

template <class T>
struct ComplexNumbers {
  using Element = std::complex<T>;

  static Element Combine(ReduceOp, Element a, Element b) { return a + b; }
  static Element Prepare(const FoldSpec& spec, Element a) {
    if (spec.op != ReduceOp::kPremulSum) return a;
    const T c = static_cast<T>(spec.factor.real);
    const T d = static_cast<T>(spec.factor.imaginary);
    return {a.real() * c - a.imag() * d, a.real() * d + a.imag() * c};
  }
  static Element Finish(const FoldSpec& spec, Element a) {
    if (spec.op != ReduceOp::kAvg) return a;
    const T ranks = static_cast<T>(spec.ranks);
    return {a.real() / ranks, a.imag() / ranks};
  }
};

// `load` reads an operand's element, prepared where it's raw.
template <class Rules, class Load, class Store>
void FoldElements(const FoldSpec& spec, const FoldCall& call, const Load& load,
                  const Store& store) {
  for (size_t i = 0; i < call.count; ++i) {
    typename Rules::Element total{};
    for (size_t k = 0; k < call.operands.size(); ++k) {
      const typename Rules::Element next = load(call.operands[k], i);
      total = k == 0 ? next : Rules::Combine(spec.op, total, next);
    }
    store(call.finish ? Rules::Finish(spec, total) : total);
  }
}

template <class Rules>
std::vector<uint8_t> ExpectedOf(const FoldSpec& spec, const FoldCall& call) {
  using Element = typename Rules::Element;
  std::vector<uint8_t> bytes;
  FoldElements<Rules>(
      spec, call,
      [&](const FoldOperand& operand, size_t i) {
        const Element element = LoadElement<Element>(operand.data, i);
        return operand.raw ? Rules::Prepare(spec, element) : element;
      },
      [&](Element element) { AppendElement(element, bytes); });
  return bytes;
}

template <class Bits>
std::vector<uint8_t> ExpectedNarrow(const FoldSpec& spec,
                                    const FoldCall& call) {
  std::vector<uint8_t> bytes;
  FoldElements<Numbers<float>>(
      spec, call,
      [&](const FoldOperand& operand, size_t i) {
        const float value =
            operand.wide ? LoadElement<float>(operand.data, i)
                         : static_cast<float>(DecodeNarrow(
                               spec.type, LoadElement<Bits>(operand.data, i)));
        if (!operand.raw || spec.op != ReduceOp::kPremulSum) return value;
        const float product = Numbers<float>::Prepare(spec, value);
        return static_cast<float>(
            DecodeNarrow(spec.type, EncodeNarrow(spec.type, product)));
      },
      [&](float value) {
        if (call.wide_result)
          AppendElement(value, bytes);
        else
          AppendElement(static_cast<Bits>(EncodeNarrow(spec.type, value)),
                        bytes);
      });
  return bytes;
}

}  // namespace

double DecodeNarrow(DataType type, uint32_t bits) {
  const NarrowFormat format = FormatOf(type);
  const int sign_bit = format.exponent_bits + format.mantissa_bits;
  const uint32_t code = bits & ((1u << sign_bit) - 1);
  double magnitude = Magnitude(format, code);
  if (code > format.largest)
    magnitude = code == format.overflow
                    ? std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  return (bits >> sign_bit) & 1 ? -magnitude : magnitude;
}

uint32_t EncodeNarrow(DataType type, float value) {
  const NarrowFormat format = FormatOf(type);
  const uint32_t sign = uint32_t{std::signbit(value)}
                        << (format.exponent_bits + format.mantissa_bits);
  if (std::isnan(value)) return sign | format.nan;
  const double magnitude = std::fabs(value);
  // The largest code whose value isn't above.
  uint32_t low = 0;
  uint32_t high = format.largest + 1;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (Magnitude(format, middle) <= magnitude ? low : high) = middle;
  }
  const double midpoint =
      (Magnitude(format, low) + Magnitude(format, low + 1)) / 2;
  const bool up = magnitude > midpoint || (magnitude == midpoint && low % 2);
  const uint32_t code = low + (up ? 1 : 0);
  return sign | (code > format.largest ? format.overflow : code);
}

std::vector<uint8_t> ExpectedFold(const FoldSpec& spec, const FoldCall& call) {
  switch (spec.type) {
    case DataType::kInt8:
      return ExpectedOf<Numbers<int8_t>>(spec, call);
    case DataType::kUint8:
      return ExpectedOf<Numbers<uint8_t>>(spec, call);
    case DataType::kInt16:
      return ExpectedOf<Numbers<int16_t>>(spec, call);
    case DataType::kUint16:
      return ExpectedOf<Numbers<uint16_t>>(spec, call);
    case DataType::kInt32:
      return ExpectedOf<Numbers<int32_t>>(spec, call);
    case DataType::kUint32:
      return ExpectedOf<Numbers<uint32_t>>(spec, call);
    case DataType::kInt64:
      return ExpectedOf<Numbers<int64_t>>(spec, call);
    case DataType::kUint64:
      return ExpectedOf<Numbers<uint64_t>>(spec, call);
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return ExpectedNarrow<uint16_t>(spec, call);
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      return ExpectedNarrow<uint8_t>(spec, call);
    case DataType::kFloat32:
      return ExpectedOf<Numbers<float>>(spec, call);
    case DataType::kFloat64:
      return ExpectedOf<Numbers<double>>(spec, call);
    case DataType::kBool:
      return ExpectedOf<Truth>(spec, call);
    case DataType::kComplex64:
      return ExpectedOf<ComplexNumbers<float>>(spec, call);
    case DataType::kComplex128:
      return ExpectedOf<ComplexNumbers<double>>(spec, call);
  }
  return {};
}

}  // namespace trnccl
