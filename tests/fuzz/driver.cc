// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The main() of a harness without libFuzzer: replays its seeds, then runs a
// bounded number of seeded mutations of them.
//
//   x_fuzz FILE|FOLDER... [--runs=N] [--seed=N]
//
// What a run that crashes was given is left in the file that's named at first.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMaxBytes = 4096;
constexpr int kMaxMutations = 6;

using Bytes = std::vector<uint8_t>;
using Random = std::mt19937_64;

size_t Below(size_t bound, Random& random) { return random() % bound; }

// Of 1 to 8 bytes: what lengths and counts break at.
void WriteEdge(Bytes* bytes, Random& random) {
  static constexpr uint64_t kEdges[] = {
      0,         1,          7,         8,
      64,        0x7f,       0x80,      0xff,
      0x7fff,    0xffff,     1u << 20,  INT32_MAX,
      1u << 31,  UINT32_MAX, INT64_MAX, UINT64_MAX - 7,
      UINT64_MAX};
  const uint64_t edge = kEdges[Below(std::size(kEdges), random)];
  const size_t width = size_t{1} << Below(4, random);
  const size_t at = Below(bytes->size(), random);
  std::memcpy(bytes->data() + at, &edge, std::min(width, bytes->size() - at));
}

void Mutate(Bytes* bytes, const Bytes& other, Random& random) {
  if (bytes->empty()) bytes->push_back(0);
  const size_t at = Below(bytes->size(), random);
  const auto position = bytes->begin() + static_cast<ptrdiff_t>(at);
  const size_t length =
      1 + Below(std::min<size_t>(bytes->size() - at, 32), random);
  const auto end = position + static_cast<ptrdiff_t>(length);
  switch (Below(7, random)) {
    case 0:
      *position ^= static_cast<uint8_t>(1u << Below(8, random));
      break;
    case 1:
      *position = static_cast<uint8_t>(random());
      break;
    case 2:
      WriteEdge(bytes, random);
      break;
    case 3:
      bytes->erase(position, end);
      break;
    case 4: {
      const Bytes copy(position, end);
      bytes->insert(bytes->begin() + static_cast<ptrdiff_t>(at), copy.begin(),
                    copy.end());
      break;
    }
    case 5:
      bytes->resize(at);
      break;
    case 6:
      if (at < other.size())
        bytes->insert(position, other.begin() + static_cast<ptrdiff_t>(at),
                      other.end());
      break;
  }
  if (bytes->size() > kMaxBytes) bytes->resize(kMaxBytes);
}

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes{std::istreambuf_iterator<char>(file), {}};
}

std::vector<Bytes> ReadSeeds(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> seeds;
  for (const auto& file : files) seeds.push_back(ReadFile(file));
  return seeds;
}

std::string CrashPath() {
  for (const char* name : {"TEST_UNDECLARED_OUTPUTS_DIR", "TEST_TMPDIR"})
    if (const char* folder = std::getenv(name))
      return std::string(folder) + "/input";
  return "/tmp/fuzz-input." + std::to_string(getpid());
}

void Run(const Bytes& bytes, const std::string& crash_path) {
  std::ofstream(crash_path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  // Of exactly this size, so that a sanitizer sees a read past its end.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 1000;
  uint64_t seed = std::random_device{}();
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--runs=")) {
      runs = std::stoi(argument.substr(7));
    } else if (argument.starts_with("--seed=")) {
      seed = std::stoull(argument.substr(7));
    } else {
      paths.push_back(argument);
    }
  }
  std::vector<Bytes> seeds = ReadSeeds(paths);
  const std::string crash_path = CrashPath();
  std::cout << seeds.size() << " seeds, " << runs
            << " mutations, --seed=" << seed << "; the last input is in "
            << crash_path << std::endl;
  for (const Bytes& bytes : seeds) Run(bytes, crash_path);
  seeds.emplace_back();
  Random random(seed);
  for (int run = 0; run < runs; ++run) {
    Bytes bytes = seeds[Below(seeds.size(), random)];
    const size_t mutations = 1 + Below(kMaxMutations, random);
    for (size_t i = 0; i < mutations; ++i)
      Mutate(&bytes, seeds[Below(seeds.size(), random)], random);
    Run(bytes, crash_path);
  }
  std::filesystem::remove(crash_path);
}
