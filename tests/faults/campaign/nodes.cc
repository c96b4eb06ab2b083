// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/faults/campaign/nodes.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

constexpr const char* kHostId = "TRNCCL_HOST_ID=";

[[noreturn]] void Die(const std::string& what) {
  std::perror(what.c_str());
  _exit(1);
}

void EnterNamespace(pid_t member, const char* kind) {
  const std::string path = absl::StrCat("/proc/", member, "/ns/", kind);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, 0) != 0) Die(path);
  close(fd);
}

// In a child, with the flags of the node's interface.
void InNetworkOf(pid_t member,
                 const std::function<void(int fd, ifreq* eth0)>& body) {
  const pid_t child = fork();
  if (child == 0) {
    EnterNamespace(member, "net");
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq eth0 = {};
    std::strncpy(eth0.ifr_name, "eth0", IFNAMSIZ - 1);
    if (ioctl(fd, SIOCGIFFLAGS, &eth0) != 0) Die("eth0");
    body(fd, &eth0);
    _exit(0);
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) Die("eth0");
}

std::string MeetingFile(const std::string& folder, int node) {
  return absl::StrCat(folder, "/node", node);
}

// Written whole or not at all.
void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path + ".part") << text;
  if (std::rename((path + ".part").c_str(), path.c_str()) != 0) Die(path);
}

int NumberFromLauncher(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) Die(name);
  return std::atoi(text);
}

}  // namespace

void EnterNode(pid_t member) {
  std::ifstream environment(absl::StrCat("/proc/", member, "/environ"));
  std::string entry;
  while (std::getline(environment, entry, '\0')) {
    if (entry.rfind(kHostId, 0) == 0)
      setenv("TRNCCL_HOST_ID", entry.c_str() + std::strlen(kHostId), 1);
  }
  cpu_set_t cores;
  if (sched_getaffinity(member, sizeof(cores), &cores) != 0 ||
      sched_setaffinity(0, sizeof(cores), &cores) != 0)
    Die("affinity");
  for (const char* kind : {"net", "uts", "ipc"}) EnterNamespace(member, kind);
  // Last, since /proc is looked up through it.
  EnterNamespace(member, "mnt");
}

void SetLink(pid_t member, Link link) {
  InNetworkOf(member, [link](int fd, ifreq* eth0) {
    if (link == Link::kUp) {
      eth0->ifr_flags |= IFF_UP;
    } else {
      eth0->ifr_flags &= ~IFF_UP;
    }
    if (ioctl(fd, SIOCSIFFLAGS, eth0) != 0) Die("eth0");
  });
}

void AwaitNetwork(pid_t member) {
  InNetworkOf(member, [](int fd, ifreq* eth0) {
    while ((eth0->ifr_flags & IFF_RUNNING) == 0) {
      usleep(1'000);
      if (ioctl(fd, SIOCGIFFLAGS, eth0) != 0) Die("eth0");
    }
  });
}

std::vector<std::string> MemoryFiles(pid_t member) {
  std::vector<std::string> names;
  const std::filesystem::path root = absl::StrCat("/proc/", member, "/root");
  for (const auto& entry :
       std::filesystem::directory_iterator(root / "dev" / "shm"))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<pid_t> Meet(const std::string& folder) {
  const int node = NumberFromLauncher("OMPI_COMM_WORLD_RANK");
  const int nodes = NumberFromLauncher("OMPI_COMM_WORLD_SIZE");
  WriteFile(MeetingFile(folder, node), absl::StrCat(getpid()));
  if (node != 0) {
    // The launcher ends it if node 0 fails.
    while (!std::filesystem::exists(folder + "/done")) usleep(20'000);
    _exit(0);
  }
  std::vector<pid_t> members(static_cast<size_t>(nodes));
  for (int i = 0; i < nodes; ++i) {
    while (!std::filesystem::exists(MeetingFile(folder, i))) usleep(20'000);
    std::ifstream(MeetingFile(folder, i)) >> members[static_cast<size_t>(i)];
  }
  return members;
}

void Part(const std::string& folder) { WriteFile(folder + "/done", ""); }

}  // namespace trnccl
