// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A switch that holds packets for a time and loses some: what netem does, for
// kernels without it.
//
//   relay DELAY_NS LOSS SEED BYTES_PER_SECOND INTERFACE NETWORK_NAMESPACE...
//
// Makes a TAP called INTERFACE in each namespace, prints "ready", and forwards
// Ethernet frames between them by destination address, which it learns, until
// it's killed; the TAPs end with it. Each frame arrives DELAY_NS after it was
// sent, or, where BYTES_PER_SECOND isn't 0, after its turn on the link to its
// receiver. In order, always.
//
// One thread, asleep when nothing is due. Without loss a frame may be a batch
// of segments of up to 64 KiB, as the kernel makes them for a network card.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr size_t kHeaderBytes =
    10;  // a virtio_net_hdr, which says how it's cut
constexpr size_t kAddressBytes = 6;  // of Ethernet
constexpr size_t kSmallestBytes = kHeaderBytes + 2 * kAddressBytes + 2;
constexpr size_t kLargestBytes = kHeaderBytes + 65'536 + 64;
// What waits for its turn on a link, as in a switch's port.
constexpr double kQueueBytes = 1'500'000;
// All that is held, for every receiver together.
constexpr size_t kHeldBytes = size_t{512} << 20;
constexpr int kFramesAtOnce = 32;  // from one sender before the next one's turn

using Address = std::array<unsigned char, kAddressBytes>;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "relay: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int Check(int result, const char* what) {
  if (result < 0) Die(what);
  return result;
}

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

struct Options {
  int64_t delay_ns;
  double loss;
  uint64_t seed;
  double bytes_per_second;
  const char* interface;
  std::vector<const char*> namespaces;
};

struct Frame {
  int64_t release_ns;
  std::vector<char> bytes;  // a virtio_net_hdr comes first
};

// A node's TAP, and the frames that are on their way to it.
struct Port {
  int tap;
  int64_t free_ns = 0;  // when the link to the node has sent what it was given
  std::deque<Frame> held;  // by release_ns
};

int OpenTap(const Options& options, const char* network_namespace) {
  const int where = Check(open(network_namespace, O_RDONLY | O_CLOEXEC),
                          "can't open a network namespace");
  Check(setns(where, CLONE_NEWNET), "can't enter a network namespace");
  close(where);
  const int tap = Check(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC),
                        "can't open /dev/net/tun");
  ifreq request = {};
  std::strncpy(request.ifr_name, options.interface, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  Check(ioctl(tap, TUNSETIFF, &request), "can't make a TAP");
  const unsigned batches = options.loss > 0 ? 0 : TUN_F_TSO4 | TUN_F_TSO6;
  Check(ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | batches),
        "can't set a TAP's offloads");
  return tap;
}

