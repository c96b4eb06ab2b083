// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The operators on vectors: how two accumulators are folded, and where there
// are such, how a raw input is prepared and a complete fold finished.
//
// Compiled once per instruction set and therefore without an include guard:
// only fold-inl.h includes this.
#include "ccl/kernels/fold.h"
#include "ccl/kernels/narrow_lanes-inl.h"
#include "ccl/kernels/native_sum.h"

HWY_BEFORE_NAMESPACE();
namespace trnccl {
namespace HWY_NAMESPACE {

// What every operator has; T is the type of an accumulator's lane.
template <class T>
struct Operator {
  using Lane = T;
  using V = Vector<T>;
  static constexpr bool kPrepares = false;
  static constexpr bool kFinishes = false;
  static constexpr bool kNative = false;
};

// Integers wrap in all that follows. Unsigned lanes serve both signs.
template <class T>
struct Sum : Operator<T> {
  using V = Vector<T>;
  explicit HWY_INLINE Sum(const FoldSpec&) {}
  HWY_INLINE V Fold(V a, V b) const { return hn::Add(a, b); }
};

// The sum of a narrow float that has a native one, for plain pairs.
struct SumWithNative : Sum<float> {
  static constexpr bool kNative = true;
  explicit HWY_INLINE SumWithNative(const FoldSpec& spec)
      : Sum<float>(spec), type(spec.type) {}
  DataType type;
};

template <class Byte>
HWY_INLINE Vector<Byte> MultiplyBytes(Vector<Byte> a, Vector<Byte> b) {
  const Tag<uint16_t> d16;
  const auto a16 = hn::BitCast(d16, a);
  const auto b16 = hn::BitCast(d16, b);
  const auto low = hn::Set(d16, 0x00ff);
  const auto even = hn::And(hn::Mul(a16, b16), low);
  const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::AndNot(low, b16));
  return hn::BitCast(Tag<Byte>(), hn::Or(even, odd));
}

template <class T>
struct Product : Operator<T> {
  using V = Vector<T>;
  explicit HWY_INLINE Product(const FoldSpec&) {}
  HWY_INLINE V Fold(V a, V b) const { return Multiply(a, b); }

  static HWY_INLINE V Multiply(V a, V b) {
    if constexpr (std::is_floating_point_v<T>) {
      return hn::Mul(a, b);
    } else if constexpr (kOneLane) {
      const uint64_t product =
          uint64_t{hn::GetLane(a)} * uint64_t{hn::GetLane(b)};
      return hn::Set(Tag<T>(), static_cast<T>(product));
    } else if constexpr (sizeof(T) == 1) {
      return MultiplyBytes<T>(a, b);
    } else {
      return hn::Mul(a, b);
    }
  }
};

// x86's minimum gives the second operand where one is NaN or both are zero.
// Taking it both ways and joining the bits keeps any NaN and any minus sign.
// Highway's other targets give the operand that's no NaN.
inline constexpr bool kMinimumKeepsNan =
    HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

template <class T>
HWY_INLINE Vector<T> FloatMin(Vector<T> a, Vector<T> b) {
  Vector<T> result = hn::Or(hn::Min(a, b), hn::Min(b, a));
  if constexpr (!kMinimumKeepsNan) {
    result = hn::IfThenElse(hn::IsNaN(a), a, result);
    result = hn::IfThenElse(hn::IsNaN(b), b, result);
  }
  return result;
}

template <class T>
struct Minimum : Operator<T> {
  using V = Vector<T>;
  explicit HWY_INLINE Minimum(const FoldSpec&) {}
  HWY_INLINE V Fold(V a, V b) const {
    if constexpr (std::is_floating_point_v<T>)
      return FloatMin<T>(a, b);
    else
      return hn::Min(a, b);
  }
};

template <class T>
struct Maximum : Operator<T> {
  using V = Vector<T>;
  explicit HWY_INLINE Maximum(const FoldSpec&) {}
  HWY_INLINE V Fold(V a, V b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const V sign = hn::Set(Tag<T>(), T{-0.0});
      return hn::Xor(FloatMin<T>(hn::Xor(a, sign), hn::Xor(b, sign)), sign);
    } else {
      return hn::Max(a, b);
    }
  }
};

template <class T>
struct BitAnd : Operator<T> {
  using V = Vector<T>;
  explicit HWY_INLINE BitAnd(const FoldSpec&) {}
  HWY_INLINE V Fold(V a, V b) const { return hn::And(a, b); }
};

template <class T>
struct BitOr : Operator<T> {
  using V = Vector<T>;
  explicit HWY_INLINE BitOr(const FoldSpec&) {}
  HWY_INLINE V Fold(V a, V b) const { return hn::Or(a, b); }
};

