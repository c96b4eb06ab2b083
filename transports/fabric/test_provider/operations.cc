// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The many forms of libfabric's data calls, each made one Post.
#include <rdma/fi_tagged.h>

#include "transports/fabric/test_provider/endpoint.h"
#include "transports/fabric/test_provider/fork_guard.h"

namespace trnccl::manners {
namespace {

Endpoint& EpOf(fid_ep* endpoint) { return *static_cast<Endpoint*>(endpoint); }

// With the flags that the endpoint was opened with, for calls without any.
ssize_t Transmit(fid_ep* endpoint, Post post) {
  return Guarded(EpOf(endpoint).domain->fabric->generation, [&] {
    post.flags |= EpOf(endpoint).tx_flags;
    return EpOf(endpoint).Transmit(post);
  });
}

ssize_t TransmitMessage(fid_ep* endpoint, const Post& post) {
  return Guarded(EpOf(endpoint).domain->fabric->generation,
                 [&] { return EpOf(endpoint).Transmit(post); });
}

ssize_t Receive(fid_ep* endpoint, Post post) {
  return Guarded(EpOf(endpoint).domain->fabric->generation, [&] {
    post.flags |= EpOf(endpoint).rx_flags;
    return EpOf(endpoint).PostReceive(post);
  });
}

ssize_t ReceiveMessage(fid_ep* endpoint, const Post& post) {
  constexpr uint64_t kKnown = FI_COMPLETION | FI_MORE;
  if ((post.flags & ~kKnown) != 0) return -FI_EBADFLAGS;
  return Guarded(EpOf(endpoint).domain->fabric->generation,
                 [&] { return EpOf(endpoint).PostReceive(post); });
}

iovec Buffer(const void* base, size_t bytes) {
  return {const_cast<void*>(base), bytes};
}

}  // namespace

fi_ops_msg kMessageCalls = {
    .size = sizeof(fi_ops_msg),
    .recv = [](fid_ep* endpoint, void* base, size_t bytes, void* descriptor,
               fi_addr_t peer, void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Receive(endpoint, {.call = "fi_recv",
                                .buffers = {&buffer, 1},
                                .descriptors = &descriptor,
                                .peer = peer,
                                .context = context});
    },
    .recvv = [](fid_ep* endpoint, const iovec* buffers, void** descriptors,
                size_t count, fi_addr_t peer, void* context) -> ssize_t {
      return Receive(endpoint, {.call = "fi_recvv",
                                .buffers = {buffers, count},
                                .descriptors = descriptors,
                                .peer = peer,
                                .context = context});
    },
    .recvmsg = [](fid_ep* endpoint, const fi_msg* message,
                  uint64_t flags) -> ssize_t {
      return ReceiveMessage(endpoint,
                            {.call = "fi_recvmsg",
                             .buffers = {message->msg_iov, message->iov_count},
                             .descriptors = message->desc,
                             .peer = message->addr,
                             .context = message->context,
                             .flags = flags});
    },
    .send = [](fid_ep* endpoint, const void* base, size_t bytes,
               void* descriptor, fi_addr_t peer, void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_send",
                                 .buffers = {&buffer, 1},
                                 .descriptors = &descriptor,
                                 .peer = peer,
                                 .context = context});
    },
    .sendv = [](fid_ep* endpoint, const iovec* buffers, void** descriptors,
                size_t count, fi_addr_t peer, void* context) -> ssize_t {
      return Transmit(endpoint, {.call = "fi_sendv",
                                 .buffers = {buffers, count},
                                 .descriptors = descriptors,
                                 .peer = peer,
                                 .context = context});
    },
    .sendmsg = [](fid_ep* endpoint, const fi_msg* message,
                  uint64_t flags) -> ssize_t {
      return TransmitMessage(endpoint,
                             {.call = "fi_sendmsg",
                              .buffers = {message->msg_iov, message->iov_count},
                              .descriptors = message->desc,
                              .peer = message->addr,
                              .context = message->context,
                              .flags = flags,
                              .data = message->data});
    },
    .inject = [](fid_ep* endpoint, const void* base, size_t bytes,
                 fi_addr_t peer) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_inject",
                                 .buffers = {&buffer, 1},
                                 .peer = peer,
                                 .flags = FI_INJECT,
                                 .quiet = true});
    },
    .senddata = [](fid_ep* endpoint, const void* base, size_t bytes,
                   void* descriptor, uint64_t data, fi_addr_t peer,
                   void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_senddata",
                                 .buffers = {&buffer, 1},
                                 .descriptors = &descriptor,
                                 .peer = peer,
                                 .context = context,
                                 .flags = FI_REMOTE_CQ_DATA,
                                 .data = data});
    },
    .injectdata = [](fid_ep* endpoint, const void* base, size_t bytes,
                     uint64_t data, fi_addr_t peer) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_injectdata",
                                 .buffers = {&buffer, 1},
                                 .peer = peer,
                                 .flags = FI_INJECT | FI_REMOTE_CQ_DATA,
                                 .quiet = true,
                                 .data = data});
    },
};

