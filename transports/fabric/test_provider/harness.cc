// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/test_provider/harness.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"

namespace trnccl::manners {
namespace {

constexpr int kTurns = 2000000;
constexpr const char* kFolder = "transports/fabric/test_provider";

// Before libfabric looks for providers, which it does once.
const int kProviderPath = setenv("FI_PROVIDER_PATH", kFolder, 1);

void Close(void* object) {
  if (object != nullptr) fi_close(static_cast<fid*>(object));
}

}  // namespace

Setting::Setting(const char* name, const std::string& value) : name_(name) {
  setenv(name, value.c_str(), 1);
}
Setting::~Setting() { unsetenv(name_); }

Info Hints(const std::string& fabric) {
  EXPECT_EQ(kProviderPath, 0);
  Info hints(fi_allocinfo(), fi_freeinfo);
  hints->caps = FI_MSG | FI_RMA | FI_HMEM | FI_SOURCE;
  if (fabric == "efa") hints->caps |= FI_TAGGED | FI_DIRECTED_RECV;
  hints->mode = FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR |
                                FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                FI_MR_ENDPOINT;
  if (fabric == "efa") {
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
  }
  hints->fabric_attr->name = strdup(fabric.c_str());
  hints->fabric_attr->prov_name = strdup("manners");
  return hints;
}

Info Query(const fi_info* hints) {
  fi_info* info = nullptr;
  const int status =
      fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
  EXPECT_TRUE(status == 0 || status == -FI_ENODATA) << status;
  return Info(info, fi_freeinfo);
}

Memory::Memory(fid_domain* domain, fid_ep* endpoint, const Options& options)
    : bytes_(options.bytes) {
  for (size_t i = 0; i < bytes_.size(); ++i)
    bytes_[i] = static_cast<std::byte>(i * 7 + options.salt * 31 + i / 256);
  const iovec memory = {bytes_.data(), bytes_.size()};
  const fi_mr_attr attr = {.mr_iov = &memory,
                           .iov_count = 1,
                           .access = options.access,
                           .iface = options.iface};
  EXPECT_EQ(fi_mr_regattr(domain, &attr, 0, &region_), 0);
  if (endpoint == nullptr) return;
  EXPECT_EQ(fi_mr_bind(region_, &endpoint->fid, 0), 0);
  EXPECT_EQ(fi_mr_enable(region_), 0);
}

Memory::~Memory() { Deregister(); }

void Memory::Deregister() {
  Close(region_);
  region_ = nullptr;
}

Side::Side(const Options& options) : info_(nullptr, fi_freeinfo) {
  Open(options);
}

Side::~Side() {
  Close(endpoint_);
  memory_.clear();
  Close(cq_);
  Close(av_);
  Close(domain_);
  Close(fabric_);
}

bool Side::Keep(int status, const char* call) {
  if (status == 0) return true;
  failed_ = call;
  error_ = -status;
  return false;
}

void Side::Open(const Options& options) {
  info_ = Query(Hints(options.fabric).get());
  if (!Keep(info_ == nullptr ? -FI_ENODATA : 0, "getinfo")) return;
  fi_info* info = info_.get();
  for (size_t nic = 0; nic < options.nic && info != nullptr; ++nic)
    info = info->next;
  fi_av_attr av = {.type = FI_AV_TABLE};
  fi_cq_attr cq = {.size = options.completions,
                   .format = FI_CQ_FORMAT_TAGGED,
                   .wait_obj = options.wait};
  const uint64_t both = FI_TRANSMIT | FI_RECV | options.bind_flags;
  Keep(fi_fabric(info->fabric_attr, &fabric_, nullptr), "fabric") &&
      Keep(fi_domain(fabric_, info, &domain_, nullptr), "domain") &&
      Keep(fi_cq_open(domain_, &cq, &cq_, nullptr), "cq") &&
      Keep(fi_av_open(domain_, &av, &av_, nullptr), "av") &&
      Keep(fi_endpoint(domain_, info, &endpoint_, nullptr), "endpoint") &&
      Keep(fi_ep_bind(endpoint_, &av_->fid, 0), "bind") &&
      Keep(fi_ep_bind(endpoint_, &cq_->fid, both), "bind") &&
      Keep(fi_enable(endpoint_), "enable");
}

std::string Side::Name() {
  std::string name(64, '\0');
  size_t bytes = name.size();
  if (!Keep(fi_getname(&endpoint_->fid, name.data(), &bytes), "getname"))
    return "";
  name.resize(bytes);
  return name;
}

fi_addr_t Side::Insert(const std::string& name) {
  fi_addr_t address = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(av_, name.data(), 1, &address, 0, nullptr);
  if (inserted != 1) Keep(-FI_EADDRNOTAVAIL, "av_insert");
  return address;
}

Memory* Side::Register(const Memory::Options& options) {
  const bool bound = (info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
  memory_.push_back(
      std::make_unique<Memory>(domain_, bound ? endpoint_ : nullptr, options));
  return memory_.back().get();
}

void* Side::Context() {
  contexts_.push_back(std::make_unique<fi_context2>());
  return contexts_.back().get();
}

std::optional<Event> Side::Read() {
  if (!put_back_.empty()) {
    const Event event = put_back_.front();
    put_back_.pop_front();
    return event;
  }
  fi_cq_tagged_entry entry = {};
  fi_addr_t source = FI_ADDR_UNSPEC;
  const ssize_t read = fi_cq_readfrom(cq_, &entry, 1, &source);
  if (read == 1) {
    return Event{.context = entry.op_context,
                 .flags = entry.flags,
                 .bytes = entry.len,
                 .data = entry.data,
                 .tag = entry.tag,
                 .source = source};
  }
  if (read == -FI_EAGAIN) return std::nullopt;
  EXPECT_EQ(read, -FI_EAVAIL);
  fi_cq_err_entry error = {};
  EXPECT_EQ(fi_cq_readerr(cq_, &error, 0), 1);
  return Event{.context = error.op_context,
               .flags = error.flags,
               .bytes = error.len,
               .error = error.err,
               .text = fi_cq_strerror(cq_, error.prov_errno, error.err_data,
                                      nullptr, 0)};
}

void Side::CloseEndpoint() {
  EXPECT_EQ(fi_close(&endpoint_->fid), 0);
  endpoint_ = nullptr;
}

void Drive(const std::vector<Side*>& sides,
           const std::function<void(Side&, const Event&)>& take,
           const std::function<bool()>& done) {
  for (int turn = 0; turn < kTurns; ++turn) {
    if (done()) return;
    for (Side* side : sides) {
      if (const std::optional<Event> event = side->Read()) take(*side, *event);
    }
  }
  FAIL() << "nothing came of it";
}

Event Next(const std::vector<Side*>& sides) {
  std::optional<Event> next;
  std::vector<std::pair<Side*, Event>> others;
  Drive(
      sides,
      [&](Side& side, const Event& event) {
        if (&side == sides[0] && !next)
          next = event;
        else
          others.emplace_back(&side, event);
      },
      [&] { return next.has_value(); });
  for (auto& [side, event] : others) side->PutBack(event);
  return next.value_or(Event());
}

}  // namespace trnccl::manners
