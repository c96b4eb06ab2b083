// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One rank of a meeting, for tests on hosts of their own (hosts_test.py):
//   meet RANK RANKS ID_FILE INTERFACES FAMILY
// Rank 0 makes the id and writes it to the file, others wait for that. Prints
// the id's addresses and whom it met, or the error.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/bootstrap.h"

namespace trnccl {
namespace {

constexpr int kTimeoutMs = 20'000;

SocketFamily FamilyOf(std::string_view name) {
  if (name == "4") return SocketFamily::kIpv4;
  return name == "6" ? SocketFamily::kIpv6 : SocketFamily::kAny;
}

absl::StatusOr<UniqueId> MakeId(const std::string& path,
                                const InterfaceChoice& choice) {
  ASSIGN_OR_RETURN(UniqueId id, CreateUniqueId(choice));
  // Whole or not at all for who waits.
  const std::string unfinished = path + ".part";
  std::ofstream(unfinished, std::ios::binary) << id.Serialize();
  if (rename(unfinished.c_str(), path.c_str()) != 0)
    return absl::UnavailableError("can't write " + path);
  return id;
}

absl::StatusOr<UniqueId> AwaitId(const std::string& path,
                                 const Deadline& deadline) {
  while (!deadline.expired()) {
    std::ifstream file(path, std::ios::binary);
    if (file) {
      return UniqueId::Parse(
          std::string{std::istreambuf_iterator<char>(file), {}});
    }
    usleep(1'000);
  }
  return absl::DeadlineExceededError("nobody wrote " + path);
}

absl::Status Meet(const Membership& me, const std::string& path,
                  const InterfaceChoice& choice) {
  const Deadline deadline = Deadline::After(kTimeoutMs);
  ASSIGN_OR_RETURN(const UniqueId id, me.rank == 0 ? MakeId(path, choice)
                                                   : AwaitId(path, deadline));
  std::cout << id.ToString() << std::endl;
  BootstrapOptions options{.patience = {deadline}, .interfaces = choice};
  ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::Connect(id, me, options));
  ASSIGN_OR_RETURN(const auto all,
                   bootstrap->AllGather(std::to_string(me.rank), deadline));
  std::cout << "met " << absl::StrJoin(all, " ") << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace trnccl

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const absl::Status met = trnccl::Meet(
      {.rank = std::atoi(argv[1]), .ranks = std::atoi(argv[2])}, argv[3],
      {.names = argv[4], .family = trnccl::FamilyOf(argv[5])});
  if (met.ok()) return 0;
  std::cout << met << std::endl;
  return 1;
}