fi_ops_tagged kTaggedCalls = {
    .size = sizeof(fi_ops_tagged),
    .recv = [](fid_ep* endpoint, void* base, size_t bytes, void* descriptor,
               fi_addr_t peer, uint64_t tag, uint64_t ignore,
               void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Receive(endpoint, {.call = "fi_trecv",
                                .kind = Kind::kTagged,
                                .buffers = {&buffer, 1},
                                .descriptors = &descriptor,
                                .peer = peer,
                                .context = context,
                                .tag = tag,
                                .ignore = ignore});
    },
    .recvv = [](fid_ep* endpoint, const iovec* buffers, void** descriptors,
                size_t count, fi_addr_t peer, uint64_t tag, uint64_t ignore,
                void* context) -> ssize_t {
      return Receive(endpoint, {.call = "fi_trecvv",
                                .kind = Kind::kTagged,
                                .buffers = {buffers, count},
                                .descriptors = descriptors,
                                .peer = peer,
                                .context = context,
                                .tag = tag,
                                .ignore = ignore});
    },
    .recvmsg = [](fid_ep* endpoint, const fi_msg_tagged* message,
                  uint64_t flags) -> ssize_t {
      return ReceiveMessage(endpoint,
                            {.call = "fi_trecvmsg",
                             .kind = Kind::kTagged,
                             .buffers = {message->msg_iov, message->iov_count},
                             .descriptors = message->desc,
                             .peer = message->addr,
                             .context = message->context,
                             .flags = flags,
                             .tag = message->tag,
                             .ignore = message->ignore});
    },
    .send = [](fid_ep* endpoint, const void* base, size_t bytes,
               void* descriptor, fi_addr_t peer, uint64_t tag,
               void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_tsend",
                                 .kind = Kind::kTagged,
                                 .buffers = {&buffer, 1},
                                 .descriptors = &descriptor,
                                 .peer = peer,
                                 .context = context,
                                 .tag = tag});
    },
    .sendv = [](fid_ep* endpoint, const iovec* buffers, void** descriptors,
                size_t count, fi_addr_t peer, uint64_t tag,
                void* context) -> ssize_t {
      return Transmit(endpoint, {.call = "fi_tsendv",
                                 .kind = Kind::kTagged,
                                 .buffers = {buffers, count},
                                 .descriptors = descriptors,
                                 .peer = peer,
                                 .context = context,
                                 .tag = tag});
    },
    .sendmsg = [](fid_ep* endpoint, const fi_msg_tagged* message,
                  uint64_t flags) -> ssize_t {
      return TransmitMessage(endpoint,
                             {.call = "fi_tsendmsg",
                              .kind = Kind::kTagged,
                              .buffers = {message->msg_iov, message->iov_count},
                              .descriptors = message->desc,
                              .peer = message->addr,
                              .context = message->context,
                              .flags = flags,
                              .data = message->data,
                              .tag = message->tag});
    },
    .inject = [](fid_ep* endpoint, const void* base, size_t bytes,
                 fi_addr_t peer, uint64_t tag) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_tinject",
                                 .kind = Kind::kTagged,
                                 .buffers = {&buffer, 1},
                                 .peer = peer,
                                 .flags = FI_INJECT,
                                 .quiet = true,
                                 .tag = tag});
    },
    .senddata = [](fid_ep* endpoint, const void* base, size_t bytes,
                   void* descriptor, uint64_t data, fi_addr_t peer,
                   uint64_t tag, void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_tsenddata",
                                 .kind = Kind::kTagged,
                                 .buffers = {&buffer, 1},
                                 .descriptors = &descriptor,
                                 .peer = peer,
                                 .context = context,
                                 .flags = FI_REMOTE_CQ_DATA,
                                 .data = data,
                                 .tag = tag});
    },
    .injectdata = [](fid_ep* endpoint, const void* base, size_t bytes,
                     uint64_t data, fi_addr_t peer, uint64_t tag) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      return Transmit(endpoint, {.call = "fi_tinjectdata",
                                 .kind = Kind::kTagged,
                                 .buffers = {&buffer, 1},
                                 .peer = peer,
                                 .flags = FI_INJECT | FI_REMOTE_CQ_DATA,
                                 .quiet = true,
                                 .data = data,
                                 .tag = tag});
    },
};

namespace {

size_t TotalBytes(const iovec* buffers, size_t count) {
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += buffers[i].iov_len;
  return total;
}

}  // namespace

