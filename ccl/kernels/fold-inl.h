// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The one loop of all folds, and the choice of its instance for a type and an
// operator.
//
// Compiled once per instruction set and therefore without an include guard:
// only fold.cc includes this.
#include "ccl/kernels/operators-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trnccl {
namespace HWY_NAMESPACE {

// How a unit's bytes are reached: all of them, or the first few only.
struct Whole {
  template <class Lanes>
  HWY_INLINE auto Load(const uint8_t* bytes) const {
    return Lanes::Load(bytes);
  }
  template <class Lanes, class Acc>
  HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) const {
    Lanes::Store(acc, bytes);
  }
  HWY_INLINE Whole Times(size_t) const { return {}; }
};

// Reads `bytes` bytes, and no more, into a unit; the rest of it is zero.
template <size_t kBytes>
HWY_INLINE void CopyToUnit(const uint8_t* from, size_t bytes, uint8_t* unit) {
  const hn::CappedTag<uint8_t, kBytes> d;
  for (size_t i = 0; i < kBytes; i += hn::Lanes(d))
    hn::Store(hn::Zero(d), d, unit + i);
  if constexpr (HWY_MEM_OPS_MIGHT_FAULT) {
    std::memcpy(unit, from, bytes);
  } else {
    for (size_t i = 0; i < bytes; i += hn::Lanes(d))
      hn::Store(hn::MaskedLoad(hn::FirstN(d, bytes - i), d, from + i), d,
                unit + i);
  }
}

template <size_t kBytes>
HWY_INLINE void CopyFromUnit(const uint8_t* unit, size_t bytes, uint8_t* to) {
  if constexpr (HWY_MEM_OPS_MIGHT_FAULT) {
    std::memcpy(to, unit, bytes);
  } else {
    const hn::CappedTag<uint8_t, kBytes> d;
    for (size_t i = 0; i < bytes; i += hn::Lanes(d))
      hn::BlendedStore(hn::Load(d, unit + i), hn::FirstN(d, bytes - i), d,
                       to + i);
  }
}

struct Part {
  size_t bytes;

  template <class Lanes>
  HWY_INLINE auto Load(const uint8_t* from) const {
    alignas(64) uint8_t unit[Lanes::kBytes];
    CopyToUnit<Lanes::kBytes>(from, bytes, unit);
    return Lanes::Load(unit);
  }
  template <class Lanes, class Acc>
  HWY_INLINE void Store(const Acc& acc, uint8_t* to) const {
    alignas(64) uint8_t unit[Lanes::kBytes];
    Lanes::Store(acc, unit);
    CopyFromUnit<Lanes::kBytes>(unit, bytes, to);
  }
  HWY_INLINE Part Times(size_t ratio) const { return {bytes * ratio}; }
};

// One fold: a type's lanes, an operator, a call.
template <class Lanes, class Op>
class Loop {
 public:
  HWY_INLINE Loop(const FoldSpec& spec, const FoldCall& call)
      : op_(spec), call_(call) {}

  HWY_INLINE void Run() const {
    const size_t end = call_.count * Lanes::kElementBytes;
    size_t offset = 0;
    if (IsPlainPair())
      offset = call_.results.size() == 1 ? FoldPair<1>(end) : FoldPair<2>(end);
    else
      for (; end - offset >= Lanes::kBytes; offset += Lanes::kBytes)
        FoldUnit(offset, Whole());
    if (offset < end) FoldUnit(offset, Part{end - offset});
  }

 private:
  using Acc = typename Lanes::Acc;
  using Wide = typename Lanes::Wide;
  static constexpr bool kNarrow = !std::is_void_v<Wide>;
  static constexpr size_t kWideRatio = sizeof(float) / Lanes::kElementBytes;

  // Two operands as they are, which is what rings and pairs of ranks fold all
  // day.
  HWY_INLINE bool IsPlainPair() const {
    if (Op::kPrepares || call_.operands.size() != 2) return false;
    return !kNarrow || !(call_.operands[0].wide || call_.operands[1].wide ||
                         call_.wide_result);
  }

