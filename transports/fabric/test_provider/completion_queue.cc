// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/completion_queue.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/fork_guard.h"

namespace trnccl::manners {
namespace {

using Clock = std::chrono::steady_clock;

CompletionQueue* CqOf(fid_cq* cq) { return static_cast<CompletionQueue*>(cq); }

size_t EntryBytes(fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
      return sizeof(fi_cq_tagged_entry);
    default:
      return sizeof(fi_cq_entry);
  }
}

// All formats are the beginning of the longest. `buf` is only for
// FI_MULTI_RECV, which isn't offered.
void WriteEntry(const CompletionQueue& cq, const Completion& completion,
                void* entry) {
  const fi_cq_tagged_entry all = {.op_context = completion.context,
                                  .flags = completion.flags,
                                  .len = completion.bytes,
                                  .buf = nullptr,
                                  .data = completion.data,
                                  .tag = completion.tag};
  std::memcpy(entry, &all, EntryBytes(cq.format));
}

void Pop(CompletionQueue& cq) {
  void* context = cq.completions.front().context;
  if (cq.domain->fabric->flavour == Flavour::kEfaDirect && context != nullptr)
    cq.domain->fabric->contexts.Return(context);
  cq.completions.pop_front();
}

bool Visible(const CompletionQueue& cq) {
  return !cq.completions.empty() &&
         cq.completions.front().visible_at <= cq.reads;
}

ssize_t Read(CompletionQueue& cq, void* entries, size_t count,
             fi_addr_t* sources) {
  ++cq.reads;
  cq.refused = false;
  cq.Progress();
  size_t read = 0;
  for (; read < count && Visible(cq); ++read) {
    const Completion& completion = cq.completions.front();
    if (completion.error != 0) break;
    WriteEntry(cq, completion,
               static_cast<std::byte*>(entries) + read * EntryBytes(cq.format));
    if (sources != nullptr) sources[read] = completion.source;
    Pop(cq);
  }
  cq.UpdateSignal();
  if (read > 0) return static_cast<ssize_t>(read);
  return Visible(cq) && count > 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

ssize_t GuardedRead(fid_cq* cq, void* entries, size_t count,
                    fi_addr_t* sources) {
  return Guarded(CqOf(cq)->domain->fabric->generation,
                 [&] { return Read(*CqOf(cq), entries, count, sources); });
}

ssize_t ReadError(CompletionQueue& cq, fi_cq_err_entry* entry) {
  if (!Visible(cq) || cq.completions.front().error == 0) return -FI_EAGAIN;
  const Completion& completion = cq.completions.front();
  entry->op_context = completion.context;
  entry->flags = completion.flags;
  entry->len = completion.bytes;
  entry->buf = nullptr;
  entry->data = completion.data;
  entry->tag = completion.tag;
  entry->olen = completion.excess_bytes;
  entry->err = completion.error;
  entry->prov_errno = static_cast<int>(completion.outcome);
  entry->err_data_size = 0;
  Pop(cq);
  cq.UpdateSignal();
  return 1;
}

// Sleeps without the lock.
ssize_t BlockingRead(fid_cq* cq, void* entries, size_t count,
                     fi_addr_t* sources, int timeout_ms) {
  if (CqOf(cq)->epoll < 0) return -FI_ENOSYS;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const ssize_t read = GuardedRead(cq, entries, count, sources);
    if (read != -FI_EAGAIN) return read;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - Clock::now());
    if (timeout_ms >= 0 && left.count() <= 0) return -FI_EAGAIN;
    pollfd fd = {.fd = CqOf(cq)->epoll, .events = POLLIN};
    poll(&fd, 1, timeout_ms < 0 ? -1 : static_cast<int>(left.count()));
  }
}

const char* ErrorText(int prov_errno, char* text, size_t bytes) {
  static thread_local std::string whole;
  whole = Text("manners: ", TextOf(static_cast<Outcome>(prov_errno)));
  if (text != nullptr && bytes > 0) text[whole.copy(text, bytes - 1)] = '\0';
  return whole.c_str();
}

int Control(const CompletionQueue& cq, int command, void* argument) {
  if (command == FI_GETWAITOBJ) {
    *static_cast<fi_wait_obj*>(argument) =
        cq.epoll < 0 ? FI_WAIT_NONE : FI_WAIT_FD;
    return 0;
  }
  if (command != FI_GETWAIT || cq.epoll < 0) return -FI_ENOSYS;
  *static_cast<int*>(argument) = cq.epoll;
  return 0;
}

int Close(CompletionQueue* cq) {
  if (cq->endpoints > 0) return -FI_EBUSY;
  for (const Completion& completion : cq->completions)
    cq->domain->fabric->contexts.Forget(completion.context);
  if (cq->epoll >= 0) {
    close(cq->epoll);
    close(cq->signal);
  }
  --cq->domain->users;
  delete cq;
  return 0;
}