fi_ops_rma kRmaCalls = {
    .size = sizeof(fi_ops_rma),
    .read = [](fid_ep* endpoint, void* base, size_t bytes, void* descriptor,
               fi_addr_t peer, uint64_t address, uint64_t key,
               void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      const fi_rma_iov remote = {address, bytes, key};
      return Transmit(endpoint, {.call = "fi_read",
                                 .kind = Kind::kRead,
                                 .buffers = {&buffer, 1},
                                 .descriptors = &descriptor,
                                 .peer = peer,
                                 .context = context,
                                 .remote = {&remote, 1}});
    },
    .readv = [](fid_ep* endpoint, const iovec* buffers, void** descriptors,
                size_t count, fi_addr_t peer, uint64_t address, uint64_t key,
                void* context) -> ssize_t {
      const fi_rma_iov remote = {address, TotalBytes(buffers, count), key};
      return Transmit(endpoint, {.call = "fi_readv",
                                 .kind = Kind::kRead,
                                 .buffers = {buffers, count},
                                 .descriptors = descriptors,
                                 .peer = peer,
                                 .context = context,
                                 .remote = {&remote, 1}});
    },
    .readmsg = [](fid_ep* endpoint, const fi_msg_rma* message,
                  uint64_t flags) -> ssize_t {
      return TransmitMessage(
          endpoint, {.call = "fi_readmsg",
                     .kind = Kind::kRead,
                     .buffers = {message->msg_iov, message->iov_count},
                     .descriptors = message->desc,
                     .peer = message->addr,
                     .context = message->context,
                     .flags = flags,
                     .remote = {message->rma_iov, message->rma_iov_count}});
    },
    .write = [](fid_ep* endpoint, const void* base, size_t bytes,
                void* descriptor, fi_addr_t peer, uint64_t address,
                uint64_t key, void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      const fi_rma_iov remote = {address, bytes, key};
      return Transmit(endpoint, {.call = "fi_write",
                                 .kind = Kind::kWrite,
                                 .buffers = {&buffer, 1},
                                 .descriptors = &descriptor,
                                 .peer = peer,
                                 .context = context,
                                 .remote = {&remote, 1}});
    },
    .writev = [](fid_ep* endpoint, const iovec* buffers, void** descriptors,
                 size_t count, fi_addr_t peer, uint64_t address, uint64_t key,
                 void* context) -> ssize_t {
      const fi_rma_iov remote = {address, TotalBytes(buffers, count), key};
      return Transmit(endpoint, {.call = "fi_writev",
                                 .kind = Kind::kWrite,
                                 .buffers = {buffers, count},
                                 .descriptors = descriptors,
                                 .peer = peer,
                                 .context = context,
                                 .remote = {&remote, 1}});
    },
    .writemsg = [](fid_ep* endpoint, const fi_msg_rma* message,
                   uint64_t flags) -> ssize_t {
      return TransmitMessage(
          endpoint, {.call = "fi_writemsg",
                     .kind = Kind::kWrite,
                     .buffers = {message->msg_iov, message->iov_count},
                     .descriptors = message->desc,
                     .peer = message->addr,
                     .context = message->context,
                     .flags = flags,
                     .data = message->data,
                     .remote = {message->rma_iov, message->rma_iov_count}});
    },
    .inject = [](fid_ep* endpoint, const void* base, size_t bytes,
                 fi_addr_t peer, uint64_t address, uint64_t key) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      const fi_rma_iov remote = {address, bytes, key};
      return Transmit(endpoint, {.call = "fi_inject_write",
                                 .kind = Kind::kWrite,
                                 .buffers = {&buffer, 1},
                                 .peer = peer,
                                 .flags = FI_INJECT,
                                 .quiet = true,
                                 .remote = {&remote, 1}});
    },
    .writedata = [](fid_ep* endpoint, const void* base, size_t bytes,
                    void* descriptor, uint64_t data, fi_addr_t peer,
                    uint64_t address, uint64_t key, void* context) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      const fi_rma_iov remote = {address, bytes, key};
      return Transmit(endpoint, {.call = "fi_writedata",
                                 .kind = Kind::kWrite,
                                 .buffers = {&buffer, 1},
                                 .descriptors = &descriptor,
                                 .peer = peer,
                                 .context = context,
                                 .flags = FI_REMOTE_CQ_DATA,
                                 .data = data,
                                 .remote = {&remote, 1}});
    },
    .injectdata = [](fid_ep* endpoint, const void* base, size_t bytes,
                     uint64_t data, fi_addr_t peer, uint64_t address,
                     uint64_t key) -> ssize_t {
      const iovec buffer = Buffer(base, bytes);
      const fi_rma_iov remote = {address, bytes, key};
      return Transmit(endpoint, {.call = "fi_inject_writedata",
                                 .kind = Kind::kWrite,
                                 .buffers = {&buffer, 1},
                                 .peer = peer,
                                 .flags = FI_INJECT | FI_REMOTE_CQ_DATA,
                                 .quiet = true,
                                 .data = data,
                                 .remote = {&remote, 1}});
    },
};

}  // namespace trnccl::manners
