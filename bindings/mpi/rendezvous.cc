// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/rendezvous.h"

#include <netdb.h>
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

absl::StatusOr<Addresses> Resolve(const RendezvousAddress& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("MASTER_ADDR '", address.host,
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

absl::StatusOr<Socket> Listen(const RendezvousAddress& address) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(address));
  Socket listener(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.fd(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener.fd(), SOMAXCONN) != 0)
    return absl::UnavailableError(
        absl::StrCat("process 0 can't listen at ", Where(address), ": ",
                     strerror(errno), "; choose another MASTER_PORT"));
  return listener;
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
    if (!ReceiveAll(peer, &hello, sizeof(hello),
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
  ASSIGN_OR_RETURN(const Addresses found, Resolve(address));
  const Hello hello = {kMagic, launch.process};
  while (!deadline.expired()) {
    const Socket peer(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(peer.fd(), found->ai_addr, found->ai_addrlen) == 0 &&
        SendAll(peer, &hello, sizeof(hello)) &&
        ReceiveAll(peer, id, sizeof(*id), deadline))
      return absl::OkStatus();
    // Process 0 may not have started yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("process ", launch.process,
                   " hasn't got the unique id from process 0 at ",
                   Where(address), " within ", address.timeout_ms, " ms"));
}

}  // namespace

absl::StatusOr<RendezvousAddress> FindRendezvous(Environment environment) {
  const char* host = environment("MASTER_ADDR");
  const char* port = environment("MASTER_PORT");
  int number = 0;
  if (host == nullptr || port == nullptr || !absl::SimpleAtoi(port, &number) ||
      number < 1 || number > 65534)
    return absl::InvalidArgumentError(
        "several processes without Open MPI's mpirun find each other through "
        "MASTER_ADDR and MASTER_PORT (1 to 65534): set both");
  return RendezvousAddress{host, number + 1};
}

absl::Status ShareId(const Launch& launch, const RendezvousAddress& address,
                     trncclUniqueId* id) {
  return launch.process == 0 ? Give(launch, address, *id)
                             : Get(launch, address, id);
}

}  // namespace trnccl::perf
