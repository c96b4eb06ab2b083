// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#include "bindings/mpi/narrow_float.h"

namespace trnccl::perf {
namespace {

// The finishing steps of splitmix64: every bit depends on every bit.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Where an element stands: what its value is made from. `position` counts
// components: a complex number has two.
struct Place {
  const Recipe& recipe;
  int rank;
  uint64_t position;

  uint64_t Random() const {
    return Mix(recipe.seed + Mix(static_cast<uint64_t>(rank) + 1) +
               position * 0x9e3779b97f4a7c15U);
  }

  // A number in [0, ranks) that each rank has once at each position.
  uint64_t Role() const {
    const uint64_t turn =
        Mix(~recipe.seed + position * 0xd1342543de82ef95U) >> 32;
    return (turn + static_cast<uint64_t>(rank)) %
           static_cast<uint64_t>(recipe.ranks);
  }
};

// How the ranks share the whole numbers that a type holds exactly.
struct Share {
  uint64_t active;   // this many ranks bring a number, the others zero
  uint64_t largest;  // of magnitude 1 to this

  Share(const Recipe& recipe, uint64_t exact) {
    const uint64_t factor = recipe.op == Operator::kMulSum ? 2 : 1;
    const uint64_t ranks = static_cast<uint64_t>(recipe.ranks);
    active = std::min(ranks, exact / factor);
    largest = exact / factor / active;
  }
};

// ---- Integers --------------------------------------------------------------

template <typename T>
struct Integer {
  using Stored = T;
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;

  static T Whole(int value) { return static_cast<T>(value); }

  static T Input(const Place& place) {
    const uint64_t random = place.Random();
    switch (place.recipe.op) {
      case Operator::kAvg:
        return Bounded(place, random);
      case Operator::kProd:
        return static_cast<T>(random | 1);
      case Operator::kBand:
        return static_cast<T>(random | Mix(random));
      case Operator::kBor:
        return static_cast<T>(random & Mix(random));
      default:
        return static_cast<T>(random);
    }
  }

  // An average's sum must not wrap around.
  static T Bounded(const Place& place, uint64_t random) {
    const Share share(place.recipe, std::numeric_limits<T>::max());
    if (place.Role() >= share.active) return 0;
    const T magnitude = static_cast<T>(1 + (random >> 1) % share.largest);
    return std::is_signed_v<T> && random % 2 == 1 ? static_cast<T>(-magnitude)
                                                  : magnitude;
  }

  static T Fold(const Recipe& recipe, uint64_t position) {
    T total = Factored({recipe, 0, position});
    for (int rank = 1; rank < recipe.ranks; ++rank)
      total = Combine(recipe.op, total, Factored({recipe, rank, position}));
    if (recipe.op == Operator::kAvg)
      return static_cast<T>(static_cast<Wide>(total) /
                            static_cast<Wide>(recipe.ranks));
    return total;
  }

  static T Factored(const Place& place) {
    const T input = Input(place);
    if (place.recipe.op != Operator::kMulSum) return input;
    return static_cast<T>(static_cast<uint64_t>(input) *
                          static_cast<uint64_t>(MulSumFactor(place.rank)));
  }

  static T Combine(Operator op, T a, T b) {
    const uint64_t x = static_cast<uint64_t>(a);
    const uint64_t y = static_cast<uint64_t>(b);
    switch (op) {
      case Operator::kProd:
        return static_cast<T>(x * y);
      case Operator::kMin:
        return std::min(a, b);
      case Operator::kMax:
        return std::max(a, b);
      case Operator::kBand:
        return static_cast<T>(x & y);
      case Operator::kBor:
        return static_cast<T>(x | y);
      case Operator::kBxor:
        return static_cast<T>(x ^ y);
      default:
        return static_cast<T>(x + y);
    }
  }
};

// ---- Booleans --------------------------------------------------------------

struct Boolean {
  using Stored = uint8_t;

  static uint8_t Whole(int value) { return value != 0; }

