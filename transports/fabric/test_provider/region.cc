// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/region.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "transports/fabric/test_provider/breach.h"
#include "transports/fabric/test_provider/fork_guard.h"

namespace trnccl::manners {
namespace {

Region* RegionOf(fid* region) { return ObjectOf<Region, fid_mr>(region); }

// Keys are never given out twice, and hard to guess from each other.
void GiveKey(Region& region) {
  Domain& domain = *region.domain;
  do {
    region.key = domain.fabric->random() & 0xffffffff;
  } while (domain.keys.contains(region.key) ||
           domain.closed_keys.contains(region.key));
  domain.keys[region.key] = &region;
  region.enabled = true;
}

int CloseRegion(Region& region) {
  Domain& domain = *region.domain;
  region.closed = true;
  if (region.enabled) {
    domain.keys.erase(region.key);
    domain.closed_keys.insert(region.key);
  }
  domain.regions.erase(&region);
  return 0;
}

int BindRegion(Region& region, const fid* to) {
  if (to->fclass != FI_CLASS_EP) return -FI_EINVAL;
  region.endpoint = to;
  return 0;
}

int EnableRegion(Region& region) {
  if ((region.domain->mr_mode & FI_MR_ENDPOINT) == 0) return -FI_EINVAL;
  if (region.endpoint == nullptr)
    Breach("a region is enabled before it's bound to an endpoint");
  GiveKey(region);
  return 0;
}

fi_ops kRegionOps = {
    .size = sizeof(fi_ops),
    .close = [](fid* region) -> int {
      return Guarded(RegionOf(region)->domain->fabric->generation,
                     [&] { return CloseRegion(*RegionOf(region)); });
    },
    .bind = [](fid* region, fid* to, uint64_t) -> int {
      return Guarded(RegionOf(region)->domain->fabric->generation,
                     [&] { return BindRegion(*RegionOf(region), to); });
    },
    .control = [](fid* region, int command, void*) -> int {
      if (command != FI_ENABLE) return -FI_ENOSYS;
      return Guarded(RegionOf(region)->domain->fabric->generation,
                     [&] { return EnableRegion(*RegionOf(region)); });
    },
    .ops_open = Unsupported,
};

struct Memory {
  std::byte* base = nullptr;
  size_t bytes = 0;
};

// 0 or -errno.
int DmabufMemory(const Domain& domain, const Dmabuf& dmabuf, Memory* memory) {
  if (domain.fabric->api_version < FI_VERSION(1, 20) &&
      domain.fabric->settings.dmabuf == 0)
    Breach("FI_MR_DMABUF with a fabric opened by an API before 1.20");
  struct stat status;
  if (fstat(dmabuf.fd, &status) != 0) return -errno;
  const uint64_t end = dmabuf.offset + dmabuf.len;
  if (status.st_size > 0 && static_cast<uint64_t>(status.st_size) < end)
    return -FI_EINVAL;
  *memory = {static_cast<std::byte*>(dmabuf.base_addr) + dmabuf.offset,
             dmabuf.len};
  return 0;
}

// The whole pages around it.
Memory PagesOf(const Memory& memory) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t before = reinterpret_cast<uintptr_t>(memory.base) % page;
  return {memory.base - before,
          (before + memory.bytes + page - 1) / page * page};
}

bool IsMapped(const Memory& memory) {
  const Memory pages = PagesOf(memory);
  return msync(pages.base, pages.bytes, MS_ASYNC) == 0;
}

// A mark that memory loses when it's unmapped, whatever is mapped there later.
// What a NIC has pinned is the old memory, then.
void Pin(const Memory& memory) {
  const Memory pages = PagesOf(memory);
  if (madvise(pages.base, pages.bytes, MADV_DONTFORK) != 0)
    Breach("madvise failed with errno ", errno);
}

bool IsPinned(const Memory& memory) {
  const auto first = reinterpret_cast<uintptr_t>(memory.base);
  const uintptr_t last = first + memory.bytes;
  size_t pinned = 0;
  size_t overlap = 0;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t start = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &start, &end) == 2) {
      start = std::max(start, first);
      end = std::min(end, last);
      overlap = start < end ? end - start : 0;
    } else if (line.starts_with("VmFlags:") &&
               line.find(" dc") != std::string::npos) {
      pinned += overlap;
    }
  }
  return pinned == memory.bytes;
}

void CheckPins(const Region& region, const Memory& memory) {
  if (region.domain->fabric->settings.pins != 0 && !IsPinned(memory))
    Breach("memory was unmapped while it's registered");
}

