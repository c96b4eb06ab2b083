// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/wire.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "transports/fabric/test_provider/breach.h"

namespace trnccl::manners {
namespace {

constexpr int kBacklog = 4096;
constexpr uint64_t kMaxPayload = uint64_t{1} << 32;
// Of one call of Receive(), so that a chatty peer leaves time for others.
constexpr size_t kMaxPackets = 64;

constexpr const char* kOutcomes[] = {
    "success",
    "Receiver not ready: no receive is posted",
    "Message truncated: the posted receive is too small",
    "Canceled",
    "Unresponsive remote: the peer's endpoint is gone",
    "injected: Unresponsive remote",
    "Remote key was closed",
    "Remote key was never given out",
    "Remote range is beyond the registered memory",
    "Remote memory isn't registered for this access",
    "Unknown initiator: the target has not inserted its address",
};
static_assert(std::size(kOutcomes) == static_cast<size_t>(Outcome::kCount));

struct Name {
  sockaddr_un address = {};
  socklen_t bytes = 0;
};

Name NameOf(const Address& address) {
  Name name;
  name.address.sun_family = AF_UNIX;
  // The leading zero makes it abstract: nothing to clean up.
  const std::string text = TextOf(address);
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

int Socket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// -errno, with the descriptor closed.
int CloseAndFail(int fd) {
  const int error = errno;
  close(fd);
  return -error;
}

}  // namespace

std::string TextOf(const Address& address) {
  return Text("manners-", std::hex, address.nonce, std::dec, "-",
              address.process, "-", address.endpoint, "-nic", address.nic);
}

const char* TextOf(Outcome outcome) {
  const size_t index = static_cast<size_t>(outcome);
  return index < std::size(kOutcomes) ? kOutcomes[index] : "unknown error";
}

Connection::~Connection() { close(fd_); }

void Connection::Queue(Header header, const Bytes& payload) {
  header.payload = payload.size();
  Bytes& bytes = outgoing_.emplace_back();
  bytes.reserve(sizeof(header) + payload.size());
  const auto* begin = reinterpret_cast<const std::byte*>(&header);
  bytes.assign(begin, begin + sizeof(header));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
}

bool Connection::Flush() {
  while (!outgoing_.empty()) {
    const Bytes& front = outgoing_.front();
    const ssize_t sent =
        send(fd_, front.data() + sent_, front.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(sent);
    if (sent_ == front.size()) {
      outgoing_.pop_front();
      sent_ = 0;
    }
  }
  return true;
}

bool Connection::Receive(std::vector<Packet>& packets) {
  size_t complete = 0;
  while (complete < kMaxPackets) {
    const size_t total = sizeof(Header) + incoming_.payload.size();
    if (received_ == total) {
      packets.push_back(std::move(incoming_));
      incoming_ = {};
      received_ = 0;
      ++complete;
      continue;
    }
    const bool in_header = received_ < sizeof(Header);
    std::byte* to =
        in_header ? reinterpret_cast<std::byte*>(&incoming_.header) + received_
                  : incoming_.payload.data() + (received_ - sizeof(Header));
    const size_t missing = (in_header ? sizeof(Header) : total) - received_;
    const ssize_t got = recv(fd_, to, missing, 0);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    received_ += static_cast<size_t>(got);
    if (in_header && received_ == sizeof(Header)) {
      const Header& header = incoming_.header;
      if (header.magic != kAddressMagic || header.payload > kMaxPayload)
        Breach("a stranger speaks to an endpoint's socket");
      incoming_.payload.resize(header.payload);
    }
  }
  return true;
}

int Listen(const Address& address) {
  const Name name = NameOf(address);
  const int fd = Socket();
  if (fd < 0) return -errno;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&name.address), name.bytes) ||
      listen(fd, kBacklog))
    return CloseAndFail(fd);
  return fd;
}

int Accept(int listener) {
  const int fd =
      accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return fd < 0 ? -errno : fd;
}

int Connect(const Address& address) {
  const Name name = NameOf(address);
  const int fd = Socket();
  if (fd < 0) return -errno;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&name.address), name.bytes))
    return CloseAndFail(fd);
  return fd;
}

}  // namespace trnccl::manners
