// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

// How long an abort may go unnoticed.
constexpr int kSliceMs = 20;

// Received at a time, so that a length alone makes no one allocate much.
constexpr size_t kReceiveStepBytes = 1 << 20;

constexpr int kBacklog = 4096;

constexpr int kPortTries = 16;

absl::Status SystemError(std::string_view what, int error) {
  const std::string text = absl::StrCat(
      absl::string_view(what.data(), what.size()), ": ", strerror(error));
  if (error == EMFILE || error == ENFILE) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; raise the limit of open files (ulimit -n)"));
  }
  if (error == ENOBUFS || error == ENOMEM)
    return absl::ResourceExhaustedError(text);
  if (error == EADDRINUSE) return absl::AlreadyExistsError(text);
  return absl::UnavailableError(text);
}

absl::StatusOr<Socket> OpenStream(const SocketAddress& address) {
  const int family =
      address.family == SocketAddress::Family::kIpv4 ? AF_INET : AF_INET6;
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                address.ToString());
  if (!socket.is_open()) {
    return SystemError(absl::StrCat("socket for ", address.ToString()), errno);
  }
  return socket;
}

void SetNoDelay(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

absl::Status WaitFor(const Socket& socket, short events,
                     const Patience& patience) {
  pollfd fd{socket.fd(), events, 0};
  RETURN_IF_ERROR(patience.Check());
  PollSlice(&fd, 1, patience);
  return absl::OkStatus();
}

absl::Status PeerClosed(const Socket& socket) {
  return absl::UnavailableError(
      absl::StrCat(socket.peer(), " closed the connection"));
}

}  // namespace

absl::Status Patience::Check() const {
  if (abort != nullptr && abort->load(std::memory_order_acquire)) {
    return absl::AbortedError("aborted");
  }
  if (deadline.expired()) return absl::DeadlineExceededError("timed out");
  return absl::OkStatus();
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    peer_ = std::move(other.peer_);
  }
  return *this;
}

void Socket::Close() {
  // Not retried on EINTR: Linux has released the descriptor by then.
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::StatusOr<SocketAddress> Socket::LocalAddress() const {
  sockaddr_storage storage;
  socklen_t bytes = sizeof(storage);
  auto* raw = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(fd_, raw, &bytes) != 0) {
    return SystemError("getsockname", errno);
  }
  const auto address = SocketAddress::FromSockaddr(raw);
  if (!address) return absl::InternalError("a socket of an unknown family");
  return *address;
}

absl::StatusOr<Socket> Listen(const SocketAddress& address) {
  ASSIGN_OR_RETURN(Socket socket, OpenStream(address));
  sockaddr_storage storage;
  const socklen_t bytes = address.ToSockaddr(&storage);
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&storage), bytes) !=
          0 ||
      listen(socket.fd(), kBacklog) != 0) {
    return SystemError(absl::StrCat("listen on ", address.ToString()), errno);
  }
  return socket;
}

absl::StatusOr<Socket> Accept(const Socket& listener) {
  while (true) {
    sockaddr_storage storage;
    socklen_t bytes = sizeof(storage);
    auto* raw = reinterpret_cast<sockaddr*>(&storage);
    const int fd =
        accept4(listener.fd(), raw, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      const auto peer = SocketAddress::FromSockaddr(raw);
      Socket socket(fd, peer ? peer->ToString() : "an unknown address");
      SetNoDelay(socket);
      return socket;
    }
    if (WouldBlock(errno)) return Socket();
    // The connection ended before it was taken; there may be another.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    return SystemError("accept", errno);
  }
}

absl::StatusOr<std::vector<Socket>> ListenOnOnePort(
    std::vector<SocketAddress> addresses) {
  std::vector<std::string> refusals;
  // Another socket may have the port at another address: a few tries.
  for (int tries = 0; tries < kPortTries; ++tries) {
    std::vector<Socket> listeners;
    refusals.clear();
    bool taken = false;
    for (SocketAddress& address : addresses) {
      address.port = 0;
      if (!listeners.empty()) {
        ASSIGN_OR_RETURN(const SocketAddress bound,
                         listeners.front().LocalAddress());
        address.port = bound.port;
      }
      absl::StatusOr<Socket> listener = Listen(address);
      if (listener.ok()) {
        listeners.push_back(*std::move(listener));
        continue;
      }
      if (absl::IsResourceExhausted(listener.status()))
        return listener.status();
      taken |= absl::IsAlreadyExists(listener.status());
      refusals.emplace_back(listener.status().message());
    }
    if (!listeners.empty() && !taken) return listeners;
  }
  return absl::UnavailableError(absl::StrJoin(refusals, "; "));
}

absl::StatusOr<std::vector<SocketAddress>> AddressesOf(
    const std::vector<Socket>& listeners) {
  std::vector<SocketAddress> addresses;
  for (const Socket& listener : listeners) {
    ASSIGN_OR_RETURN(const SocketAddress address, listener.LocalAddress());
    addresses.push_back(address);
  }
  return addresses;
}

