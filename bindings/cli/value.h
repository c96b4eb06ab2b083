// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a dump of calls is made of, whichever way it's written: JSON, as the
// library does, or Python's pickle, as PyTorch's flight recorder does. Of
// pickle, only what makes plain values: nothing in a file is ever run.
//
// Thread rule: plain values and pure functions.
//
//   ASSIGN_OR_RETURN(const Value dump, ParseDump(text));
//   for (const Value& entry : dump["entries"].list()) entry["state"].text();
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace trnccl::cli {

class Value {
 public:
  using List = std::vector<Value>;
  using Fields = std::map<std::string, Value, std::less<>>;

  Value() = default;
  explicit Value(int64_t number) : kind_(Kind::kNumber), number_(number) {}
  explicit Value(double number);  // its whole part, if that's an int64
  explicit Value(std::string text)
      : kind_(Kind::kText), text_(std::move(text)) {}
  static Value True() { return Value(Kind::kTruth, 1); }
  static Value False() { return Value(Kind::kTruth, 0); }
  // Copies share what they hold, as Python's do: what is added to one is seen
  // in all.
  static Value NewList();
  static Value NewFields();

  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_fields() const { return fields_ != nullptr; }

  // What it holds, or nothing of that kind: false, 0, "", no elements.
  bool truth() const { return kind_ == Kind::kTruth && number_ != 0; }
  int64_t number() const { return kind_ == Kind::kNumber ? number_ : 0; }
  const std::string& text() const { return text_; }
  const List& list() const;
  const Fields& fields() const;
  const Value& operator[](std::string_view field) const;

  // What copies of it share, by its address; null if that's nothing.
  const void* shared() const {
    return list_ != nullptr ? static_cast<const void*>(list_.get())
                            : static_cast<const void*>(fields_.get());
  }

  // False if it isn't of that kind.
  bool Append(Value element);
  bool Insert(std::string field, Value value);

 private:
  enum class Kind : uint8_t { kNull, kTruth, kNumber, kText, kMany };

  Value(Kind kind, int64_t number) : kind_(kind), number_(number) {}

  Kind kind_ = Kind::kNull;
  int64_t number_ = 0;
  std::string text_;
  std::shared_ptr<List> list_;
  std::shared_ptr<Fields> fields_;
};

// InvalidArgument says at which byte it's neither.
absl::StatusOr<Value> ParseDump(std::string_view text);

// The two ways.
absl::StatusOr<Value> ParseJson(std::string_view text);
absl::StatusOr<Value> ParsePickle(std::string_view bytes);

}  // namespace trnccl::cli
