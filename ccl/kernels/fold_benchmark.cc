// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Rates of the folds: bytes of the result, and of all that is read and written.
//
//   bazel run //ccl/kernels:fold_benchmark -- --benchmark_filter=float32/sum
#include <cstring>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "ccl/kernels/fold.h"

namespace trnccl {
namespace {

struct Case {
  DataType type;
  ReduceOp op;
  int64_t operands;
  int64_t results;
  int64_t bytes;  // of each operand and result
};

void RunFold(benchmark::State& state, const Case& c) {
  // Ones in any format are ordinary numbers: no subnormals to slow it down.
  std::vector<std::vector<uint8_t>> buffers(
      c.operands + c.results, std::vector<uint8_t>(c.bytes + 64, 0x31));
  const auto aligned = [](std::vector<uint8_t>& buffer) {
    return buffer.data() + 64 - reinterpret_cast<uintptr_t>(buffer.data()) % 64;
  };
  std::vector<FoldOperand> operands;
  for (int64_t i = 0; i < c.operands; ++i)
    operands.push_back({aligned(buffers[i]), i == 0});
  std::vector<void*> results;
  for (int64_t i = 0; i < c.results; ++i)
    results.push_back(aligned(buffers[c.operands + i]));
  const Folder folder =
      MakeFolder({.type = c.type, .op = c.op, .ranks = 3}).value();
  const FoldCall call = {.operands = operands,
                         .results = results,
                         .count = c.bytes / ElementBytes(c.type),
                         .finish = true};
  for (auto _ : state) {
    folder.Fold(call);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * c.bytes);
  state.counters["traffic"] = benchmark::Counter(
      static_cast<double>(c.bytes * (c.operands + c.results)),
      benchmark::Counter::kIsIterationInvariantRate);
}

void RunCopy(benchmark::State& state) {
  const size_t bytes = state.range(0);
  std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(RunCopy)->Name("memcpy")->Arg(64)->Arg(8 << 10)->Arg(256 << 10);

void Register(const Case& c) {
  const std::string name = std::string(Name(c.type)) + "/" +
                           std::string(Name(c.op)) +
                           "/operands:" + std::to_string(c.operands) +
                           "/results:" + std::to_string(c.results) +
                           "/bytes:" + std::to_string(c.bytes);
  benchmark::RegisterBenchmark(
      name.c_str(), [c](benchmark::State& state) { RunFold(state, c); });
}

const bool registered = [] {
  for (int type = 0; type < kDataTypes; ++type)
    for (int op = 0; op < kReduceOps; ++op)
      for (const int64_t operands : {2, 8})
        for (const int64_t results : {1, 2})
          for (const int64_t bytes : {64, 8 << 10, 256 << 10, 4 << 20}) {
            const Case c = {static_cast<DataType>(type),
                            static_cast<ReduceOp>(op), operands, results,
                            bytes};
            if (IsSupported(c.type, c.op)) Register(c);
          }
  return true;
}();

}  // namespace
}  // namespace trnccl