template <class T>
struct BitXor : Operator<T> {
  using V = Vector<T>;
  explicit HWY_INLINE BitXor(const FoldSpec&) {}
  HWY_INLINE V Fold(V a, V b) const { return hn::Xor(a, b); }
};

// Any non-zero byte of a raw input is true.
template <class Bitwise>
struct Boolean : Bitwise {
  using V = typename Bitwise::V;
  static constexpr bool kPrepares = true;
  explicit HWY_INLINE Boolean(const FoldSpec& spec) : Bitwise(spec) {}

  template <class Acc>
  HWY_INLINE void Prepare(Acc& acc) const {
    for (V& v : acc.vectors) v = hn::Min(v, hn::Set(Tag<uint8_t>(), 1));
  }
};

template <class T>
struct PremulSum : Sum<T> {
  using V = Vector<T>;
  static constexpr bool kPrepares = true;

  explicit HWY_INLINE PremulSum(const FoldSpec& spec) : Sum<T>(spec) {
    if constexpr (std::is_floating_point_v<T>)
      factor = hn::Set(Tag<T>(), static_cast<T>(spec.factor.real));
    else
      factor = hn::Set(Tag<T>(), static_cast<T>(spec.factor.integer));
  }

  template <class Acc>
  HWY_INLINE void Prepare(Acc& acc) const {
    for (V& v : acc.vectors) v = Product<T>::Multiply(v, factor);
  }

  V factor;
};

// On PairLanes: the real parts in one vector, the imaginary in the other.
template <class T>
struct ComplexPremulSum : Sum<T> {
  using V = Vector<T>;
  static constexpr bool kPrepares = true;

  explicit HWY_INLINE ComplexPremulSum(const FoldSpec& spec)
      : Sum<T>(spec),
        real(hn::Set(Tag<T>(), static_cast<T>(spec.factor.real))),
        imaginary(hn::Set(Tag<T>(), static_cast<T>(spec.factor.imaginary))) {}

  HWY_INLINE void Prepare(Pack<T, 2>& acc) const {
    const V a = acc.vectors[0];
    const V b = acc.vectors[1];
    acc.vectors[0] = hn::Sub(hn::Mul(a, real), hn::Mul(b, imaginary));
    acc.vectors[1] = hn::Add(hn::Mul(a, imaginary), hn::Mul(b, real));
  }

  V real;
  V imaginary;
};

// Floats: the correctly rounded quotient. By a power of two, that's a product.
template <class T>
struct FloatAverage : Sum<T> {
  using V = Vector<T>;
  static constexpr bool kFinishes = true;

  explicit HWY_INLINE FloatAverage(const FoldSpec& spec)
      : Sum<T>(spec),
        ranks(static_cast<T>(spec.ranks)),
        power_of_two((spec.ranks & (spec.ranks - 1)) == 0) {}

  template <class Acc>
  HWY_INLINE void Finish(Acc& acc) const {
    if (power_of_two) {
      const V inverse = hn::Set(Tag<T>(), T{1} / ranks);
      for (V& v : acc.vectors) v = hn::Mul(v, inverse);
    } else {
      const V divisor = hn::Set(Tag<T>(), ranks);
      for (V& v : acc.vectors) v = hn::Div(v, divisor);
    }
  }

  T ranks;
  bool power_of_two;
};

// Integers: the sum modulo 2^bits, then divided, towards zero.
template <class T>
struct IntegerAverage : Sum<T> {
  using V = Vector<T>;
  static constexpr bool kFinishes = true;

  explicit HWY_INLINE IntegerAverage(const FoldSpec& spec)
      : Sum<T>(spec), ranks(spec.ranks) {}

  template <class Acc>
  HWY_INLINE void Finish(Acc& acc) const {
    // No processor divides vectors of integers. The rounded quotient of two
    // that a float holds exactly is never a whole number that the true one
    // doesn't reach, so truncating it is exact too; compilers vectorize that.
    using Quotient =
        std::conditional_t<(sizeof(T) < 4), float,
                           std::conditional_t<(sizeof(T) < 8), double, T>>;
    const Quotient divisor = static_cast<Quotient>(ranks);
    alignas(64) T lanes[hn::MaxLanes(Tag<T>())];
    for (V& v : acc.vectors) {
      hn::Store(v, Tag<T>(), lanes);
      for (T& lane : lanes)
        lane = static_cast<T>(static_cast<Quotient>(lane) / divisor);
      v = hn::Load(Tag<T>(), lanes);
    }
  }

  int64_t ranks;
};

}  // namespace HWY_NAMESPACE
}  // namespace trnccl
HWY_AFTER_NAMESPACE();