  // Now and then the one value that decides, so that results are mixed. What
  // is true in a reduction's input is any byte but 0.
  static uint8_t Input(const Place& place) {
    const Operator op = place.recipe.op;
    const uint64_t random = place.Random();
    if (op == Operator::kNone) return random % 2;
    const uint64_t ranks = static_cast<uint64_t>(place.recipe.ranks);
    const bool rare = random % (ranks + 1) == 0;
    const bool value = op == Operator::kBxor ? random % 2 == 1
                       : IsAnd(op)           ? !rare
                                             : rare;
    return value ? static_cast<uint8_t>(1 + (random >> 32) % 255) : 0;
  }

  static uint8_t Fold(const Recipe& recipe, uint64_t position) {
    int trues = 0;
    for (int rank = 0; rank < recipe.ranks; ++rank)
      trues += Input({recipe, rank, position}) != 0;
    if (recipe.op == Operator::kBxor) return trues % 2;
    return IsAnd(recipe.op) ? trues == recipe.ranks : trues > 0;
  }

  static bool IsAnd(Operator op) {
    return op == Operator::kProd || op == Operator::kMin ||
           op == Operator::kBand;
  }
};

// ---- Floating point --------------------------------------------------------

struct Float32 {
  using Stored = uint32_t;
  static constexpr FloatFormat kFormat = {8, 23, false};
  static Stored Pack(double value) {
    return std::bit_cast<Stored>(static_cast<float>(value));
  }
  static double Unpack(Stored bits) { return std::bit_cast<float>(bits); }
};

struct Float64 {
  using Stored = uint64_t;
  static constexpr FloatFormat kFormat = {11, 52, false};
  static Stored Pack(double value) { return std::bit_cast<Stored>(value); }
  static double Unpack(Stored bits) { return std::bit_cast<double>(bits); }
};

template <typename Bits, const FloatFormat& format>
struct Narrow {
  using Stored = Bits;
  static constexpr FloatFormat kFormat = format;
  static Stored Pack(double value) {
    return static_cast<Stored>(Encode(format, value));
  }
  static double Unpack(Stored bits) { return Decode(format, bits); }
};

template <typename Coding>
struct Floating {
  using Stored = typename Coding::Stored;
  static constexpr uint64_t kMantissa = uint64_t{1}
                                        << Coding::kFormat.mantissa_bits;

  static Stored Whole(int value) { return Coding::Pack(value); }

  static Stored Input(const Place& place) {
    const uint64_t random = place.Random();
    switch (place.recipe.op) {
      case Operator::kSum:
      case Operator::kAvg:
      case Operator::kMulSum:
        return Coding::Pack(Summand(place, random));
      case Operator::kProd:
        return Coding::Pack(Factor(place, random));
      case Operator::kMin:
      case Operator::kMax:
        return Finite(static_cast<Stored>(random));
      default:
        return static_cast<Stored>(random);
    }
  }

  static double Summand(const Place& place, uint64_t random) {
    const Share share(place.recipe, 2 * kMantissa);
    if (place.Role() >= share.active) return 0;
    return Signed(random,
                  static_cast<double>(1 + (random >> 1) % share.largest));
  }

  // One rank brings a full mantissa, up to four a power of two, so that no
  // partial product leaves the range of the shortest type.
  static double Factor(const Place& place, uint64_t random) {
    const uint64_t role = place.Role();
    if (role > 4) return Signed(random, 1);
    if (role > 0) return Signed(random, (random & 2) != 0 ? 2 : 0.5);
    const uint64_t mantissa = kMantissa + (random >> 1) % kMantissa;
    return Signed(random, static_cast<double>(mantissa) / kMantissa);
  }

  static double Signed(uint64_t random, double magnitude) {
    return random % 2 == 1 ? -magnitude : magnitude;
  }

  static Stored Finite(Stored bits) {
    const Stored exponent =
        ((Stored{1} << Coding::kFormat.exponent_bits) - 1) * kMantissa;
    return (bits & exponent) == exponent ? bits ^ kMantissa : bits;
  }

