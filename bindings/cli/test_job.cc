// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A rank that does what it's told, a command a line on standard input, for
// tests that look at it from outside. Answers each with "ok" or the error.
//
//   id                      answers with an id for init
//   init ID RANKS RANK
//   all_reduce COUNT        float32, as all
//   broadcast COUNT ROOT
//   recv COUNT PEER
//   dump FILE
//   fork                    leaves a child that does nothing
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "ccl/trnccl.h"

namespace {

trncclComm_t comm = nullptr;

std::string Id() {
  trncclUniqueId id;
  if (trncclGetUniqueId(&id) != trncclSuccess) return "none";
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(&id), sizeof(id)});
}

trncclResult_t Init(std::istream& words) {
  std::string text;
  int ranks = 0, rank = 0;
  words >> text >> ranks >> rank;
  trncclUniqueId id;
  std::memcpy(&id, absl::HexStringToBytes(text).data(), sizeof(id));
  return trncclCommInitRank(&comm, ranks, id, rank);
}

trncclResult_t Call(const std::string& name, std::istream& words) {
  size_t count = 0;
  int other = 0;
  words >> count >> other;
  std::vector<float> in(count), out(count);
  if (name == "all_reduce")
    return trncclAllReduce(in.data(), out.data(), count, trncclFloat32,
                           trncclSum, comm, nullptr);
  if (name == "broadcast")
    return trncclBroadcast(in.data(), out.data(), count, trncclFloat32, other,
                           comm, nullptr);
  return trncclRecv(out.data(), count, trncclFloat32, other, 0, nullptr, comm,
                    nullptr);
}

trncclResult_t Dump(std::istream& words) {
  std::string path;
  words >> path;
  char* text = nullptr;
  const trncclResult_t result = trncclCommDumpCalls(comm, &text);
  if (result == trncclSuccess) std::ofstream(path) << text;
  trncclFreeText(text);
  return result;
}

trncclResult_t Fork() {
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It would keep open what the test waits for the end of.
    close(STDOUT_FILENO);
    for (;;) pause();
  }
  return trncclSuccess;
}

trncclResult_t Do(const std::string& name, std::istream& words) {
  if (name == "init") return Init(words);
  if (name == "dump") return Dump(words);
  if (name == "fork") return Fork();
  return Call(name, words);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "id") {
      std::cout << Id() << std::endl;
      continue;
    }
    const bool ok = Do(name, words) == trncclSuccess;
    std::cout << (ok ? "ok" : trncclGetLastError(comm)) << std::endl;
  }
  if (comm != nullptr) trncclCommDestroy(comm);
  return 0;
}
