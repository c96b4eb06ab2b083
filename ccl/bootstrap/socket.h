// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Non-blocking TCP sockets that own their descriptor, and transfers that end at
// a deadline or an abort whatever the other side does. For control traffic: set
// up and health, never a collective's data.
//
// Thread rule: a socket is used by one thread at a time.
//
//   const Patience patience{Deadline::After(5'000), &abort};
//   ASSIGN_OR_RETURN(Socket socket, Connect(address, patience));
//   RETURN_IF_ERROR(SendFrame(socket, "hello", patience));
//   ASSIGN_OR_RETURN(std::string reply,
//                    ReceiveFrame(socket, kMaxReplyBytes, patience));
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/clock.h"
#include "ccl/bootstrap/address.h"

struct pollfd;

namespace trnccl {

// What bounds a wait: DeadlineExceeded once the deadline is over, Aborted once
// `abort` (null: nobody) holds true.
struct Patience {
  Deadline deadline;
  const std::atomic<bool>* abort = nullptr;

  absl::Status Check() const;
};

class Socket {
 public:
  Socket() = default;
  // Takes over the descriptor. `peer` is how errors name the other side.
  Socket(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}
  Socket(Socket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), peer_(std::move(other.peer_)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  int fd() const { return fd_; }  // -1: none
  bool is_open() const { return fd_ >= 0; }
  void Close();

  const std::string& peer() const { return peer_; }  // "10.0.0.1:4000"
  absl::StatusOr<SocketAddress> LocalAddress() const;

 private:
  int fd_ = -1;
  std::string peer_;
};

// Binds and listens. Port 0 lets the kernel choose, which no one can take away.
absl::StatusOr<Socket> Listen(const SocketAddress& address);

// On the addresses that this machine has, all at one port; the error tells why
// there's none.
absl::StatusOr<std::vector<Socket>> ListenOnOnePort(
    std::vector<SocketAddress> addresses);

absl::StatusOr<std::vector<SocketAddress>> AddressesOf(
    const std::vector<Socket>& listeners);

// Takes one connection; a closed Socket if none is waiting. An error means that
// the listener is of no use any more (no descriptors, for one).
absl::StatusOr<Socket> Accept(const Socket& listener);

// Begins to connect, without waiting. Unavailable if it's unreachable.
absl::StatusOr<Socket> StartConnect(const SocketAddress& address);
// Whether what StartConnect began has ended well; Unavailable if it failed.
absl::StatusOr<bool> IsConnected(const Socket& socket);

// Unavailable if it's refused or unreachable.
absl::StatusOr<Socket> Connect(const SocketAddress& address,
                               const Patience& patience);

// Waits for any of `count` descriptors. Returns at least every few tens of
// milliseconds, so that an abort is seen; the caller checks its patience.
void PollSlice(pollfd* fds, size_t count, const Patience& patience);

// Has the kernel ask an idle peer for a sign of life, and end the connection
// (DeadlineExceeded) once there was none for so long, sent data included.
void ProbeWhileSilent(const Socket& socket, int64_t silence_ms);

// All bytes or an error. Unavailable if the peer has gone.
absl::Status SendAll(const Socket& socket, std::string_view bytes,
                     const Patience& patience);
absl::Status ReceiveAll(const Socket& socket, char* bytes, size_t count,
                        const Patience& patience);

// Takes what is there now, at most `count` bytes; 0 if nothing is.
// DeadlineExceeded if the kernel found the peer silent (ProbeWhileSilent).
absl::StatusOr<size_t> ReceiveSome(const Socket& socket, char* bytes,
                                   size_t count);

// A frame is its length and its bytes. A length above `max_bytes` is refused
// before anything is allocated for it.
absl::Status SendFrame(const Socket& socket, std::string_view bytes,
                       const Patience& patience);
absl::StatusOr<std::string> ReceiveFrame(const Socket& socket, size_t max_bytes,
                                         const Patience& patience);

}  // namespace trnccl