fi_ops kObject = {
    .size = sizeof(fi_ops),
    .close = [](fid* object) -> int {
      auto* cq = ObjectOf<CompletionQueue, fid_cq>(object);
      return Guarded(cq->domain->fabric->generation, [&] { return Close(cq); });
    },
    .bind = Unsupported,
    .control = [](fid* object, int command, void* argument) -> int {
      auto* cq = ObjectOf<CompletionQueue, fid_cq>(object);
      return Guarded(cq->domain->fabric->generation,
                     [&] { return Control(*cq, command, argument); });
    },
    .ops_open = Unsupported,
};

fi_ops_cq kCalls = {
    .size = sizeof(fi_ops_cq),
    .read = [](fid_cq* cq, void* entries, size_t count) -> ssize_t {
      return GuardedRead(cq, entries, count, nullptr);
    },
    .readfrom = GuardedRead,
    .readerr = [](fid_cq* cq, fi_cq_err_entry* entry, uint64_t) -> ssize_t {
      return Guarded(CqOf(cq)->domain->fabric->generation,
                     [&] { return ReadError(*CqOf(cq), entry); });
    },
    .sread = [](fid_cq* cq, void* entries, size_t count, const void*,
                int timeout_ms) -> ssize_t {
      return BlockingRead(cq, entries, count, nullptr, timeout_ms);
    },
    .sreadfrom = [](fid_cq* cq, void* entries, size_t count, fi_addr_t* sources,
                    const void*, int timeout_ms) -> ssize_t {
      return BlockingRead(cq, entries, count, sources, timeout_ms);
    },
    .signal = Unsupported,
    .strerror = [](fid_cq*, int prov_errno, const void*, char* text,
                   size_t bytes) { return ErrorText(prov_errno, text, bytes); },
};

}  // namespace

void CompletionQueue::Push(Completion completion) {
  const bool transmit =
      (completion.flags & (FI_SEND | FI_WRITE | FI_READ)) != 0;
  if (completion.error == 0 &&
      domain->fabric->faults.Strikes(transmit ? Fault::kTransmitCompletion
                                              : Fault::kReceiveCompletion)) {
    completion.error = FI_EIO;
    completion.outcome = Outcome::kInjected;
  }
  if (completion.error == 0 && !transmit &&
      domain->fabric->faults.Strikes(Fault::kReset)) {
    completion.error = FI_ECONNRESET;
    completion.outcome = Outcome::kInjected;
  }
  completion.visible_at = reads + domain->fabric->settings.slow;
  completions.push_back(completion);
}

void CompletionQueue::Bind(Progressor* source) {
  if (std::find(sources.begin(), sources.end(), source) != sources.end())
    return;
  sources.push_back(source);
  if (epoll < 0) return;
  epoll_event event = {.events = EPOLLIN};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, source->wake_fd(), &event) != 0)
    Breach("epoll_ctl failed with errno ", errno);
}

// Its descriptor leaves the set when it's closed.
void CompletionQueue::Unbind(Progressor* source) {
  std::erase(sources, source);
}

bool CompletionQueue::HasWork() const {
  return refused || !completions.empty() ||
         std::any_of(
             sources.begin(), sources.end(),
             [](const Progressor* source) { return source->HasWork(); });
}

void CompletionQueue::UpdateSignal() {
  if (signal < 0 || HasWork() == signalled) return;
  signalled = !signalled;
  uint64_t count = 1;
  const ssize_t done = signalled ? write(signal, &count, sizeof(count))
                                 : read(signal, &count, sizeof(count));
  if (done != sizeof(count)) Breach("an eventfd failed with errno ", errno);
}

void CompletionQueue::Progress() {
  for (Progressor* source : sources) source->Progress();
}

int OpenCompletionQueue(Domain& domain, const fi_cq_attr& attr, fid_cq** cq,
                        void* context) {
  if (domain.fabric->faults.Strikes(Fault::kCompletionQueue)) return -FI_ENOMEM;
  const bool sleeps =
      attr.wait_obj == FI_WAIT_FD || attr.wait_obj == FI_WAIT_UNSPEC;
  if (!sleeps && attr.wait_obj != FI_WAIT_NONE) return -FI_ENOSYS;
  auto* object = new CompletionQueue;
  object->fid = {.fclass = FI_CLASS_CQ, .context = context, .ops = &kObject};
  object->ops = &kCalls;
  object->domain = &domain;
  if (attr.format != FI_CQ_FORMAT_UNSPEC) object->format = attr.format;
  // What doesn't fit waits outside, so a smaller one than asked for is no less.
  const size_t most = domain.fabric->settings.completions;
  object->capacity = attr.size > 0 ? std::min(attr.size, most) : most;
  if (sleeps) {
    object->epoll = epoll_create1(EPOLL_CLOEXEC);
    object->signal = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(object->epoll, EPOLL_CTL_ADD, object->signal, &event) != 0)
      Breach("a queue's descriptors: errno ", errno);
  }
  ++domain.users;
  *cq = object;
  return 0;
}

}  // namespace trnccl::manners
