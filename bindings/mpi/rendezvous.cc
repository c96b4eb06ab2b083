// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

constexpr uint32_t kMagic = 0x74726e63;

// What a process says when it connects.
struct Hello {
  uint32_t magic = kMagic;
  int32_t process = 0;
};

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// Of `host`, or of all interfaces if it's null.
absl::StatusOr<Addresses> Resolve(const char* host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host, absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("MASTER_ADDR '",
                                               host == nullptr ? "" : host,
                                               "': ", gai_strerror(error)));
  return Addresses(found, freeaddrinfo);
}

std::string Where(const RendezvousAddress& address) {
  return absl::StrCat(address.host, " port ", address.port,
                      " (the one after MASTER_PORT)");
}

bool IsReady(const Socket& socket, short events, Deadline deadline) {
  pollfd wanted = {socket.fd(), events, 0};
  return poll(&wanted, 1, deadline.remaining_ms()) == 1;
}

bool ReceiveAll(const Socket& socket, void* data, size_t bytes,
                Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!IsReady(socket, POLLIN, deadline)) return false;
    const ssize_t got = recv(socket.fd(), at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// Messages this short always fit the socket's buffer.
bool SendAll(const Socket& socket, const void* data, size_t bytes) {
  return send(socket.fd(), data, bytes, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes);
}

Socket NewSocket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// A name may be one of the network's that process 0's machine has no address
// of, or that its own hosts file gives to the loopback interface.
bool StaysInside(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

absl::StatusOr<Socket> Listen(const RendezvousAddress& address) {
  ASSIGN_OR_RETURN(
      const Addresses found,
      Resolve(StaysInside(address.host) ? address.host.c_str() : nullptr,
              address.port));
  const int on = 1;
  const int off = 0;
  int error = EAFNOSUPPORT;
  for (const int family : {AF_INET6, AF_INET}) {  // IPv6 takes IPv4 as well.
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      if (at->ai_family != family) continue;
      Socket listener = NewSocket(family);
      setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      setsockopt(listener.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
      if (bind(listener.fd(), at->ai_addr, at->ai_addrlen) == 0 &&
          listen(listener.fd(), SOMAXCONN) == 0)
        return listener;
      error = errno;
    }
  }
  return absl::UnavailableError(
      absl::StrCat("process 0 can't listen at ", Where(address), ": ",
                   strerror(error), "; choose another MASTER_PORT"));
}

absl::StatusOr<Socket> Connect(const addrinfo& to, Deadline deadline) {
  Socket peer = NewSocket(to.ai_family);
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (connect(peer.fd(), to.ai_addr, to.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    if (!IsReady(peer, POLLOUT, deadline))
      return absl::UnavailableError("no answer");
    getsockopt(peer.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  }
  if (error != 0) return absl::UnavailableError(strerror(error));
  return peer;
}

// From whichever of the addresses answers.
absl::Status TryToGet(const RendezvousAddress& address, const Hello& hello,
                      Deadline deadline, trncclUniqueId* id) {
  constexpr int64_t kConnectMs = 5'000;
  ASSIGN_OR_RETURN(const Addresses found,
                   Resolve(address.host.c_str(), address.port));
  absl::Status status;
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    absl::StatusOr<Socket> peer =
        Connect(*to, Deadline::Earlier(deadline, Deadline::After(kConnectMs)));
    if (peer.ok() && SendAll(*peer, &hello, sizeof(hello)) &&
        ReceiveAll(*peer, id, sizeof(*id), deadline))
      return absl::OkStatus();
    status = peer.ok() ? absl::UnavailableError("it closed the connection")
                       : peer.status();
  }
  return status;
}

absl::Status Give(const Launch& launch, const RendezvousAddress& address,
                  const trncclUniqueId& id) {
  constexpr int64_t kHelloMs = 5'000;
  const Deadline deadline = Deadline::After(address.timeout_ms);
  ASSIGN_OR_RETURN(const Socket listener, Listen(address));
  std::vector<int> missing;
  for (int process = 1; process < launch.processes; ++process)
    missing.push_back(process);
  while (!missing.empty()) {
    if (!IsReady(listener, POLLIN, deadline)) {
      std::string who;
      for (int process : missing) absl::StrAppend(&who, " ", process);
      return absl::DeadlineExceededError(
          absl::StrCat("no connection to ", Where(address), " within ",
                       address.timeout_ms, " ms by processes", who));
    }
    const Socket peer(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    if (peer.fd() < 0 ||
        !ReceiveAll(peer, &hello, sizeof(hello),
                    Deadline::Earlier(deadline, Deadline::After(kHelloMs))) ||
        hello.magic != kMagic)
      continue;  // a stranger
    if (SendAll(peer, &id, sizeof(id))) std::erase(missing, hello.process);
  }
  return absl::OkStatus();
}

absl::Status Get(const Launch& launch, const RendezvousAddress& address,
                 trncclUniqueId* id) {
  const Deadline deadline = Deadline::After(address.timeout_ms);
  const Hello hello = {kMagic, launch.process};
  absl::Status last;
  do {
    last = TryToGet(address, hello, deadline, id);
    if (last.ok()) return last;
    // Process 0, or its name in the cluster, may not be there yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (!deadline.expired());
  return absl::DeadlineExceededError(
      absl::StrCat("process ", launch.process,
                   " hasn't got the unique id from process 0 at ",
                   Where(address), " within ", address.timeout_ms,
                   " ms; last: ", std::string(last.message())));
}

}  // namespace

std::string FirstHost(std::string_view hosts) {
  std::string first;
  while (!hosts.empty() && hosts.front() != ',') {
    const size_t stop = hosts.find_first_of(",[");
    first += hosts.substr(0, stop);
    if (stop == hosts.npos || hosts[stop] == ',') break;
    hosts.remove_prefix(stop + 1);
    first += hosts.substr(0, hosts.find_first_of(",-]"));
    const size_t end = hosts.find(']');
    hosts.remove_prefix(end == hosts.npos ? hosts.size() : end + 1);
  }
  return first;
}

absl::StatusOr<RendezvousAddress> FindRendezvous(Environment environment) {
  constexpr int kFirstPort = 20'000;
  constexpr int kPorts = 10'000;  // below those that the kernel hands out
  const char* host = environment("MASTER_ADDR");
  const char* port = environment("MASTER_PORT");
  const char* nodes = environment("SLURM_STEP_NODELIST");
  const char* job = environment("SLURM_JOB_ID");
  RendezvousAddress address;
  address.host = host != nullptr    ? host
                 : nodes != nullptr ? FirstHost(nodes)
                                    : "";
  int number = 0;
  if (port != nullptr && absl::SimpleAtoi(port, &number))
    address.port = number;
  else if (port == nullptr && job != nullptr && absl::SimpleAtoi(job, &number))
    address.port = kFirstPort + number % kPorts;
  if (address.host.empty() || address.port < 1 || address.port > 65534)
    return absl::InvalidArgumentError(
        "several processes without Open MPI's mpirun find each other through "
        "MASTER_ADDR and MASTER_PORT (1 to 65534): set both, or, in a Slurm "
        "job, start them by srun");
  ++address.port;
  return address;
}

absl::Status ShareId(const Launch& launch, const RendezvousAddress& address,
                     trncclUniqueId* id) {
  return launch.process == 0 ? Give(launch, address, *id)
                             : Get(launch, address, id);
}

}  // namespace trnccl::perf
