// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The sockets of one endpoint: one that listens, one to each peer that was
// sent to, and those that peers opened. Requests go out on a connection of
// one's own and are answered on it, so two endpoints never fight over who
// connects. Not what packets mean: endpoint.h.
//
// Thread rule: thread-compatible. Nothing here waits.
//
//   Links links;
//   if (int error = links.Open(self); error != 0) return error;
//   if (!links.Send(peer, header, payload)) PeerIsGone(peer);
//   links.Poll(arrived, gone);
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "transports/fabric/test_provider/wire.h"

namespace trnccl::manners {

struct Arrival {
  Packet packet;
  uint64_t link = 0;  // where to reply
  size_t hold = 0;    // progress calls until it may be delivered
  bool torn = false;  // a write of which the end is there already
};

class Links {
 public:
  Links() = default;
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // 0 or -errno.
  int Open(const Address& self);
  // Readable when Poll() has something to do.
  int fd() const { return epoll_; }

  // False if nobody listens there.
  bool Send(const Address& to, const Header& header, const Bytes& payload);
  // Dropped if the peer has gone.
  void Reply(uint64_t link, const Header& header, const Bytes& payload);
  // What has come, and peers that can't be reached any more.
  void Poll(std::vector<Arrival>& arrived, std::vector<Address>& gone);

 private:
  struct Link {
    explicit Link(int fd) : connection(fd) {}

    Connection connection;
    bool outgoing = false;
    Address peer = {};  // of an outgoing one
    bool watched_for_room = false;
  };

  uint64_t Add(int fd, uint32_t events);
  void Flush(uint64_t id, Link& link);
  void PollLink(uint64_t id, std::vector<Arrival>& arrived,
                std::vector<Address>& gone);

  int epoll_ = -1;
  int listener_ = -1;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Link> links_;
  std::map<Address, uint64_t> outgoing_;
};

}  // namespace trnccl::manners