  // Folds a plain pair's whole units and says how far it came. FoldUnit() would
  // do the same, in several times the instructions.
  template <size_t kResults>
  HWY_INLINE size_t FoldPair(size_t end) const {
    const auto* first = static_cast<const uint8_t*>(call_.operands[0].data);
    const auto* second = static_cast<const uint8_t*>(call_.operands[1].data);
    auto* result = static_cast<uint8_t*>(call_.results[0]);
    auto* copy = static_cast<uint8_t*>(call_.results[kResults - 1]);
    const bool finish = call_.finish;
    size_t offset = 0;
    if constexpr (Op::kNative) {
      offset = end - end % kNativeSumUnit;
      NativeSum(op_.type,
                {first, second, result, kResults == 2 ? copy : nullptr},
                offset);
    }
    for (; end - offset >= Lanes::kBytes; offset += Lanes::kBytes) {
      Acc acc = Lanes::Load(first + offset);
      Combine(acc, Lanes::Load(second + offset));
      if constexpr (Op::kFinishes) {
        if (finish) op_.Finish(acc);
      }
      Lanes::Store(acc, result + offset);
      if constexpr (kResults == 2) Lanes::Store(acc, copy + offset);
    }
    return offset;
  }

  // Folds the unit at `offset`, counted in bytes of the type itself.
  template <class Access>
  HWY_INLINE void FoldUnit(size_t offset, Access access) const {
    Acc acc = Read(call_.operands[0], offset, access);
    for (const FoldOperand& operand : call_.operands.subspan(1))
      Combine(acc, Read(operand, offset, access));
    if constexpr (Op::kFinishes) {
      if (call_.finish) op_.Finish(acc);
    }
    for (void* result : call_.results)
      Write(acc, offset, access, static_cast<uint8_t*>(result));
  }

  template <class Access>
  HWY_INLINE Acc Read(const FoldOperand& operand, size_t offset,
                      Access access) const {
    const auto* bytes = static_cast<const uint8_t*>(operand.data);
    Acc acc;
    if constexpr (kNarrow) {
      if (operand.wide)
        acc = access.Times(kWideRatio)
                  .template Load<Wide>(bytes + offset * kWideRatio);
      else
        acc = access.template Load<Lanes>(bytes + offset);
    } else {
      acc = access.template Load<Lanes>(bytes + offset);
    }
    if constexpr (Op::kPrepares) {
      if (operand.raw) Prepare(acc);
    }
    return acc;
  }

  // A prepared narrow float is rounded to its type at once: whether it's folded
  // here or travels first must not show in the bits.
  HWY_INLINE void Prepare(Acc& acc) const {
    op_.Prepare(acc);
    if constexpr (kNarrow) {
      alignas(64) uint8_t unit[Lanes::kBytes];
      Lanes::Store(acc, unit);
      acc = Lanes::Load(unit);
    }
  }

  template <class Access>
  HWY_INLINE void Write(const Acc& acc, size_t offset, Access access,
                        uint8_t* bytes) const {
    if constexpr (kNarrow) {
      if (call_.wide_result)
        return access.Times(kWideRatio)
            .template Store<Wide>(acc, bytes + offset * kWideRatio);
    }
    access.template Store<Lanes>(acc, bytes + offset);
  }

  HWY_INLINE void Combine(Acc& acc, const Acc& next) const {
    for (size_t i = 0; i < Acc::kVectors; ++i)
      acc.vectors[i] = op_.Fold(acc.vectors[i], next.vectors[i]);
  }

  const Op op_;
  const FoldCall& call_;
};

// Whether the results are the first operand, bit by bit.
template <class Op>
bool IsCopy(const FoldCall& call) {
  const FoldOperand& operand = call.operands[0];
  return call.operands.size() == 1 && operand.wide == call.wide_result &&
         !(Op::kPrepares && operand.raw) && !(Op::kFinishes && call.finish);
}

inline void Copy(const FoldCall& call, size_t bytes) {
  const void* const from = call.operands[0].data;
  for (void* result : call.results)
    if (result != from && bytes != 0) std::memcpy(result, from, bytes);
}

template <class Lanes, class Op>
void FoldWith(const FoldSpec& spec, const FoldCall& call) {
  if (IsCopy<Op>(call))
    Copy(call, call.count *
                   (call.wide_result ? sizeof(float) : Lanes::kElementBytes));
  else
    Loop<Lanes, Op>(spec, call).Run();
}

using FoldFunction = void (*)(const FoldSpec&, const FoldCall&);

