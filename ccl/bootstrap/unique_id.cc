// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/unique_id.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/mutex.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

constexpr std::string_view kMagic = "TRNCCLID";
constexpr uint8_t kVersion = 2;

struct Offer {
  std::vector<Socket> listeners;
  // A forked child inherits the table, but its parent's offers aren't its own.
  pid_t process;
};

struct Offers {
  Mutex mutex;
  std::map<Secret, Offer> by_secret ABSL_GUARDED_BY(mutex);
};

Offers& TheOffers() {
  static Offers& offers = *new Offers;
  return offers;
}

}  // namespace

std::string UniqueId::Serialize() const {
  WireWriter writer;
  writer.Raw(kMagic);
  writer.U8(kVersion);
  writer.Raw({reinterpret_cast<const char*>(secret.data()), secret.size()});
  WriteAddresses(addresses, &writer);
  std::string bytes = writer.bytes();
  TRNCCL_CHECK(bytes.size() <= kUniqueIdBytes);
  bytes.resize(kUniqueIdBytes, '\0');
  return bytes;
}

absl::StatusOr<UniqueId> UniqueId::Parse(std::string_view bytes) {
  WireReader reader(bytes);
  if (bytes.size() != kUniqueIdBytes || reader.Raw(kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError(
        "not a trnccl unique id; pass on all 128 bytes of the one that was "
        "made, unchanged");
  }
  if (const int version = reader.U8(); version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("a unique id of form ", version,
                     ", made by another version of trnccl; "
                     "this one reads form ",
                     int{kVersion}));
  }
  UniqueId id;
  const std::string_view secret = reader.Raw(kSecretBytes);
  std::copy(secret.begin(), secret.end(), id.secret.begin());
  auto addresses = ReadAddresses(&reader);
  bool rest_is_zero = true;
  while (!reader.Finished() && reader.ok()) rest_is_zero &= reader.U8() == 0;
  if (!addresses || !rest_is_zero) {
    return absl::InvalidArgumentError(
        "a damaged trnccl unique id; pass on all 128 bytes of the one that "
        "was made, unchanged");
  }
  id.addresses = *std::move(addresses);
  return id;
}

std::string UniqueId::ToString() const {
  return absl::StrCat("unique id of ", trnccl::ToString(addresses));
}

absl::StatusOr<UniqueId> CreateUniqueId(const InterfaceChoice& choice) {
  ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  ASSIGN_OR_RETURN(const auto addresses, ChooseAddresses(interfaces, choice));
  UniqueId id;
  Offer offer;
  offer.process = getpid();
  ASSIGN_OR_RETURN(offer.listeners, ListenOnOnePort(addresses));
  ASSIGN_OR_RETURN(id.addresses, AddressesOf(offer.listeners));
  ASSIGN_OR_RETURN(const std::string secret, RandomBytes(kSecretBytes));
  std::copy(secret.begin(), secret.end(), id.secret.begin());
  MutexLock lock(TheOffers().mutex);
  TheOffers().by_secret[id.secret] = std::move(offer);
  return id;
}

std::vector<Socket> TakeListeners(const UniqueId& id) {
  MutexLock lock(TheOffers().mutex);
  auto& by_secret = TheOffers().by_secret;
  const auto offer = by_secret.find(id.secret);
  if (offer == by_secret.end()) return {};
  std::vector<Socket> listeners = std::move(offer->second.listeners);
  const bool ours = offer->second.process == getpid();
  by_secret.erase(offer);
  if (!ours) listeners.clear();
  return listeners;
}

absl::StatusOr<std::unique_ptr<MeetingPlace>> MeetingPlace::Open(
    const Secret& secret, const SocketAddress& address) {
  UniqueId id{.secret = secret};
  ASSIGN_OR_RETURN(std::vector<Socket> listeners, ListenOnOnePort({address}));
  ASSIGN_OR_RETURN(id.addresses, AddressesOf(listeners));
  return std::unique_ptr<MeetingPlace>(
      new MeetingPlace(std::move(id), std::move(listeners)));
}

absl::StatusOr<std::vector<Socket>> MeetingPlace::Listeners() const {
  std::vector<Socket> copies;
  for (const Socket& socket : listeners_) {
    const int fd = fcntl(socket.fd(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no descriptor to meet at ", socket.peer(),
                       "; raise the limit of open files (ulimit -n)"));
    }
    copies.emplace_back(fd, socket.peer());
  }
  return copies;
}

}  // namespace trnccl
