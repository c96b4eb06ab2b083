// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/address_vector.h"

#include <algorithm>
#include <cstring>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/fork_guard.h"

namespace trnccl::manners {
namespace {

AddressVector* AvOf(fid_av* av) { return static_cast<AddressVector*>(av); }

fi_addr_t InsertOne(AddressVector& av, const Address& address) {
  if (av.domain->fabric->faults.Strikes(Fault::kInsert) ||
      address.magic != kAddressMagic)
    return FI_ADDR_NOTAVAIL;
  if (address.flavour != av.domain->fabric->flavour) {
    Breach("an address of fabric ", NameOf(address.flavour),
           " is inserted into one of ", NameOf(av.domain->fabric->flavour));
  }
  const auto [found, added] = av.indices.emplace(address, av.addresses.size());
  if (added) av.addresses.emplace_back(address);
  return found->second;
}

int Insert(AddressVector& av, const void* addresses, size_t count,
           fi_addr_t* indices) {
  int inserted = 0;
  for (size_t i = 0; i < count; ++i) {
    Address address;
    std::memcpy(&address, static_cast<const Address*>(addresses) + i,
                sizeof(address));
    const fi_addr_t index = InsertOne(av, address);
    inserted += index != FI_ADDR_NOTAVAIL;
    if (indices != nullptr) indices[i] = index;
  }
  return inserted;
}

int Remove(AddressVector& av, const fi_addr_t* indices, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    av.indices.erase(av.At(indices[i]));
    av.addresses[indices[i]].reset();
  }
  return 0;
}

int Lookup(const AddressVector& av, fi_addr_t index, void* address,
           size_t* bytes) {
  if (index >= av.addresses.size() || !av.addresses[index])
    return -FI_EADDRNOTAVAIL;
  std::memcpy(address, &*av.addresses[index],
              std::min(*bytes, sizeof(Address)));
  *bytes = sizeof(Address);
  return 0;
}

const char* AddressText(const void* address, char* text, size_t* bytes) {
  Address copy;
  std::memcpy(&copy, address, sizeof(copy));
  const std::string name = "fi_addr_manners://" + TextOf(copy);
  if (*bytes > 0) text[name.copy(text, *bytes - 1)] = '\0';
  *bytes = name.size() + 1;
  return text;
}

int Close(AddressVector* av) {
  if (av->endpoints > 0) return -FI_EBUSY;
  --av->domain->users;
  delete av;
  return 0;
}

fi_ops kObject = {
    .size = sizeof(fi_ops),
    .close = [](fid* object) -> int {
      auto* av = ObjectOf<AddressVector, fid_av>(object);
      return Guarded(av->domain->fabric->generation, [&] { return Close(av); });
    },
    .bind = Unsupported,
    .control = Unsupported,
    .ops_open = Unsupported,
};

fi_ops_av kCalls = {
    .size = sizeof(fi_ops_av),
    .insert = [](fid_av* av, const void* addresses, size_t count,
                 fi_addr_t* indices, uint64_t, void*) -> int {
      return Guarded(AvOf(av)->domain->fabric->generation, [&] {
        return Insert(*AvOf(av), addresses, count, indices);
      });
    },
    .insertsvc = Unsupported,
    .insertsym = Unsupported,
    .remove = [](fid_av* av, fi_addr_t* indices, size_t count,
                 uint64_t) -> int {
      return Guarded(AvOf(av)->domain->fabric->generation,
                     [&] { return Remove(*AvOf(av), indices, count); });
    },
    .lookup = [](fid_av* av, fi_addr_t index, void* address,
                 size_t* bytes) -> int {
      return Guarded(AvOf(av)->domain->fabric->generation,
                     [&] { return Lookup(*AvOf(av), index, address, bytes); });
    },
    .straddr = [](fid_av*, const void* address, char* text,
                  size_t* bytes) { return AddressText(address, text, bytes); },
};

}  // namespace

const Address& AddressVector::At(fi_addr_t address) const {
  if (address >= addresses.size() || !addresses[address])
    Breach("fi_addr_t ", address, " isn't in the address vector");
  return *addresses[address];
}

fi_addr_t AddressVector::IndexOf(const Address& address) const {
  const auto found = indices.find(address);
  return found == indices.end() ? FI_ADDR_NOTAVAIL : found->second;
}

int OpenAddressVector(Domain& domain, const fi_av_attr& attr, fid_av** av,
                      void* context) {
  if (domain.fabric->faults.Strikes(Fault::kAddressVector)) return -FI_ENOMEM;
  if (attr.name != nullptr || attr.flags != 0) return -FI_ENOSYS;
  auto* object = new AddressVector;
  object->fid = {.fclass = FI_CLASS_AV, .context = context, .ops = &kObject};
  object->ops = &kCalls;
  object->domain = &domain;
  ++domain.users;
  *av = object;
  return 0;
}

}  // namespace trnccl::manners
