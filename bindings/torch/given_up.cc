// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/given_up.h"

#include <functional>
#include <string_view>

namespace trnccl::torch_binding {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

std::string_view BytesOf(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

GivenUp::GivenUp(c10d::Store* store, const std::string& key,
                 const std::vector<uint8_t>& address)
    : store_(store),
      key_(c10::str(key, "/given_up/",
                    std::hash<std::string_view>()(BytesOf(address)))),
      next_look_(Clock::now() + kBetweenLooks) {}

void GivenUp::Tell(const std::string& why) noexcept {
  try {
    store_->set(key_, why);
  } catch (...) {
    TORCH_WARN("trnccl: the other ranks couldn't be told: ", why);
  }
}

std::string GivenUp::Heard() {
  const auto now = Clock::now();
  if (now < next_look_) return "";
  next_look_ = now + kBetweenLooks;
  return HeardNow();
}

std::string GivenUp::HeardNow() {
  return store_->check({key_}) ? store_->get_to_str(key_) : "";
}

}  // namespace trnccl::torch_binding
