// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/address.h"

#include <arpa/inet.h>
#include <string.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/check.h"

namespace trnccl {
namespace {

constexpr SocketAddress::Family kFamilies[] = {SocketAddress::Family::kIpv4,
                                               SocketAddress::Family::kIpv6};

size_t IpBytes(SocketAddress::Family family) {
  return family == SocketAddress::Family::kIpv4 ? 4 : 16;
}

size_t CountOf(const std::vector<SocketAddress>& addresses,
               SocketAddress::Family family) {
  return static_cast<size_t>(std::count_if(
      addresses.begin(), addresses.end(),
      [family](const SocketAddress& a) { return a.family == family; }));
}

}  // namespace

std::optional<SocketAddress> SocketAddress::FromSockaddr(const sockaddr* raw) {
  SocketAddress address;
  if (raw->sa_family == AF_INET) {
    sockaddr_in in;
    memcpy(&in, raw, sizeof(in));
    memcpy(address.ip.data(), &in.sin_addr, 4);
    address.port = ntohs(in.sin_port);
    return address;
  }
  if (raw->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in;
  memcpy(&in, raw, sizeof(in));
  address.family = Family::kIpv6;
  memcpy(address.ip.data(), &in.sin6_addr, 16);
  address.port = ntohs(in.sin6_port);
  address.scope_id = in.sin6_scope_id;
  return address;
}

std::optional<SocketAddress> SocketAddress::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  std::string ip(text.substr(0, colon));
  uint32_t port = 0;
  uint32_t scope_id = 0;
  if (!absl::SimpleAtoi(std::string(text.substr(colon + 1)), &port) ||
      port > UINT16_MAX) {
    return std::nullopt;
  }
  SocketAddress address;
  int family = AF_INET;
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') {
    family = AF_INET6;
    address.family = Family::kIpv6;
    ip = ip.substr(1, ip.size() - 2);
    if (const size_t scope = ip.find('%'); scope != ip.npos) {
      if (!absl::SimpleAtoi(ip.substr(scope + 1), &scope_id)) {
        return std::nullopt;
      }
      ip.resize(scope);
    }
  }
  if (inet_pton(family, ip.c_str(), address.ip.data()) != 1) {
    return std::nullopt;
  }
  address.port = static_cast<uint16_t>(port);
  address.scope_id = scope_id;
  return address;
}

socklen_t SocketAddress::ToSockaddr(sockaddr_storage* storage) const {
  if (family == Family::kIpv4) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    memcpy(&in.sin_addr, ip.data(), 4);
    memcpy(storage, &in, sizeof(in));
    return sizeof(in);
  }
  sockaddr_in6 in = {};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  in.sin6_scope_id = scope_id;
  memcpy(&in.sin6_addr, ip.data(), 16);
  memcpy(storage, &in, sizeof(in));
  return sizeof(in);
}

bool SocketAddress::IsLoopback() const {
  if (family == Family::kIpv4) return ip[0] == 127;
  return ip.back() == 1 && std::all_of(ip.begin(), ip.end() - 1,
                                       [](uint8_t byte) { return byte == 0; });
}

bool SocketAddress::IsLinkLocal() const {
  return family == Family::kIpv6 && ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

std::string SocketAddress::IpText() const {
  char text[INET6_ADDRSTRLEN] = {};
  TRNCCL_CHECK(inet_ntop(family == Family::kIpv4 ? AF_INET : AF_INET6,
                         ip.data(), text, sizeof(text)) != nullptr);
  return text;
}

std::string SocketAddress::ToString() const {
  if (family == Family::kIpv4) return absl::StrCat(IpText(), ":", port);
  return absl::StrCat("[", IpText(),
                      scope_id != 0 ? absl::StrCat("%", scope_id) : "",
                      "]:", port);
}

std::string ToString(const std::vector<SocketAddress>& addresses) {
  return absl::StrJoin(addresses, ", ",
                       [](std::string* out, const SocketAddress& address) {
                         out->append(address.ToString());
                       });
}

std::vector<SocketAddress> FirstThatFit(
    const std::vector<SocketAddress>& addresses) {
  std::vector<SocketAddress> fit;
  size_t bytes = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    // The first of a family that's still to come keeps its room.
    size_t kept = 0;
    for (const auto family : kFamilies) {
      const bool to_come =
          family != addresses[i].family && CountOf(fit, family) == 0 &&
          CountOf(
              {addresses.begin() + static_cast<ptrdiff_t>(i), addresses.end()},
              family) > 0;
      if (to_come) kept += IpBytes(family);
    }
    if (bytes + IpBytes(addresses[i].family) + kept > kMaxIpBytes) continue;
    bytes += IpBytes(addresses[i].family);
    fit.push_back(addresses[i]);
  }
  return fit;
}

void WriteAddresses(const std::vector<SocketAddress>& addresses,
                    WireWriter* writer) {
  TRNCCL_CHECK(!addresses.empty());
  for (const auto family : kFamilies) {
    writer->U8(static_cast<uint8_t>(CountOf(addresses, family)));
  }
  const uint16_t port = addresses.front().port;
  writer->U32(port);
  size_t bytes = 0;
  for (const auto family : kFamilies) {
    for (const SocketAddress& address : addresses) {
      if (address.family != family) continue;
      TRNCCL_CHECK(address.port == port);
      writer->Raw(
          {reinterpret_cast<const char*>(address.ip.data()), IpBytes(family)});
      bytes += IpBytes(family);
    }
  }
  TRNCCL_CHECK(bytes <= kMaxIpBytes);
}

std::optional<std::vector<SocketAddress>> ReadAddresses(WireReader* reader) {
  size_t counts[std::size(kFamilies)];
  size_t bytes = 0;
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    counts[i] = reader->U8();
    bytes += counts[i] * IpBytes(kFamilies[i]);
  }
  const uint32_t port = reader->U32();
  if (!reader->ok() || bytes == 0 || bytes > kMaxIpBytes || port == 0 ||
      port > UINT16_MAX) {
    return std::nullopt;
  }
  std::vector<SocketAddress> addresses;
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    for (size_t k = 0; k < counts[i]; ++k) {
      const std::string_view ip = reader->Raw(IpBytes(kFamilies[i]));
      SocketAddress& address = addresses.emplace_back();
      address.family = kFamilies[i];
      std::copy(ip.begin(), ip.end(), address.ip.begin());
      address.port = static_cast<uint16_t>(port);
    }
  }
  if (!reader->ok()) return std::nullopt;
  return addresses;
}

}  // namespace trnccl
