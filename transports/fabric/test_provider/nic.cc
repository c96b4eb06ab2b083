// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/nic.h"

#include <rdma/fi_errno.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/object.h"

namespace trnccl::manners {
namespace {

// All that a fid_nic points to; libfabric duplicates it piece by piece.
struct Nic : fid_nic {
  fi_device_attr device = {};
  fi_bus_attr bus = {};
  fi_link_attr link = {};
  std::string name;
  std::string address;

  explicit Nic(const std::string& nic_name);
};

Nic* NicOf(fid* object) { return ObjectOf<Nic, fid_nic>(object); }

fi_ops kObject = {
    .size = sizeof(fi_ops),
    .close = [](fid* object) -> int {
      delete NicOf(object);
      return 0;
    },
    .bind = Unsupported,
    .control = [](fid* object, int command, void* argument) -> int {
      if (command != FI_DUP) return -FI_ENOSYS;
      auto* copy = new Nic(NicOf(object)->name);
      copy->bus = NicOf(object)->bus;
      copy->link.mtu = NicOf(object)->link.mtu;
      *static_cast<fid_nic**>(argument) = copy;
      return 0;
    },
    .ops_open = Unsupported,
    .tostr = [](const fid*, char*, size_t) -> int { return 0; },
};

char* Chars(const char* text) { return const_cast<char*>(text); }

Nic::Nic(const std::string& nic_name)
    : name(nic_name), address("fe80::" + nic_name) {
  fid = {.fclass = FI_CLASS_NIC, .context = nullptr, .ops = &kObject};
  device_attr = &device;
  bus_attr = &bus;
  link_attr = &link;
  prov_attr = nullptr;
  device.name = name.data();
  device.device_id = Chars("0xefa1");
  device.device_version = Chars("0");
  device.vendor_id = Chars("0x1d0f");
  device.driver = Chars("manners");
  device.firmware = Chars("0.0.0.0");
  link.address = address.data();
  link.speed = 100'000'000'000;
  link.state = FI_LINK_UP;
  link.network_type = Chars("Ethernet");
}

// "0000:10:1e.0"
fi_pci_attr PciOf(const std::string& text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(text.c_str(), "%x:%x:%x.%x", &domain, &bus, &device,
                  &function) != 4)
    Breach("'", text, "' in MANNERS_PCI isn't like 0000:10:1e.0");
  return {static_cast<uint16_t>(domain), static_cast<uint8_t>(bus),
          static_cast<uint8_t>(device), static_cast<uint8_t>(function)};
}

}  // namespace

std::string NicName(size_t nic) { return Text("manners", nic); }

fid_nic* NewNic(const Settings& settings, size_t nic) {
  auto* object = new Nic(NicName(nic));
  object->link.mtu = settings.message_bytes;
  object->bus.bus_type = FI_BUS_PCI;
  object->bus.attr.pci =
      nic < settings.pci.size()
          ? PciOf(settings.pci[nic])
          : fi_pci_attr{0, static_cast<uint8_t>(0x10 * (nic + 1)), 0x1e, 0};
  return object;
}

}  // namespace trnccl::manners
