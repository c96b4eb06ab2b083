// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the network alone gives: two processes send each other a buffer at once,
// over one TCP connection, again and again. The yardstick for collectives that
// cross it.
//
//   plain_sockets [--bytes N] [--repeats N] [RANK PEER_ADDRESS]
//   bin/nodes -n 2 -p 1 bazel-bin/tests/wire/plain_sockets
//
// Rank 0 listens (port 7077), rank 1 connects to it. Rank and address come from
// bin/nodes if they aren't given. One thread a process, non-blocking sockets
// and poll; the buffers hold random bytes, and are received into and sent from
// as they are. Prints, on rank 0, the best and the median.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr char kPort[] = "7077";
constexpr int kWarmUps = 2;
constexpr std::chrono::seconds kConnectLimit(30);
// One call's most: longer ones would keep the other way waiting.
constexpr size_t kCallBytes = size_t{256} << 10;
constexpr int kStallMs = 60'000;  // without a byte either way

struct Options {
  size_t bytes = size_t{64} << 20;
  size_t repeats = 20;
  int rank = -1;
  std::string peer;
};

[[noreturn]] void Die(const char* what, const char* why) {
  std::fprintf(stderr, "plain_sockets: %s: %s\n", what, why);
  std::exit(1);
}

int Check(int result, const char* what) {
  if (result < 0) Die(what, std::strerror(errno));
  return result;
}

size_t Number(const char* text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || value == 0 || text[0] == '-')
    Die(text, "isn't a positive number");
  return value;
}

// From what bin/nodes and the launcher tell.
void FindPeer(Options& options) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("RANK");
  const char* addresses = std::getenv("NODES_ADDRESSES");
  if (rank == nullptr || addresses == nullptr)
    Die("no RANK and PEER_ADDRESS", "give both, or start it by bin/nodes");
  const std::string_view list = addresses;
  const size_t comma = list.find(',');
  options.rank = std::atoi(rank);
  if (options.rank > 1 || comma == list.npos || comma != list.rfind(','))
    Die("more or less than 2 nodes of 1 rank", "it's made for these");
  options.peer =
      options.rank == 0 ? list.substr(comma + 1) : list.substr(0, comma);
}

Options Parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--bytes" && i + 1 < argc) {
      options.bytes = Number(argv[++i]);
    } else if (word == "--repeats" && i + 1 < argc) {
      options.repeats = Number(argv[++i]);
    } else {
      words.emplace_back(word);
    }
  }
  if (words.empty()) {
    FindPeer(options);
  } else if (words.size() == 2 && (words[0] == "0" || words[0] == "1")) {
    options.rank = words[0] == "1" ? 1 : 0;
    options.peer = words[1];
  } else {
    Die("usage", "plain_sockets [--bytes N] [--repeats N] [0|1 PEER_ADDRESS]");
  }
  return options;
}

// On all addresses, IPv4 as well.
int Accept() {
  const int listener = Check(socket(AF_INET6, SOCK_STREAM, 0), "socket");
  const int on = 1;
  const int off = 0;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<uint16_t>(std::atoi(kPort)));
  Check(bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof(any)), "bind");
  Check(listen(listener, 1), "listen");
  const int peer = Check(accept(listener, nullptr, nullptr), "accept");
  close(listener);
  return peer;
}

int Connect(const std::string& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), kPort, &hints, &found);
  if (error != 0) Die(address.c_str(), gai_strerror(error));
  const auto limit = std::chrono::steady_clock::now() + kConnectLimit;
  while (true) {  // The peer may not listen yet.
    const int peer = Check(socket(found->ai_family, SOCK_STREAM, 0), "socket");
    if (connect(peer, found->ai_addr, found->ai_addrlen) == 0) {
      freeaddrinfo(found);
      return peer;
    }
    if (std::chrono::steady_clock::now() > limit)
      Die(address.c_str(), std::strerror(errno));
    close(peer);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Bytes moved, 0 if none can be now.
size_t Moved(ssize_t result, const char* what) {
  if (result > 0) return static_cast<size_t>(result);
  if (result == 0) Die(what, "the peer has gone");
  if (errno != EAGAIN && errno != EINTR) Die(what, std::strerror(errno));
  return 0;
}

// Both ways at once, until both are through.
void Exchange(int peer, const std::vector<uint64_t>& to_send,
              std::vector<uint64_t>& received, size_t bytes) {
  const char* from = reinterpret_cast<const char*>(to_send.data());
  char* into = reinterpret_cast<char*>(received.data());
  size_t sent = 0;
  size_t got = 0;
  while (sent < bytes || got < bytes) {
    size_t moved = 0;
    if (sent < bytes)
      moved += Moved(send(peer, from + sent, std::min(bytes - sent, kCallBytes),
                          MSG_NOSIGNAL),
                     "send");
    sent += moved;
    if (got < bytes) {
      const size_t more = Moved(
          recv(peer, into + got, std::min(bytes - got, kCallBytes), 0), "recv");
      got += more;
      moved += more;
    }
    if (moved > 0) continue;
    pollfd wanted = {peer, 0, 0};
    if (sent < bytes) wanted.events |= POLLOUT;
    if (got < bytes) wanted.events |= POLLIN;
    if (Check(poll(&wanted, 1, kStallMs), "poll") == 0)
      Die("poll", "nothing moves");
  }
}

// Seconds of each repeat, shortest first. A single byte each way first lets
// both begin together.
std::vector<double> Measure(int peer, const Options& options) {
  std::mt19937_64 random(static_cast<uint64_t>(options.rank));
  std::vector<uint64_t> to_send(options.bytes / 8 + 1);
  std::generate(to_send.begin(), to_send.end(), random);
  std::vector<uint64_t> received(to_send.rbegin(), to_send.rend());
  std::vector<double> times;
  for (size_t i = 0; i < kWarmUps + options.repeats; ++i) {
    Exchange(peer, to_send, received, 1);
    const auto start = std::chrono::steady_clock::now();
    Exchange(peer, to_send, received, options.bytes);
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - start;
    if (i >= kWarmUps) times.push_back(took.count());
  }
  std::mt19937_64 theirs(static_cast<uint64_t>(1 - options.rank));
  for (size_t i = 0; i < options.bytes / 8; ++i)
    if (received[i] != theirs()) Die("recv", "other bytes than were sent");
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const int peer = options.rank == 0 ? Accept() : Connect(options.peer);
  const int on = 1;
  setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Check(fcntl(peer, F_SETFL, O_NONBLOCK), "fcntl");
  const std::vector<double> times = Measure(peer, options);
  if (options.rank == 0) {
    const double best = times.front();
    const double median = times[times.size() / 2];
    const double gigabytes = static_cast<double>(options.bytes) / 1e9;
    std::printf(
        "plain_sockets: %zu bytes each way at once, %zu times: best %.3f GB/s "
        "(%.1f us), median %.3f GB/s (%.1f us)\n",
        options.bytes, times.size(), gigabytes / best, best * 1e6,
        gigabytes / median, median * 1e6);
  }
  close(peer);
}