int Register(Domain& domain, const fi_mr_attr& attr, uint64_t flags,
             fid_mr** mr) {
  if (domain.fabric->faults.Strikes(Fault::kRegister)) return -FI_ENOMEM;
  const bool dmabuf = (flags & kMrDmabuf) != 0;
  const bool device = dmabuf || attr.iface != FI_HMEM_SYSTEM;
  if (device && (domain.caps & FI_HMEM) == 0)
    Breach("device memory is registered without FI_HMEM among the caps");
  if (device && attr.iface != FI_HMEM_NEURON) return -FI_ENOSYS;
  if (attr.iov_count != 1) return -FI_EINVAL;  // mr_iov_limit
  Memory memory;
  if (dmabuf) {
    // The array of the attributes is one of these, then.
    const auto* from = reinterpret_cast<const Dmabuf*>(attr.mr_iov);
    const int error = DmabufMemory(domain, *from, &memory);
    if (error != 0) return error;
  } else {
    memory = {static_cast<std::byte*>(attr.mr_iov->iov_base),
              attr.mr_iov->iov_len};
  }
  if (memory.bytes == 0) return -FI_EINVAL;
  if (!IsMapped(memory)) return -FI_EFAULT;
  if (domain.fabric->settings.pins != 0) Pin(memory);
  auto region = std::make_shared<Region>();
  region->fid = {
      .fclass = FI_CLASS_MR, .context = attr.context, .ops = &kRegionOps};
  region->mem_desc = region.get();
  region->key = FI_KEY_NOTAVAIL;
  region->domain = &domain;
  region->base = memory.base;
  region->bytes = memory.bytes;
  region->access = attr.access;
  region->device = device;
  if ((domain.mr_mode & FI_MR_ENDPOINT) == 0) GiveKey(*region);
  domain.regions[region.get()] = region;
  *mr = region.get();
  return 0;
}

int GuardedRegister(fid* domain, const fi_mr_attr& attr, uint64_t flags,
                    fid_mr** mr) {
  Domain* object = ObjectOf<Domain, fid_domain>(domain);
  return Guarded(object->fabric->generation,
                 [&] { return Register(*object, attr, flags, mr); });
}

// Whether [base, base + bytes) lies in the region.
bool Covers(const Region& region, const std::byte* base, uint64_t bytes) {
  const auto start = reinterpret_cast<uintptr_t>(base);
  const auto first = reinterpret_cast<uintptr_t>(region.base);
  return start >= first && start - first <= region.bytes &&
         bytes <= region.bytes - (start - first);
}

}  // namespace

Segment LocalSegment(const LocalUse& use, const iovec& buffer,
                     const void* desc) {
  auto* base = static_cast<std::byte*>(buffer.iov_base);
  if (buffer.iov_len == 0) return {base, 0, nullptr};
  const auto found = use.domain.regions.find(desc);
  if (found == use.domain.regions.end()) {
    Breach(use.call, " of ", buffer.iov_len, " bytes with ",
           desc == nullptr ? "no descriptor (FI_MR_LOCAL)"
                           : "a descriptor that isn't registered");
  }
  const Region& region = *found->second;
  if (!region.enabled) Breach(use.call, " uses a region that isn't enabled");
  if (region.endpoint != nullptr && region.endpoint != use.endpoint)
    Breach(use.call, " uses a region that's bound to another endpoint");
  if (!Covers(region, base, buffer.iov_len))
    Breach(use.call, " of ", buffer.iov_len, " bytes leaves its region");
  if ((region.access & use.access) == 0)
    Breach(use.call, " uses a region without that access");
  CheckPins(region, {base, buffer.iov_len});
  return {base, buffer.iov_len, found->second};
}

Target RemoteTarget(const RemoteUse& use) {
  if (use.bytes == 0) return {};
  if (use.domain.closed_keys.contains(use.key))
    return {.outcome = Outcome::kClosedKey};
  const auto found = use.domain.keys.find(use.key);
  if (found == use.domain.keys.end()) return {.outcome = Outcome::kUnknownKey};
  Region& region = *found->second;
  if (region.endpoint != nullptr && region.endpoint != use.endpoint)
    return {.outcome = Outcome::kUnknownKey};
  if (!Covers(region, reinterpret_cast<std::byte*>(use.address), use.bytes))
    return {.outcome = Outcome::kOutOfRange};
  if ((region.access & use.access) == 0) return {.outcome = Outcome::kNoAccess};
  return {.region = &region};
}

void Store(Region& region, std::byte* to, std::span<const std::byte> bytes) {
  CheckPins(region, {to, bytes.size()});
  if (region.device)
    region.late.push_back({to, {bytes.begin(), bytes.end()}});
  else
    std::memcpy(to, bytes.data(), bytes.size());
}

void Scatter(std::span<const Segment> to, std::span<const std::byte> bytes) {
  for (const Segment& segment : to) {
    const size_t part = std::min(segment.bytes, bytes.size());
    if (part > 0) Store(*segment.region, segment.base, bytes.first(part));
    bytes = bytes.subspan(part);
  }
}

void Fence(Region& region) {
  for (const Region::Late& late : region.late)
    std::memcpy(late.to, late.bytes.data(), late.bytes.size());
  region.late.clear();
}

fi_ops_mr kRegistration = {
    .size = sizeof(fi_ops_mr),
    .reg = [](fid* domain, const void* buffer, size_t bytes, uint64_t access,
              uint64_t, uint64_t, uint64_t flags, fid_mr** mr,
              void* context) -> int {
      const iovec memory = {const_cast<void*>(buffer), bytes};
      return GuardedRegister(domain,
                             {.mr_iov = &memory,
                              .iov_count = 1,
                              .access = access,
                              .context = context},
                             flags, mr);
    },
    .regv = [](fid* domain, const iovec* memory, size_t count, uint64_t access,
               uint64_t, uint64_t, uint64_t flags, fid_mr** mr,
               void* context) -> int {
      return GuardedRegister(domain,
                             {.mr_iov = memory,
                              .iov_count = count,
                              .access = access,
                              .context = context},
                             flags, mr);
    },
    .regattr = [](fid* domain, const fi_mr_attr* attr, uint64_t flags,
                  fid_mr** mr) -> int {
      return GuardedRegister(domain, *attr, flags, mr);
    },
};

}  // namespace trnccl::manners