class Relay {
 public:
  explicit Relay(const Options& options)
      : options_(options),
        random_(options.seed),
        timer_(Check(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC),
                     "can't make a timer")),
        epoll_(Check(epoll_create1(EPOLL_CLOEXEC), "can't make an epoll")),
        buffer_(kLargestBytes) {
    for (const char* network_namespace : options.namespaces) {
      ports_.push_back({OpenTap(options, network_namespace)});
      Watch(ports_.back().tap, ports_.size() - 1);
    }
    Watch(timer_, ports_.size());
  }

  [[noreturn]] void Run() {
    std::vector<epoll_event> events(ports_.size() + 1);
    while (true) {
      const int ready =
          epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                     /*timeout=*/-1);
      if (ready < 0 && errno != EINTR) Die("can't wait");
      for (int i = 0; i < ready; ++i)
        if (events[i].data.u64 < ports_.size()) Read(events[i].data.u64);
      Release();
      SetTimer();
    }
  }

 private:
  void Watch(int fd, uint64_t index) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = index;
    Check(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event), "can't watch");
  }

  // A TAP that's down has nothing to read.
  void Read(size_t from) {
    for (int i = 0; i < kFramesAtOnce; ++i) {
      const ssize_t got =
          read(ports_[from].tap, buffer_.data(), buffer_.size());
      if (got < static_cast<ssize_t>(kSmallestBytes)) return;
      if (std::bernoulli_distribution(options_.loss)(random_)) continue;
      Forward(from, static_cast<size_t>(got));
    }
  }

  void Forward(size_t from, size_t bytes) {
    Address to, sender;
    std::memcpy(&to, buffer_.data() + kHeaderBytes, kAddressBytes);
    std::memcpy(&sender, buffer_.data() + kHeaderBytes + kAddressBytes,
                kAddressBytes);
    // One address a node: whoever invents more must not fill our memory.
    if (learned_.size() < 16 * ports_.size()) learned_[sender] = from;
    const auto known = learned_.find(to);
    if (known != learned_.end()) {
      if (known->second != from) Hold(ports_[known->second], bytes);
      return;
    }
    for (size_t i = 0; i < ports_.size(); ++i)
      if (i != from) Hold(ports_[i], bytes);
  }

  void Hold(Port& port, size_t bytes) {
    const int64_t now = NowNs();
    int64_t sent_ns = now;
    if (options_.bytes_per_second > 0) {
      const double ns_a_byte = kSecondNs / options_.bytes_per_second;
      sent_ns = std::max(now, port.free_ns);
      if (static_cast<double>(sent_ns - now) > kQueueBytes * ns_a_byte) return;
      sent_ns += static_cast<int64_t>(
          static_cast<double>(bytes - kHeaderBytes) * ns_a_byte);
      port.free_ns = sent_ns;
    }
    if (held_bytes_ + bytes > kHeldBytes) return;
    held_bytes_ += bytes;
    port.held.push_back({sent_ns + options_.delay_ns,
                         {buffer_.begin(), buffer_.begin() + bytes}});
  }

  void Release() {
    const int64_t now = NowNs();
    for (Port& port : ports_) {
      while (!port.held.empty() && port.held.front().release_ns <= now) {
        const std::vector<char>& frame = port.held.front().bytes;
        // What a TAP that's down or full refuses is lost, as on a wire.
        const ssize_t ignored = write(port.tap, frame.data(), frame.size());
        static_cast<void>(ignored);
        held_bytes_ -= frame.size();
        port.held.pop_front();
      }
    }
  }

  void SetTimer() {
    int64_t next_ns = 0;
    for (const Port& port : ports_)
      if (!port.held.empty() &&
          (next_ns == 0 || port.held.front().release_ns < next_ns))
        next_ns = port.held.front().release_ns;
    if (next_ns == timer_ns_) return;
    timer_ns_ = next_ns;
    itimerspec when = {};
    when.it_value.tv_sec = next_ns / kSecondNs;
    when.it_value.tv_nsec = next_ns % kSecondNs;
    // Setting it also takes back that it has expired.
    Check(timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr),
          "can't set the timer");
  }

  const Options options_;
  std::mt19937_64 random_;
  const int timer_;
  const int epoll_;
  std::vector<Port> ports_;
  std::map<Address, size_t> learned_;
  std::vector<char> buffer_;
  size_t held_bytes_ = 0;
  int64_t timer_ns_ = 0;  // what the timer is set to, 0 if it isn't
};

// Ranks that spin must not keep a frame from its time. Best effort: some
// control groups allow no real-time priority.
void GoFirst() {
  sched_param priority = {};
  priority.sched_priority = 1;
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
    setpriority(PRIO_PROCESS, 0, -20);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr,
                 "usage: relay DELAY_NS LOSS SEED BYTES_PER_SECOND INTERFACE "
                 "NETWORK_NAMESPACE...\n");
    return 2;
  }
  const Options options = {std::atoll(argv[1]),
                           std::atof(argv[2]),
                           std::strtoull(argv[3], nullptr, 10),
                           std::atof(argv[4]),
                           argv[5],
                           {argv + 6, argv + argc}};
  GoFirst();
  Relay relay(options);
  std::puts("ready");
  std::fflush(stdout);
  relay.Run();
}
