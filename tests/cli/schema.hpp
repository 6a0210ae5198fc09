// Checks --json documents against the tables of notes/json.md.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/workbook_copy.hpp"

namespace workbook::test {

/// Path of a key ("tests[].name") -> type ("text or null"), from the table of a section of notes/json.md.
inline std::map<std::string, std::string> schema_of(const WorkbookCopy& book, const std::string& verb) {
  std::map<std::string, std::string> schema;
  std::istringstream lines(book.read("notes/json.md"));
  bool here = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) here = line == "## " + verb;
    if (!here || !line.starts_with("| `")) continue;
    const std::size_t key_end = line.find("` | "), type_end = line.find(" |", key_end + 4);
    schema[line.substr(3, key_end - 3)] = line.substr(key_end + 4, type_end - key_end - 4);
  }
  return schema;
}

inline bool is_list_of(const nlohmann::json& value, bool (nlohmann::json::*is)() const noexcept) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [&](const nlohmann::json& item) { return (item.*is)(); });
}

inline bool has_type(const nlohmann::json& value, std::string type) {
  if (type.ends_with(" or null")) {
    if (value.is_null()) return true;
    type.resize(type.size() - 8);
  }
  if (type == "text") return value.is_string();
  if (type == "true/false") return value.is_boolean();
  if (type == "whole number") return value.is_number_integer();
  if (type == "number") return value.is_number() || value == "nan" || value == "inf" || value == "-inf";
  if (type == "object") return value.is_object();
  if (type == "list of texts") return is_list_of(value, &nlohmann::json::is_string);
  if (type == "list of objects") return is_list_of(value, &nlohmann::json::is_object);
  if (type == "list of whole numbers") return is_list_of(value, &nlohmann::json::is_number_integer);
  if (type == "list of numbers") return is_list_of(value, &nlohmann::json::is_number);
  if (type == "object of whole numbers") {
    return value.is_object() &&
           std::all_of(value.begin(), value.end(), [](const nlohmann::json& item) { return item.is_number_integer(); });
  }
  if (type == "object of numbers") {
    return value.is_object() &&
           std::all_of(value.begin(), value.end(), [](const nlohmann::json& item) { return item.is_number(); });
  }
  if (type == "object of objects") {
    return value.is_object() && std::all_of(value.begin(), value.end(), [](const nlohmann::json& item) {
             return item.is_object() || item.is_null();
           });
  }
  if (type == "object of texts") {
    return value.is_object() &&
           std::all_of(value.begin(), value.end(), [](const nlohmann::json& item) { return item.is_string(); });
  }
  FAIL("notes/json.md has a type that this test does not know: " << type);
  return false;
}

/// Checks every key of `value` against the schema, and records the keys present.
inline void follow(const nlohmann::json& value, const std::string& path,
                   const std::map<std::string, std::string>& schema, std::set<std::string>& met) {
  for (const auto& [key, member] : value.items()) {
    const std::string at = path.empty() ? key : path + "." + key;
    INFO(at << ": " << member.dump());
    const auto found = schema.find(at);
    REQUIRE(found != schema.end());
    met.insert(at);
    CHECK(has_type(member, found->second));
    if (found->second == "object" || (found->second == "object or null" && member.is_object()))
      follow(member, at, schema, met);
    if (found->second != "list of objects") continue;
    std::set<std::string> keys;
    for (const nlohmann::json& item : member) {
      follow(item, at + "[]", schema, met);
      std::set<std::string> here;
      for (const auto& entry : item.items()) here.insert(entry.key());
      if (keys.empty()) keys = here;
      CHECK(here == keys);  // every object of a list has the same keys
    }
  }
}

/// The list that contains a key; empty if none does: "tests[].reports" for "tests[].reports[].kind".
inline std::string list_around(const std::string& key) {
  const std::size_t list = key.rfind("[].");
  return list == std::string::npos ? "" : key.substr(0, list);
}

/// Checks that the documents together have exactly the section's keys. Keys of a list that is empty in all documents
/// cannot be checked.
inline void expect_schema(const WorkbookCopy& book, const std::string& verb,
                          const std::vector<nlohmann::json>& documents) {
  const auto schema = schema_of(book, verb);
  INFO(verb);
  REQUIRE(schema.size() > 1);
  std::set<std::string> met;
  for (const nlohmann::json& document : documents) follow(document, "", schema, met);
  const auto filled = [&](const std::string& list) {
    return std::ranges::any_of(met, [&](const std::string& key) { return key.starts_with(list + "[]."); });
  };
  for (const auto& [key, type] : schema) {
    INFO(key);
    const std::string list = list_around(key);
    CHECK((met.contains(key) || (!list.empty() && !filled(list))));
  }
}

}  // namespace workbook::test
