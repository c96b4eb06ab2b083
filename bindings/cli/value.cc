// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/value.h"

#include <utility>

namespace trnccl::cli {
namespace {

template <typename T>
const T& Empty() {
  static const auto& empty = *new T;
  return empty;
}

constexpr char kPickleStart = '\x80';

}  // namespace

Value::Value(double number) : kind_(Kind::kNumber) {
  constexpr double kMost = 9e18;
  if (number > -kMost && number < kMost) number_ = static_cast<int64_t>(number);
}

Value Value::NewList() {
  Value value;
  value.kind_ = Kind::kMany;
  value.list_ = std::make_shared<List>();
  return value;
}

Value Value::NewFields() {
  Value value;
  value.kind_ = Kind::kMany;
  value.fields_ = std::make_shared<Fields>();
  return value;
}

const Value::List& Value::list() const {
  return list_ == nullptr ? Empty<List>() : *list_;
}

const Value::Fields& Value::fields() const {
  return fields_ == nullptr ? Empty<Fields>() : *fields_;
}

const Value& Value::operator[](std::string_view field) const {
  const auto found = fields().find(field);
  return found == fields().end() ? Empty<Value>() : found->second;
}

bool Value::Append(Value element) {
  if (list_ != nullptr) list_->push_back(std::move(element));
  return list_ != nullptr;
}

bool Value::Insert(std::string field, Value value) {
  if (fields_ != nullptr)
    fields_->insert_or_assign(std::move(field), std::move(value));
  return fields_ != nullptr;
}

absl::StatusOr<Value> ParseDump(std::string_view text) {
  return !text.empty() && text[0] == kPickleStart ? ParsePickle(text)
                                                  : ParseJson(text);
}

}  // namespace trnccl::cli
