// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Pickle is a program for a machine with a stack and a memo. Of its operations
// these are all that plain values take, in protocols 2 to 5; any other, those
// that name classes and functions above all, is refused.
#include <algorithm>
#include <bit>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bindings/cli/value.h"

namespace trnccl::cli {
namespace {

constexpr std::string_view kMemo = "qr\x94hj";

class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<Value> Read() {
    while (at_ < bytes_.size()) {
      const char operation = bytes_[at_++];
      if (operation == '.' && stack_.size() == 1) return stack_.front();
      if (!Run(operation) || !ok_) break;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("no pickle of plain values from byte ", at_, " on"));
  }

 private:
  // The next `bytes` of the file; "" and a failure if there are fewer.
  std::string_view Take(uint64_t bytes) {
    ok_ = ok_ && bytes <= bytes_.size() - at_;
    if (!ok_) return {};
    at_ += bytes;
    return bytes_.substr(at_ - bytes, bytes);
  }

  // Little-endian, with the sign of its last bit.
  int64_t TakeSigned(size_t bytes) {
    const std::string_view taken = Take(bytes);
    uint64_t number =
        !taken.empty() && (taken.back() & 0x80) != 0 ? UINT64_MAX : 0;
    for (size_t i = taken.size(); i-- > 0;)
      number = number << 8 | static_cast<unsigned char>(taken[i]);
    return static_cast<int64_t>(number);
  }
  uint64_t TakeUnsigned(size_t bytes) {
    uint64_t number = 0;
    const std::string_view taken = Take(bytes);
    for (size_t i = taken.size(); i-- > 0;)
      number = number << 8 | static_cast<unsigned char>(taken[i]);
    return number;
  }

  double TakeReal() {
    uint64_t bits = 0;
    for (const char c : Take(sizeof(bits)))
      bits = bits << 8 | static_cast<unsigned char>(c);
    return std::bit_cast<double>(bits);
  }

  bool Push(Value value) {
    stack_.push_back(std::move(value));
    return true;
  }
  bool PushText(uint64_t bytes) {
    return Push(Value(std::string(Take(bytes))));
  }

  // A long number: what doesn't fit is none of ours.
  bool PushLong(uint64_t bytes) {
    return bytes <= sizeof(int64_t) && Push(Value(TakeSigned(bytes)));
  }

  // The values since the last mark, which goes.
  std::vector<Value> PopMarked() {
    ok_ = ok_ && !marks_.empty() && marks_.back() <= stack_.size();
    if (!ok_) return {};
    const size_t mark = marks_.back();
    marks_.pop_back();
    return Pop(stack_.size() - mark);
  }

  std::vector<Value> Pop(size_t count) {
    ok_ = ok_ && count <= stack_.size();
    if (!ok_) return {};
    const auto first = stack_.end() - static_cast<ptrdiff_t>(count);
    std::vector<Value> popped(std::make_move_iterator(first),
                              std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    return popped;
  }

  bool PushListOf(std::vector<Value> values) {
    Value list = Value::NewList();
    for (Value& value : values) list.Append(std::move(value));
    return Push(std::move(list));
  }

  bool Append(std::vector<Value> values) {
    if (!MayGrow()) return false;
    return std::all_of(values.begin(), values.end(), [&](Value& value) {
      return stack_.back().Append(std::move(value));
    });
  }

  // Keys that aren't texts are written as they'd be in JSON.
  bool Insert(std::vector<Value> values) {
    if (!MayGrow() || values.size() % 2 != 0) return false;
    for (size_t i = 0; i < values.size(); i += 2) {
      std::string key = values[i].text();
      if (key.empty()) key = absl::StrCat(values[i].number());
      if (!stack_.back().Insert(std::move(key), std::move(values[i + 1])))
        return false;
    }
    return true;
  }

  bool Remember(uint64_t number) {
    if (stack_.empty()) return false;
    memo_[number] = stack_.back();
    return true;
  }
  bool Recall(uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) return false;
    const void* const shared = found->second.shared();
    if (shared != nullptr) {
      recalled_.insert(shared);
      for (const Value& open : stack_)
        if (open.shared() == shared) return false;
    }
    return Push(found->second);
  }

  // What's recalled is whole, and isn't recalled before: nothing can come to
  // hold itself, which would never be freed.
  bool MayGrow() const {
    return !stack_.empty() && !recalled_.contains(stack_.back().shared());
  }

  bool Run(char operation) {
    switch (operation) {
      case '\x80':  // the protocol
        return Take(1).size() == 1;
      case '\x95':  // a frame
        return Take(8).size() == 8;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '}':
        return Push(Value::NewFields());
      case ']':
      case ')':
        return Push(Value::NewList());
      case 's':
        return Insert(Pop(2));
      case 'u':
        return Insert(PopMarked());
      case 'a':
        return Append(Pop(1));
      case 'e':
        return Append(PopMarked());
      case 't':
        return PushListOf(PopMarked());
      case '\x85':
      case '\x86':
      case '\x87':  // tuples of one, two and three
        return PushListOf(Pop(static_cast<size_t>(operation & 3)));
      default:
        return kMemo.find(operation) != kMemo.npos ? RunMemo(operation)
                                                   : RunScalar(operation);
    }
  }

  bool RunScalar(char operation) {
    switch (operation) {
      case 'N':
        return Push(Value());
      case '\x88':
        return Push(Value::True());
      case '\x89':
        return Push(Value::False());
      case 'J':
        return Push(Value(TakeSigned(4)));
      case 'K':
        return Push(Value(static_cast<int64_t>(TakeUnsigned(1))));
      case 'M':
        return Push(Value(static_cast<int64_t>(TakeUnsigned(2))));
      case '\x8a':
        return PushLong(TakeUnsigned(1));
      case 'G':
        return Push(Value(TakeReal()));
      case 'X':
        return PushText(TakeUnsigned(4));
      case '\x8c':
        return PushText(TakeUnsigned(1));
      default:
        return false;
    }
  }

  bool RunMemo(char operation) {
    switch (operation) {
      case 'q':
        return Remember(TakeUnsigned(1));
      case 'r':
        return Remember(TakeUnsigned(4));
      case '\x94':
        return Remember(memo_.size());
      case 'h':
        return Recall(TakeUnsigned(1));
      case 'j':
        return Recall(TakeUnsigned(4));
      default:
        return false;
    }
  }

  const std::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, Value> memo_;
  std::unordered_set<const void*> recalled_;  // values that are shared
};

}  // namespace

absl::StatusOr<Value> ParsePickle(std::string_view bytes) {
  return PickleReader(bytes).Read();
}

}  // namespace trnccl::cli
