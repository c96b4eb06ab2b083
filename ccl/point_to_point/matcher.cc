// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/matcher.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

constexpr uint64_t kNone = UINT64_MAX;

template <typename Item>
struct Found {
  Fifo<Item>* list = nullptr;
  size_t index = 0;
  uint64_t order = kNone;

  Item Take() {
    Item item = std::move((*list)[index]);
    list->Erase(index);
    return item;
  }
};

template <typename Item, typename Matches>
Found<Item> FindFirst(Fifo<Item>& list, Matches matches) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (matches(list[i])) return {&list, i, list[i].order};
  }
  return {};
}

bool TagMatches(int64_t wanted, int64_t tag) {
  return wanted == kAnyTag || wanted == tag;
}

}  // namespace

void Matcher::Post(Transfer* receive) {
  Fifo<Posted>& list = receive->peer == kAnySource
                           ? posted_any_source_
                           : SourceOf(receive->peer).posted;
  list.push_back({receive, next_order_++});
}

Transfer* Matcher::TakePosted(int source, int64_t tag) {
  const auto matches = [tag](const Posted& posted) {
    return TagMatches(posted.transfer->tag, tag);
  };
  Found<Posted> found = FindFirst(SourceOf(source).posted, matches);
  const Found<Posted> any = FindFirst(posted_any_source_, matches);
  if (any.order < found.order) found = any;
  return found.order == kNone ? nullptr : found.Take().transfer;
}

void Matcher::Keep(Arrived message) {
  message.order = next_order_++;
  if (message.header.kind == MessageKind::kEager && message.header.bytes > 0) {
    message.payload = std::make_unique<std::byte[]>(message.header.bytes);
    std::memcpy(message.payload.get(), message.data, message.header.bytes);
    message.data = message.payload.get();
  }
  SourceOf(message.source).arrived.push_back(std::move(message));
}

std::optional<Arrived> Matcher::TakeArrived(const Transfer& receive) {
  const auto matches = [&receive](const Arrived& arrived) {
    return TagMatches(receive.tag, arrived.header.tag);
  };
  Found<Arrived> found;
  if (receive.peer != kAnySource) {
    found = FindFirst(SourceOf(receive.peer).arrived, matches);
  } else {
    for (Source& source : sources_) {
      const Found<Arrived> other = FindFirst(source.arrived, matches);
      if (other.order < found.order) found = other;
    }
  }
  if (found.order == kNone) return std::nullopt;
  return found.Take();
}

std::string Matcher::UnmatchedText(const Transfer& receive) const {
  size_t count = 0;
  const Arrived* first = nullptr;
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    if (receive.peer != kAnySource && receive.peer != static_cast<int>(rank)) {
      continue;
    }
    const Fifo<Arrived>& arrived = sources_[rank].arrived;
    count += arrived.size();
    if (!arrived.empty() &&
        (first == nullptr || arrived[0].order < first->order)) {
      first = &arrived[0];
    }
  }
  if (first == nullptr) return "";
  return absl::StrCat(count, " others came, the first from rank ",
                      first->source, " with tag ", first->header.tag);
}

void Matcher::FailAll(const absl::Status& status) {
  const auto fail = [&status](Fifo<Posted>& posted) {
    for (size_t i = 0; i < posted.size(); ++i) {
      Finish(posted[i].transfer, status);
    }
    posted.clear();
  };
  fail(posted_any_source_);
  for (Source& source : sources_) {
    fail(source.posted);
    for (size_t i = 0; i < source.arrived.size(); ++i) {
      Transfer* send = source.arrived[i].local;
      if (send != nullptr) Finish(send, status);
    }
    source.arrived.clear();
  }
}

}  // namespace trnccl
