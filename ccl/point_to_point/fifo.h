// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A queue that can also lose an element from its middle, in one block of
// memory: once that is large enough, nothing here allocates.
//
// Thread rule: thread-compatible.
//
//   Fifo<int> fifo;
//   fifo.push_back(1);
//   fifo.Erase(0);
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace trnccl {

template <typename T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }

  T& operator[](size_t index) { return items_[head_ + index]; }
  const T& operator[](size_t index) const { return items_[head_ + index]; }
  T& front() { return items_[head_]; }

  void push_back(T item) {
    // Half or more of the block is used up: moving the rest to its start is
    // paid for by what was taken from it.
    if (items_.size() == items_.capacity() && head_ >= size()) DropUsed();
    items_.push_back(std::move(item));
  }

  void pop_front() {
    items_[head_] = T();
    if (++head_ == items_.size()) clear();
  }

  void Erase(size_t index) {
    if (index == 0) return pop_front();
    items_.erase(items_.begin() + static_cast<ptrdiff_t>(head_ + index));
  }

  void clear() {
    items_.clear();
    head_ = 0;
  }

 private:
  void DropUsed() {
    items_.erase(items_.begin(),
                 items_.begin() + static_cast<ptrdiff_t>(head_));
    head_ = 0;
  }

  std::vector<T> items_;
  size_t head_ = 0;  // the items before it are used up
};

}  // namespace trnccl
