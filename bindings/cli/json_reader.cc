// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bindings/cli/value.h"

namespace trnccl::cli {
namespace {

constexpr int kDeepest = 64;

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  absl::StatusOr<Value> Read() {
    std::optional<Value> value = ReadValue(0);
    SkipSpace();
    if (value.has_value() && at_ == text_.size()) return *std::move(value);
    return absl::InvalidArgumentError(
        absl::StrCat("no JSON from byte ", at_, " on"));
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(Byte())) ++at_;
  }
  unsigned char Byte() const { return static_cast<unsigned char>(text_[at_]); }

  bool Take(std::string_view word) {
    SkipSpace();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::optional<Value> ReadValue(int depth) {
    if (depth > kDeepest) return std::nullopt;
    if (Take("{")) return ReadFields(depth);
    if (Take("[")) return ReadList(depth);
    if (Take("null")) return Value();
    if (Take("true")) return Value::True();
    if (Take("false")) return Value::False();
    if (at_ < text_.size() && text_[at_] == '"') {
      std::optional<std::string> text = ReadText();
      if (!text.has_value()) return std::nullopt;
      return Value(*std::move(text));
    }
    return ReadNumber();
  }

  std::optional<Value> ReadFields(int depth) {
    Value fields = Value::NewFields();
    if (Take("}")) return fields;
    do {
      SkipSpace();
      std::optional<std::string> name = ReadText();
      if (!name.has_value() || !Take(":")) return std::nullopt;
      std::optional<Value> value = ReadValue(depth + 1);
      if (!value.has_value()) return std::nullopt;
      fields.Insert(*std::move(name), *std::move(value));
    } while (Take(","));
    if (!Take("}")) return std::nullopt;
    return fields;
  }

  std::optional<Value> ReadList(int depth) {
    Value list = Value::NewList();
    if (Take("]")) return list;
    do {
      std::optional<Value> value = ReadValue(depth + 1);
      if (!value.has_value()) return std::nullopt;
      list.Append(*std::move(value));
    } while (Take(","));
    if (!Take("]")) return std::nullopt;
    return list;
  }

  std::optional<Value> ReadNumber() {
    const size_t end =
        std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    const absl::string_view word(text_.data() + at_, end - at_);
    int64_t whole = 0;
    double real = 0;
    std::optional<Value> value;
    if (absl::SimpleAtoi(word, &whole)) {
      value = Value(whole);
    } else if (absl::SimpleAtod(word, &real)) {
      value = Value(real);
    } else {
      return std::nullopt;
    }
    at_ = end;
    return value;
  }

  std::optional<std::string> ReadText() {
    if (at_ >= text_.size() || text_[at_] != '"') return std::nullopt;
    std::string text;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return text;
      }
      if (c != '\\') {
        text.push_back(c);
        continue;
      }
      if (++at_ >= text_.size() || !ReadEscape(&text)) return std::nullopt;
    }
    return std::nullopt;
  }

  // Of \u, only what the library writes: a byte.
  bool ReadEscape(std::string* text) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
    const size_t index = kNames.find(text_[at_]);
    if (index != kNames.npos) {
      text->push_back(kMeant[index]);
      return true;
    }
    uint32_t code = 0;
    if (text_[at_] != 'u' || text_.size() - at_ < 5 ||
        !absl::SimpleHexAtoi(absl::string_view(text_.data() + at_ + 1, 4),
                             &code))
      return false;
    text->push_back(code < 0x100 ? static_cast<char>(code) : '?');
    at_ += 4;
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<Value> ParseJson(std::string_view text) {
  return JsonReader(text).Read();
}

}  // namespace trnccl::cli