  static Stored Fold(const Recipe& recipe, uint64_t position) {
    double total = Factored({recipe, 0, position});
    for (int rank = 1; rank < recipe.ranks; ++rank)
      total = Combine(recipe.op, total, Factored({recipe, rank, position}));
    if (recipe.op == Operator::kAvg) total /= recipe.ranks;
    return Coding::Pack(total);
  }

  static double Factored(const Place& place) {
    const double input = Coding::Unpack(Input(place));
    if (place.recipe.op != Operator::kMulSum) return input;
    return input * MulSumFactor(place.rank);
  }

  static double Combine(Operator op, double a, double b) {
    switch (op) {
      case Operator::kProd:
        return a * b;
      case Operator::kMin:
        return Less(b, a) ? b : a;
      case Operator::kMax:
        return Less(a, b) ? b : a;
      default:
        return a + b;
    }
  }

  // -0 < +0.
  static bool Less(double a, double b) {
    return a < b || (a == b && std::signbit(a) && !std::signbit(b));
  }
};

// Calls visit(values, components) with the code of the type's components.
template <typename Visitor>
void WithType(trncclDataType_t type, Visitor visit) {
  switch (type) {
    case trncclInt8:
      return visit(Integer<int8_t>(), 1);
    case trncclUint8:
      return visit(Integer<uint8_t>(), 1);
    case trncclInt16:
      return visit(Integer<int16_t>(), 1);
    case trncclUint16:
      return visit(Integer<uint16_t>(), 1);
    case trncclInt32:
      return visit(Integer<int32_t>(), 1);
    case trncclUint32:
      return visit(Integer<uint32_t>(), 1);
    case trncclInt64:
      return visit(Integer<int64_t>(), 1);
    case trncclUint64:
      return visit(Integer<uint64_t>(), 1);
    case trncclFloat16:
      return visit(Floating<Narrow<uint16_t, kFloat16Format>>(), 1);
    case trncclBfloat16:
      return visit(Floating<Narrow<uint16_t, kBfloat16Format>>(), 1);
    case trncclFloat32:
      return visit(Floating<Float32>(), 1);
    case trncclFloat64:
      return visit(Floating<Float64>(), 1);
    case trncclFloat8e4m3:
      return visit(Floating<Narrow<uint8_t, kFloat8e4m3Format>>(), 1);
    case trncclFloat8e5m2:
      return visit(Floating<Narrow<uint8_t, kFloat8e5m2Format>>(), 1);
    case trncclBool:
      return visit(Boolean(), 1);
    case trncclComplex64:
      return visit(Floating<Float32>(), 2);
    case trncclComplex128:
      return visit(Floating<Float64>(), 2);
  }
  std::abort();
}

// Stores value(position) for every component of the range.
template <typename Stored, typename Value>
void Store(Range range, size_t components, void* out, Value value) {
  std::byte* target = static_cast<std::byte*>(out);
  const uint64_t first = range.begin * components;
  for (size_t i = 0; i < range.count * components; ++i) {
    const Stored stored = value(first + i);
    std::memcpy(target + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

}  // namespace

void MakeInput(const Recipe& recipe, int rank, Range range, void* out) {
  WithType(recipe.type, [&](auto values, size_t components) {
    using Values = decltype(values);
    Store<typename Values::Stored>(range, components, out, [&](uint64_t at) {
      return Values::Input({recipe, rank, at});
    });
  });
}

void MakeFold(const Recipe& recipe, Range range, void* out) {
  WithType(recipe.type, [&](auto values, size_t components) {
    using Values = decltype(values);
    Store<typename Values::Stored>(range, components, out, [&](uint64_t at) {
      return Values::Fold(recipe, at);
    });
  });
}

void MakeNumber(trncclDataType_t type, int value, void* out) {
  WithType(type, [&](auto values, size_t components) {
    using Values = decltype(values);
    Store<typename Values::Stored>({0, 1}, components, out, [&](uint64_t at) {
      return Values::Whole(at == 0 ? value : 0);
    });
  });
}

}  // namespace trnccl::perf