absl::StatusOr<Socket> StartConnect(const SocketAddress& address) {
  ASSIGN_OR_RETURN(Socket socket, OpenStream(address));
  SetNoDelay(socket);
  sockaddr_storage storage;
  const socklen_t bytes = address.ToSockaddr(&storage);
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&storage),
              bytes) == 0) {
    return socket;
  }
  // An interrupted connect goes on by itself, like one in progress.
  if (errno == EINPROGRESS || errno == EINTR) return socket;
  return SystemError(absl::StrCat("connect to ", address.ToString()), errno);
}

absl::StatusOr<bool> IsConnected(const Socket& socket) {
  pollfd fd{socket.fd(), POLLOUT, 0};
  if (poll(&fd, 1, 0) != 1) return false;
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error == 0) return true;
  return SystemError(absl::StrCat("connect to ", socket.peer()), error);
}

absl::StatusOr<Socket> Connect(const SocketAddress& address,
                               const Patience& patience) {
  ASSIGN_OR_RETURN(Socket socket, StartConnect(address));
  while (true) {
    ASSIGN_OR_RETURN(const bool connected, IsConnected(socket));
    if (connected) return socket;
    const absl::Status waited = WaitFor(socket, POLLOUT, patience);
    if (!waited.ok()) {
      return absl::Status(waited.code(),
                          absl::StrCat("connect to ", address.ToString(), ": ",
                                       waited.message()));
    }
  }
}

void PollSlice(pollfd* fds, size_t count, const Patience& patience) {
  // EINTR and the rest: the caller looks at its sockets and comes again.
  poll(fds, count, std::min(kSliceMs, patience.deadline.remaining_ms()));
}

void ProbeWhileSilent(const Socket& socket, int64_t silence_ms) {
  // The kernel counts whole seconds: idle for a half of the time, then asked
  // each eighth.
  const auto seconds = [&](int64_t parts) {
    return static_cast<int>(std::max<int64_t>(1, silence_ms / parts / 1'000));
  };
  const auto set = [&](int level, int name, int value) {
    // A kernel without one of these still ends the connection, later.
    static_cast<void>(
        setsockopt(socket.fd(), level, name, &value, sizeof(value)));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds(2));
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds(8));
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence_ms));
}

absl::Status SendAll(const Socket& socket, std::string_view bytes,
                     const Patience& patience) {
  while (!bytes.empty()) {
    const ssize_t sent =
        send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (WouldBlock(errno)) {
      RETURN_IF_ERROR(WaitFor(socket, POLLOUT, patience));
    } else if (errno != EINTR) {
      return SystemError(absl::StrCat("send to ", socket.peer()), errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> ReceiveSome(const Socket& socket, char* bytes,
                                   size_t count) {
  while (true) {
    const ssize_t received = recv(socket.fd(), bytes, count, 0);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) return PeerClosed(socket);
    if (WouldBlock(errno)) return size_t{0};
    if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH) {
      return absl::DeadlineExceededError(
          absl::StrCat(socket.peer(), " gives no sign of life"));
    }
    if (errno != EINTR) {
      return SystemError(absl::StrCat("receive from ", socket.peer()), errno);
    }
  }
}

absl::Status ReceiveAll(const Socket& socket, char* bytes, size_t count,
                        const Patience& patience) {
  while (count > 0) {
    ASSIGN_OR_RETURN(const size_t received, ReceiveSome(socket, bytes, count));
    bytes += received;
    count -= received;
    if (count > 0) RETURN_IF_ERROR(WaitFor(socket, POLLIN, patience));
  }
  return absl::OkStatus();
}

absl::Status SendFrame(const Socket& socket, std::string_view bytes,
                       const Patience& patience) {
  WireWriter length;
  length.U32(static_cast<uint32_t>(bytes.size()));
  if (bytes.size() < kReceiveStepBytes) {
    length.Raw(bytes);
    return SendAll(socket, length.bytes(), patience);
  }
  RETURN_IF_ERROR(SendAll(socket, length.bytes(), patience));
  return SendAll(socket, bytes, patience);
}

absl::StatusOr<std::string> ReceiveFrame(const Socket& socket, size_t max_bytes,
                                         const Patience& patience) {
  char length[4];
  RETURN_IF_ERROR(ReceiveAll(socket, length, sizeof(length), patience));
  const size_t bytes = WireReader({length, sizeof(length)}).U32();
  if (bytes > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(socket.peer(), " announced a frame of ", bytes,
                     " bytes; at most ", max_bytes, " are allowed here"));
  }
  std::string frame;
  while (frame.size() < bytes) {
    const size_t done = frame.size();
    frame.resize(std::min(bytes, done + kReceiveStepBytes));
    RETURN_IF_ERROR(
        ReceiveAll(socket, &frame[done], frame.size() - done, patience));
  }
  return frame;
}

}  // namespace trnccl
