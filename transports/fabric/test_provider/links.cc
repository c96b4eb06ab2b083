// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/links.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "transports/fabric/test_provider/breach.h"

namespace trnccl::manners {
namespace {

constexpr uint64_t kListener = 0;

void Watch(int epoll, int operation, int fd, epoll_event event) {
  if (epoll_ctl(epoll, operation, fd, &event) != 0)
    Breach("epoll_ctl failed with errno ", errno);
}

}  // namespace

Links::~Links() {
  if (listener_ >= 0) close(listener_);
  if (epoll_ >= 0) close(epoll_);
}

int Links::Open(const Address& self) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return -errno;
  listener_ = Listen(self);
  if (listener_ < 0) return listener_;
  Watch(epoll_, EPOLL_CTL_ADD, listener_,
        {.events = EPOLLIN, .data = {.u64 = kListener}});
  return 0;
}

uint64_t Links::Add(int fd, uint32_t events) {
  const uint64_t id = ++last_id_;
  links_.try_emplace(id, fd);
  Watch(epoll_, EPOLL_CTL_ADD, fd, {.events = events, .data = {.u64 = id}});
  return id;
}

bool Links::Send(const Address& to, const Header& header,
                 const Bytes& payload) {
  auto found = outgoing_.find(to);
  if (found == outgoing_.end()) {
    const int fd = Connect(to);
    if (fd == -ECONNREFUSED) return false;
    if (fd < 0) Breach("cannot connect to ", TextOf(to), ": errno ", -fd);
    found = outgoing_.emplace(to, Add(fd, EPOLLIN)).first;
    Link& link = links_.at(found->second);
    link.outgoing = true;
    link.peer = to;
  }
  Link& link = links_.at(found->second);
  link.connection.Queue(header, payload);
  Flush(found->second, link);
  return true;
}

void Links::Reply(uint64_t id, const Header& header, const Bytes& payload) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  found->second.connection.Queue(header, payload);
  Flush(id, found->second);
}

void Links::Flush(uint64_t id, Link& link) {
  // That the peer is gone shows when its last words have been read.
  const bool blocked = link.connection.Flush() && link.connection.blocked();
  if (blocked == link.watched_for_room) return;
  link.watched_for_room = blocked;
  const uint32_t events = blocked ? EPOLLIN | EPOLLOUT : EPOLLIN;
  Watch(epoll_, EPOLL_CTL_MOD, link.connection.fd(),
        {.events = events, .data = {.u64 = id}});
}

void Links::Poll(std::vector<Arrival>& arrived, std::vector<Address>& gone) {
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t id = events[static_cast<size_t>(i)].data.u64;
    if (id != kListener) {
      PollLink(id, arrived, gone);
      continue;
    }
    for (int fd = Accept(listener_); fd >= 0; fd = Accept(listener_))
      PollLink(Add(fd, EPOLLIN), arrived, gone);
  }
}

void Links::PollLink(uint64_t id, std::vector<Arrival>& arrived,
                     std::vector<Address>& gone) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Link& link = found->second;
  Flush(id, link);
  std::vector<Packet> packets;
  const bool alive = link.connection.Receive(packets);
  for (Packet& packet : packets)
    arrived.push_back({.packet = std::move(packet), .link = id});
  if (alive) return;
  if (link.outgoing) {
    gone.push_back(link.peer);
    outgoing_.erase(link.peer);
  }
  links_.erase(found);
}

}  // namespace trnccl::manners
