// One table of a TOML file, read strictly: a missing, mistyped or unknown key is an error with FILE:LINE. Included in
// few files, since toml++ is slow to compile.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::book {

/// A view of a table that records which keys were read. The table must outlive it.
class TomlTable {
 public:
  /// `what` names the table in messages: "exercise".
  TomlTable(const toml::table& table, std::string file, std::string what)
      : table_(&table), file_(std::move(file)), what_(std::move(what)) {}

  int line() const { return line_of(*table_); }

  [[noreturn]] void fail(int line, std::string_view message) const {
    throw ManifestError(fmt::format("{}:{}: {}", file_, line, message));
  }
  /// Fails at the key's line, or at the table's if the key is missing.
  [[noreturn]] void fail_at(std::string_view key, std::string_view message) const {
    const toml::node* node = table_->get(key);
    fail(node ? line_of(*node) : line(), message);
  }

  bool has(std::string_view key) const { return table_->contains(key); }

  std::string text(std::string_view key) {
    const std::string text = get<std::string>(key, "a string");
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) fail_at(key, fmt::format("{} is empty", key));
    return text;
  }

  /// A string that may be empty.
  std::string any_text(std::string_view key) { return get<std::string>(key, "a string"); }

  bool flag(std::string_view key) { return get<bool>(key, "true or false"); }

  int number(std::string_view key, int least) {
    constexpr int most = 1'000'000;
    const std::int64_t number = get<std::int64_t>(key, "a whole number");
    if (number < least || number > most) {
      fail_at(key, fmt::format("{} = {} is not between {} and {}", key, number, least, most));
    }
    return static_cast<int>(number);
  }

  /// A positive number, integer or floating-point.
  double positive(std::string_view key) {
    const std::optional<double> number = node(key).value<double>();
    if (!number || !(*number > 0)) fail_at(key, fmt::format("{} must be a number above 0", key));
    return *number;
  }

  /// One of the allowed strings.
  std::string choice(std::string_view key, const std::vector<std::string>& allowed) {
    const std::string chosen = text(key);
    check_choice(line_of(*table_->get(key)), key, chosen, allowed);
    return chosen;
  }

  /// A non-empty array of distinct, non-empty strings.
  std::vector<std::string> texts(std::string_view key, const std::vector<std::string>& allowed = {}) {
    const toml::array* array = node(key).as_array();
    if (!array) fail_at(key, fmt::format("{} must be an array of strings", key));
    if (array->empty()) fail_at(key, fmt::format("{} is empty", key));
    std::vector<std::string> texts;
    std::set<std::string> seen;
    for (const toml::node& element : *array) {
      const int line = line_of(element);
      const toml::value<std::string>* value = element.as_string();
      if (!value || value->get().empty()) fail(line, fmt::format("{} must be an array of non-empty strings", key));
      if (!allowed.empty()) check_choice(line, key, value->get(), allowed);
      if (!seen.insert(value->get()).second) fail(line, fmt::format("{} names \"{}\" twice", key, value->get()));
      texts.push_back(value->get());
    }
    return texts;
  }

  /// The tables of [[key]]; none if the key is missing.
  std::vector<TomlTable> tables(std::string_view key) {
    known_.emplace(key);
    std::vector<TomlTable> tables;
    if (!has(key)) return tables;
    const toml::array* array = node(key).as_array();
    if (!array) fail_at(key, fmt::format("{0} must be written as [[{0}]]", key));
    for (const toml::node& element : *array) {
      const toml::table* table = element.as_table();
      if (!table) fail(line_of(element), fmt::format("{0} must be written as [[{0}]]", key));
      tables.emplace_back(*table, file_, std::string(key));
    }
    return tables;
  }

  /// Call this after all keys have been read. It reports keys that were not read, such as typos.
  void reject_unknown() const {
    for (auto&& [key, value] : *table_) {
      if (known_.contains(key.str())) continue;
      fail(static_cast<int>(key.source().begin.line),
           fmt::format("unknown key \"{}\" in the {}; known: {}", key.str(), what_, fmt::join(known_, ", ")));
    }
  }

 private:
  static int line_of(const toml::node& node) {
    const auto line = static_cast<int>(node.source().begin.line);
    return line > 0 ? line : 1;  // an empty file has no lines
  }

  const toml::node& node(std::string_view key) {
    known_.emplace(key);
    const toml::node* node = table_->get(key);
    if (!node) fail(line(), fmt::format("the {} has no key \"{}\"", what_, key));
    return *node;
  }

  template <class Type>
  Type get(std::string_view key, std::string_view type) {
    const toml::value<Type>* value = node(key).template as<Type>();
    if (!value) fail_at(key, fmt::format("{} must be {}", key, type));
    return value->get();
  }

  void check_choice(int line, std::string_view key, std::string_view chosen,
                    const std::vector<std::string>& allowed) const {
    for (const std::string& choice : allowed) {
      if (chosen == choice) return;
    }
    fail(line, fmt::format("{}: \"{}\" is not one of {}", key, chosen, fmt::join(allowed, ", ")));
  }

  const toml::table* table_;
  std::string file_, what_;
  std::set<std::string, std::less<>> known_;
};

/// Parses a TOML file's text; ManifestError with FILE:LINE if it is not TOML.
inline toml::table parse_toml(std::string text, const std::string& file) {
  std::erase(text, '\r');  // so that multi-line strings do not depend on the file's line ends
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw ManifestError(fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()));
  }
}

}  // namespace workbook::book
