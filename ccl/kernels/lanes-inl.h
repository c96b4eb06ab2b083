// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How elements lie in memory and what they become in registers: each Lanes
// class loads and stores one unit, kBytes of memory, as a Pack of accumulators.
// kUnits of them are folded side by side where that hides an addition's
// latency. No alignment is assumed.
//
// Compiled once per instruction set and therefore without an include guard:
// only operators-inl.h includes this.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trnccl {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr bool kOneLane = HWY_TARGET == HWY_SCALAR;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;

// Constructors that the compiler writes lack the instruction set that those of
// the vectors may need.
template <class T, size_t kSize>
struct Pack {
  using Lane = T;
  static constexpr size_t kVectors = kSize;

  HWY_INLINE Pack() {}
  explicit HWY_INLINE Pack(Vector<T> v) : vectors{v} {}
  HWY_INLINE Pack(Vector<T> v, Vector<T> w) : vectors{v, w} {}

  Vector<T> vectors[kSize];
};

template <class D>
HWY_INLINE hn::Vec<D> LoadAt(D d, const uint8_t* bytes) {
  using T = hn::TFromD<D>;
  if constexpr (kOneLane) {
    T lane;
    std::memcpy(&lane, bytes, sizeof(lane));
    return hn::Set(d, lane);
  } else {
    return hn::LoadU(d, reinterpret_cast<const T*>(bytes));
  }
}

template <class D>
HWY_INLINE void StoreAt(hn::Vec<D> v, D d, uint8_t* bytes) {
  using T = hn::TFromD<D>;
  if constexpr (kOneLane) {
    const T lane = hn::GetLane(v);
    std::memcpy(bytes, &lane, sizeof(lane));
  } else {
    hn::StoreU(v, d, reinterpret_cast<T*>(bytes));
  }
}

// Elements that are folded as they lie. An element may be several lanes.
template <class T, size_t kLanesPerElement = 1>
struct DirectLanes {
  using Acc = Pack<T, 1>;
  using Wide = void;
  static constexpr size_t kElementBytes = sizeof(T) * kLanesPerElement;
  static constexpr size_t kBytes = hn::MaxLanes(Tag<T>()) * sizeof(T);

  static HWY_INLINE Acc Load(const uint8_t* bytes) {
    return Acc(LoadAt(Tag<T>(), bytes));
  }
  static HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) {
    StoreAt(acc.vectors[0], Tag<T>(), bytes);
  }
};

// Pairs of T, side by side in memory, apart in registers: for what must tell a
// complex number's parts apart.
template <class T>
struct PairLanes {
  using Acc = Pack<T, 2>;
  using Wide = void;
  static constexpr size_t kElementBytes = 2 * sizeof(T);
  static constexpr size_t kBytes = hn::MaxLanes(Tag<T>()) * kElementBytes;

  static HWY_INLINE Acc Load(const uint8_t* bytes) {
    Acc acc;
    if constexpr (kOneLane) {
      acc.vectors[0] = LoadAt(Tag<T>(), bytes);
      acc.vectors[1] = LoadAt(Tag<T>(), bytes + sizeof(T));
    } else {
      hn::LoadInterleaved2(Tag<T>(), reinterpret_cast<const T*>(bytes),
                           acc.vectors[0], acc.vectors[1]);
    }
    return acc;
  }
  static HWY_INLINE void Store(const Acc& acc, uint8_t* bytes) {
    if constexpr (kOneLane) {
      StoreAt(acc.vectors[0], Tag<T>(), bytes);
      StoreAt(acc.vectors[1], Tag<T>(), bytes + sizeof(T));
    } else {
      hn::StoreInterleaved2(acc.vectors[0], acc.vectors[1], Tag<T>(),
                            reinterpret_cast<T*>(bytes));
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace trnccl
HWY_AFTER_NAMESPACE();
