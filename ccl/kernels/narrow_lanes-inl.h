// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The Lanes of the 8- and 16-bit floats: float32 in registers, rounded to
// nearest even when stored. Their Wide is the Lanes of the same elements as
// float32 partials in memory.
//
// Compiled once per instruction set and therefore without an include guard:
// only operators-inl.h includes this.
#include "ccl/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trnccl {
namespace HWY_NAMESPACE {

// A binary format of at most 16 bits, converted by integer arithmetic.
template <class BitsType, int kExponentBits, int kMantissaBits,
          uint32_t kLargestCode, uint32_t kNanCode>
struct SmallFloat {
  using Bits = BitsType;
  using Floats = Vector<float>;
  using Ints = Vector<int32_t>;

  static constexpr int kSignBit = kExponentBits + kMantissaBits;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int32_t kRebias = (127 - kBias) << 23;
  static constexpr int32_t kSmallestNormal = (128 - kBias) << 23;  // as float32
  static constexpr bool kHasInfinity = kLargestCode + 1 < kNanCode;
  static constexpr int32_t kNan = 0x7fc00000;

  static HWY_INLINE Ints Constant(int32_t value) {
    return hn::Set(Tag<int32_t>(), value);
  }
  static HWY_INLINE Floats AsFloats(Ints v) {
    return hn::BitCast(Tag<float>(), v);
  }
  static HWY_INLINE Ints AsInts(Floats v) {
    return hn::BitCast(Tag<int32_t>(), v);
  }

  static HWY_INLINE Floats Decode(Ints bits) {
    const Ints code = hn::And(bits, Constant((1 << kSignBit) - 1));
    const Ints shifted = hn::ShiftLeft<kShift>(code);
    Ints value = hn::Add(shifted, Constant(kRebias));
    // A subnormal m * 2^(1-bias-mantissa) as (1 + m / 2^mantissa) less 1, both
    // times 2^(1-bias): exact, and no float32 subnormal on the way.
    const Ints one = Constant(kSmallestNormal);
    const Floats subnormal =
        hn::Sub(AsFloats(hn::Or(shifted, one)), AsFloats(one));
    value = hn::IfThenElse(hn::Lt(code, Constant(1 << kMantissaBits)),
                           AsInts(subnormal), value);
    if constexpr (kHasInfinity) {
      value = hn::IfThenElse(hn::Gt(code, Constant(kLargestCode)),
                             hn::Or(shifted, Constant(0x7f800000)), value);
    } else {
      value = hn::IfThenElse(hn::Eq(code, Constant(kNanCode)), Constant(kNan),
                             value);
    }
    const Ints sign =
        hn::And(hn::ShiftLeft<31 - kSignBit>(bits), Constant(INT32_MIN));
    return AsFloats(hn::Or(value, sign));
  }

  static HWY_INLINE Ints Encode(Floats v) {
    const Ints bits = AsInts(v);
    const Ints magnitude = hn::And(bits, Constant(INT32_MAX));
    const Ints odd = hn::And(hn::ShiftRight<kShift>(magnitude), Constant(1));
    Ints code = hn::ShiftRight<kShift>(hn::Add(
        hn::Add(magnitude, odd), Constant((1 << (kShift - 1)) - 1 - kRebias)));
    // Adding a number whose last place is the smallest subnormal makes the
    // addition itself round to a multiple of that.
    const Ints magic = Constant(kSmallestNormal + (kShift << 23));
    const Ints subnormal =
        hn::Sub(AsInts(hn::Add(AsFloats(magnitude), AsFloats(magic))), magic);
    code = hn::IfThenElse(hn::Lt(magnitude, Constant(kSmallestNormal)),
                          subnormal, code);
    constexpr int32_t kOverflow = kLargestCode + (kHasInfinity ? 1 : 0);
    code = hn::Min(code, Constant(kOverflow));
    code = hn::IfThenElse(hn::Gt(magnitude, Constant(0x7f800000)),
                          Constant(kNanCode), code);
    const Ints sign =
        hn::And(hn::ShiftRight<31 - kSignBit>(bits), Constant(1 << kSignBit));
    return hn::Or(code, sign);
  }
};

using Float8E4M3 = SmallFloat<uint8_t, 4, 3, 0x7e, 0x7f>;  // saturates at 448
using Float8E5M2 = SmallFloat<uint8_t, 5, 2, 0x7b, 0x7f>;
using Float16 = SmallFloat<uint16_t, 5, 10, 0x7bff, 0x7fff>;
using BFloat16 = SmallFloat<uint16_t, 8, 7, 0x7f7f, 0x7fff>;

template <class Format>
struct SmallFloatLanes {
  using Acc = Pack<float, 1>;
  using Wide = DirectLanes<float>;
  using Bits = typename Format::Bits;
  static constexpr size_t kElementBytes = sizeof(Bits);
  static constexpr size_t kBytes = hn::MaxLanes(Tag<float>()) * kElementBytes;