template <class T>
FoldFunction ChooseInteger(ReduceOp op) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::kSum:
      return FoldWith<DirectLanes<U>, Sum<U>>;
    case ReduceOp::kProd:
      return FoldWith<DirectLanes<U>, Product<U>>;
    case ReduceOp::kMin:
      return FoldWith<DirectLanes<T>, Minimum<T>>;
    case ReduceOp::kMax:
      return FoldWith<DirectLanes<T>, Maximum<T>>;
    case ReduceOp::kAvg:
      return FoldWith<DirectLanes<T>, IntegerAverage<T>>;
    case ReduceOp::kPremulSum:
      return FoldWith<DirectLanes<U>, PremulSum<U>>;
    case ReduceOp::kBand:
      return FoldWith<DirectLanes<U>, BitAnd<U>>;
    case ReduceOp::kBor:
      return FoldWith<DirectLanes<U>, BitOr<U>>;
    case ReduceOp::kBxor:
      return FoldWith<DirectLanes<U>, BitXor<U>>;
  }
  return nullptr;
}

FoldFunction ChooseBool(ReduceOp op) {
  using Bytes = DirectLanes<uint8_t>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return FoldWith<Bytes, Boolean<BitOr<uint8_t>>>;
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return FoldWith<Bytes, Boolean<BitAnd<uint8_t>>>;
    case ReduceOp::kBxor:
      return FoldWith<Bytes, Boolean<BitXor<uint8_t>>>;
    default:
      return nullptr;
  }
}

template <class Lanes>
FoldFunction ChooseFloat(ReduceOp op) {
  using T = typename Lanes::Acc::Lane;
  switch (op) {
    case ReduceOp::kSum:
      return FoldWith<Lanes, Sum<T>>;
    case ReduceOp::kProd:
      return FoldWith<Lanes, Product<T>>;
    case ReduceOp::kMin:
      return FoldWith<Lanes, Minimum<T>>;
    case ReduceOp::kMax:
      return FoldWith<Lanes, Maximum<T>>;
    case ReduceOp::kAvg:
      return FoldWith<Lanes, FloatAverage<T>>;
    case ReduceOp::kPremulSum:
      return FoldWith<Lanes, PremulSum<T>>;
    default:
      return nullptr;
  }
}

// Only the best instruction set gives way to native sums: tests reach the
// others as they are.
template <class Lanes>
FoldFunction ChooseHalf(DataType type, ReduceOp op) {
  if constexpr (HWY_TARGET == HWY_AVX3) {
    if (op == ReduceOp::kSum && HasNativeSum(type))
      return FoldWith<Lanes, SumWithNative>;
  }
  return ChooseFloat<Lanes>(op);
}

template <class T>
FoldFunction ChooseComplex(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return FoldWith<DirectLanes<T, 2>, Sum<T>>;
    case ReduceOp::kAvg:
      return FoldWith<DirectLanes<T, 2>, FloatAverage<T>>;
    case ReduceOp::kPremulSum:
      return FoldWith<PairLanes<T>, ComplexPremulSum<T>>;
    default:
      return nullptr;
  }
}

// Null where the pair has no meaning.
FoldFunction ChooseFold(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kInt8:
      return ChooseInteger<int8_t>(op);
    case DataType::kUint8:
      return ChooseInteger<uint8_t>(op);
    case DataType::kInt16:
      return ChooseInteger<int16_t>(op);
    case DataType::kUint16:
      return ChooseInteger<uint16_t>(op);
    case DataType::kInt32:
      return ChooseInteger<int32_t>(op);
    case DataType::kUint32:
      return ChooseInteger<uint32_t>(op);
    case DataType::kInt64:
      return ChooseInteger<int64_t>(op);
    case DataType::kUint64:
      return ChooseInteger<uint64_t>(op);
    case DataType::kFloat16:
      return ChooseHalf<Float16Lanes>(type, op);
    case DataType::kBFloat16:
      return ChooseHalf<BFloat16Lanes>(type, op);
    case DataType::kFloat32:
      return ChooseFloat<DirectLanes<float>>(op);
    case DataType::kFloat64:
      return ChooseFloat<DirectLanes<double>>(op);
    case DataType::kFloat8E4M3:
      return ChooseFloat<SmallFloatLanes<Float8E4M3>>(op);
    case DataType::kFloat8E5M2:
      return ChooseFloat<SmallFloatLanes<Float8E5M2>>(op);
    case DataType::kBool:
      return ChooseBool(op);
    case DataType::kComplex64:
      return ChooseComplex<float>(op);
    case DataType::kComplex128:
      return ChooseComplex<double>(op);
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace trnccl
HWY_AFTER_NAMESPACE();
