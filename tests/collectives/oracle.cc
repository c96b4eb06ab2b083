// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/collectives/oracle.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "algorithms/spec.h"
#include "algorithms/verifier.h"
#include "ccl/base/check.h"
#include "ccl/kernels/fold.h"

namespace trnccl {
namespace {

uint64_t Hash(uint64_t rank, uint64_t position) {
  uint64_t value = rank * 0x9e3779b97f4a7c15u + position + 1;
  value ^= value >> 31;
  value *= 0xbf58476d1ce4e5b9u;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebu;
  return value ^ value >> 33;
}

// Clears the exponent's top bit, so that the value is finite and below 2.
void MakeFinite(std::byte* element, DataType type) {
  int top_byte = -1;
  switch (type) {
    case DataType::kFloat16:
    case DataType::kBFloat16:
      top_byte = 1;
      break;
    case DataType::kFloat32:
      top_byte = 3;
      break;
    case DataType::kFloat64:
      top_byte = 7;
      break;
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      top_byte = 0;
      break;
    case DataType::kComplex64:
      element[3] &= std::byte{0xbf};
      top_byte = 7;
      break;
    case DataType::kComplex128:
      element[7] &= std::byte{0xbf};
      top_byte = 15;
      break;
    default:
      return;
  }
  element[top_byte] &= std::byte{0xbf};
}

Bytes RandomInput(int rank, int64_t elements, DataType type) {
  const size_t element_bytes = ElementBytes(type);
  Bytes input(static_cast<size_t>(elements) * element_bytes);
  for (size_t i = 0; i < input.size(); ++i)
    input[i] = static_cast<std::byte>(Hash(rank, i));
  for (int64_t i = 0; i < elements; ++i)
    MakeFinite(input.data() + static_cast<size_t>(i) * element_bytes, type);
  return input;
}

Folder FolderOf(const FoldSpec& spec) {
  absl::StatusOr<Folder> folder = MakeFolder(spec);
  TRNCCL_CHECK(folder.ok());
  return *folder;
}

enum class Partials { kNarrow, kWide };

void FoldBy(const Folder& folder, Partials partials,
            const InterpretedFold& fold) {
  const bool strict = partials == Partials::kWide;
  std::vector<FoldOperand> operands;
  for (const InterpretedFold::Operand& operand : fold.operands) {
    operands.push_back({.data = operand.data,
                        .raw = operand.raw,
                        .wide = strict && operand.partial});
  }
  void* const results[] = {fold.result};
  folder.Fold({.operands = operands,
               .results = results,
               .count = static_cast<size_t>(fold.count),
               .finish = fold.completes,
               .wide_result = strict && fold.partial});
}

// Each rank's input times its factor, rounded to the type as prepare does.
std::vector<Bytes> Premultiplied(const Case& one,
                                 const std::vector<Bytes>& inputs) {
  std::vector<Bytes> scaled = inputs;
  for (int rank = 0; rank < one.ranks; ++rank) {
    const double factor = PremulFactorOf(rank);
    const Folder folder = FolderOf(
        {.type = one.type,
         .op = ReduceOp::kPremulSum,
         .factor = {.real = factor, .integer = static_cast<int64_t>(factor)}});
    const FoldOperand operands[] = {{.data = inputs[rank].data(), .raw = true}};
    void* const results[] = {scaled[rank].data()};
    folder.Fold({.operands = operands,
                 .results = results,
                 .count = inputs[rank].size() / ElementBytes(one.type)});
  }
  return scaled;
}

std::vector<int64_t> CountsOf(const Case& one) {
  if (!one.counts.empty()) return one.counts;
  return {one.count};
}

int64_t ElementsIn(const Case& one, const BlockRange& blocks) {
  if (one.counts.empty()) return blocks.count * one.count;
  int64_t elements = 0;
  for (int64_t i = 0; i < blocks.count; ++i)
    elements += one.counts[blocks.first + i * blocks.stride];
  return elements;
}

}  // namespace

double PremulFactorOf(int rank) { return rank % 3 == 0 ? 3 : 5; }

Bytes ElementOf(DataType type, double value) {
  // The bytes of 1 in each format, multiplied by the library's own folds.
  const std::map<DataType, std::vector<uint8_t>> ones = {
      {DataType::kFloat16, {0x00, 0x3c}},
      {DataType::kBFloat16, {0x80, 0x3f}},
      {DataType::kFloat32, {0x00, 0x00, 0x80, 0x3f}},
      {DataType::kFloat64, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
      {DataType::kFloat8E4M3, {0x38}},
      {DataType::kFloat8E5M2, {0x3c}},
      {DataType::kComplex64, {0x00, 0x00, 0x80, 0x3f, 0, 0, 0, 0}},
      {DataType::kComplex128,
       {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0}}};
  Bytes one(ElementBytes(type));
  one[0] = std::byte{1};
  if (const auto found = ones.find(type); found != ones.end())
    std::memcpy(one.data(), found->second.data(), one.size());
  Bytes element(one.size());
  const Folder folder = FolderOf(
      {.type = type,
       .op = ReduceOp::kPremulSum,
       .factor = {.real = value, .integer = static_cast<int64_t>(value)}});
  const FoldOperand operands[] = {{.data = one.data(), .raw = true}};
  void* const results[] = {element.data()};
  folder.Fold({.operands = operands, .results = results, .count = 1});
  return element;
}

std::string Describe(const Case& one) {
  return absl::StrCat(std::string(Name(one.algorithm->collective)), ":",
                      std::string(one.algorithm->name), " ranks ", one.ranks,
                      " root ", one.root, " ", std::string(Name(one.type)), " ",
                      std::string(Name(one.op)), " count ", one.count,
                      " segment ", one.segment_count,
                      one.strict ? " strict" : "");
}

std::vector<Bytes> InputsOf(const Case& one) {
  const Spec& spec = SpecOf(one.algorithm->collective);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < one.ranks; ++rank) {
    const BlockRange blocks =
        spec.input({.ranks = one.ranks, .rank = rank, .root = one.root});
    inputs.push_back(RandomInput(rank, ElementsIn(one, blocks), one.type));
  }
  return inputs;
}

std::vector<Bytes> ExpectedOutputs(const Case& one,
                                   const std::vector<Bytes>& inputs) {
  const Spec& spec = SpecOf(one.algorithm->collective);
  const Schedule schedule = BuildSchedule(
      *one.algorithm, {.ranks = one.ranks, .root = one.root, .grid = one.grid});
  const bool premul = one.op == ReduceOp::kPremulSum;
  const bool wide = one.strict && spec.reduces && IsNarrowFloat(one.type);
  Folder folder;
  if (spec.reduces)
    folder = FolderOf({.type = one.type,
                       .op = premul ? ReduceOp::kSum : one.op,
                       .ranks = one.ranks});
  const std::vector<int64_t> counts = CountsOf(one);
  const int64_t largest = *std::max_element(counts.begin(), counts.end());
  const InterpretedCall call{.collective = one.algorithm->collective,
                             .ranks = one.ranks,
                             .root = one.root,
                             .block_counts = counts,
                             .element_bytes = ElementBytes(one.type),
                             .partial_bytes = wide ? sizeof(float) : 0,
                             .segment_count = std::max<int64_t>(
                                 1, std::min(one.segment_count, largest))};
  absl::StatusOr<std::vector<Bytes>> outputs = Interpret(
      schedule, call, premul ? Premultiplied(one, inputs) : inputs,
      [&](const InterpretedFold& fold) {
        FoldBy(folder, wide ? Partials::kWide : Partials::kNarrow, fold);
      });
  TRNCCL_CHECK(outputs.ok());
  return *std::move(outputs);
}

}  // namespace trnccl