  static HWY_INLINE Acc Load(const uint8_t* bytes) {
    const hn::Rebind<Bits, Tag<float>> narrow;
    return Acc(
        Format::Decode(hn::PromoteTo(Tag<int32_t>(), LoadAt(narrow, bytes))));
  }
  static HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) {
    const hn::Rebind<Bits, Tag<float>> narrow;
    StoreAt(hn::DemoteTo(narrow, Format::Encode(acc.vectors[0])), narrow,
            bytes);
  }
};

// float16 by the processor's own conversions, two registers at a time: a unit
// of half a cache line would make two results take turns at each line. A
// template, so that it's compiled only where the conversions exist.
template <class Half>
struct HardwareHalfLanes {
  using Acc = Pack<float, 2>;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kBytes = hn::MaxLanes(Tag<Half>()) * kElementBytes;

  struct Wide {
    static constexpr size_t kBytes = 2 * HardwareHalfLanes::kBytes;
    static HWY_INLINE Acc Load(const uint8_t* bytes) {
      const Tag<float> d;
      return Acc(LoadAt(d, bytes), LoadAt(d, bytes + kBytes / 2));
    }
    static HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) {
      const Tag<float> d;
      StoreAt(acc.vectors[0], d, bytes);
      StoreAt(acc.vectors[1], d, bytes + kBytes / 2);
    }
  };

  static HWY_INLINE Acc Load(const uint8_t* bytes) {
    const hn::Rebind<Half, Tag<float>> half;
    return Acc(hn::PromoteTo(Tag<float>(), LoadAt(half, bytes)),
               hn::PromoteTo(Tag<float>(), LoadAt(half, bytes + kBytes / 2)));
  }
  static HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) {
    const hn::Rebind<Half, Tag<float>> half;
    StoreAt(hn::DemoteTo(half, acc.vectors[0]), half, bytes);
    StoreAt(hn::DemoteTo(half, acc.vectors[1]), half, bytes + kBytes / 2);
  }
};

inline constexpr bool kHardwareHalf =
    HWY_TARGET <= HWY_AVX2 || (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64);
using Float16Lanes =
    std::conditional_t<kHardwareHalf, HardwareHalfLanes<hwy::float16_t>,
                       SmallFloatLanes<Float16>>;

// bfloat16 elements as the two halves of 32-bit lanes: the even elements go to
// one accumulator, the odd ones to another, so nothing crosses lanes.
//
// A NaN here never has a bit below bfloat16's mantissa (LoadWide sees to that),
// which keeps rounding from carrying it into the sign.
template <class Lane>
struct BFloat16Pairs {
  using Acc = Pack<float, 2>;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kBytes = hn::MaxLanes(Tag<Lane>()) * sizeof(Lane);

  struct Wide {
    static constexpr size_t kBytes = 2 * hn::MaxLanes(Tag<float>()) * 4;
    static HWY_INLINE Acc Load(const uint8_t* bytes) {
      Acc acc = PairLanes<float>::Load(bytes);
      for (Vector<float>& v : acc.vectors) {
        const auto nan =
            hn::BitCast(Tag<float>(), hn::Set(Tag<Lane>(), 0x7fc00000u));
        v = hn::IfThenElse(hn::IsNaN(v), nan, v);
      }
      return acc;
    }
    static HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) {
      PairLanes<float>::Store(acc, bytes);
    }
  };

  static HWY_INLINE Acc Load(const uint8_t* bytes) {
    const Vector<Lane> pair = LoadAt(Tag<Lane>(), bytes);
    const auto odd = hn::And(pair, hn::Set(Tag<Lane>(), 0xffff0000u));
    return Acc(hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(pair)),
               hn::BitCast(Tag<float>(), odd));
  }
  static HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) {
    const Tag<uint16_t> d16;
    const auto even = hn::ShiftRight<16>(Round(acc.vectors[0]));
    const auto odd = Round(acc.vectors[1]);
    const auto both =
        hn::OddEven(hn::BitCast(d16, odd), hn::BitCast(d16, even));
    StoreAt(hn::BitCast(Tag<Lane>(), both), Tag<Lane>(), bytes);
  }

  // The upper 16 bits become the nearest bfloat16, ties to even: adds 0x8000,
  // or one less where the upper half is even.
  static HWY_INLINE Vector<Lane> Round(Vector<float> v) {
    const Tag<Lane> d;
    const Vector<Lane> bits = hn::BitCast(d, v);
    const Vector<Lane> even =
        hn::AndNot(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    return hn::Sub(bits, hn::Or(even, hn::Set(d, 0xffff8000u)));
  }
};

using BFloat16Lanes = std::conditional_t<kOneLane, SmallFloatLanes<BFloat16>,
                                         BFloat16Pairs<uint32_t>>;

}  // namespace HWY_NAMESPACE
}  // namespace trnccl
HWY_AFTER_NAMESPACE();
