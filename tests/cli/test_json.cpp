// Every --json document has the keys and types that notes/json.md gives it, no more and no less, and is all that stands
// on stdout.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>
#include <sstream>

#include "tests/cli/npy_files.hpp"

using namespace workbook::test;
using nlohmann::json;

namespace {

/// Path of a key ("tests[].name") -> type ("text or null"), from the table of a section of notes/json.md.
std::map<std::string, std::string> schema_of(const WorkbookCopy& book, const std::string& verb) {
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

bool is_list_of(const json& value, bool (json::*is)() const noexcept) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [&](const json& item) { return (item.*is)(); });
}

bool has_type(const json& value, std::string type) {
  if (type.ends_with(" or null")) {
    if (value.is_null()) return true;
    type.resize(type.size() - 8);
  }
  if (type == "text") return value.is_string();
  if (type == "true/false") return value.is_boolean();
  if (type == "whole number") return value.is_number_integer();
  if (type == "number") return value.is_number() || value == "nan" || value == "inf" || value == "-inf";
  if (type == "object") return value.is_object();
  if (type == "list of texts") return is_list_of(value, &json::is_string);
  if (type == "list of objects") return is_list_of(value, &json::is_object);
  if (type == "object of texts") {
    return value.is_object() &&
           std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_string(); });
  }
  FAIL("notes/json.md has a type that this test does not know: " << type);
  return false;
}

/// Checks every key of `value` against the schema, and notes which were there.
void follow(const json& value, const std::string& path, const std::map<std::string, std::string>& schema,
            std::set<std::string>& met) {
  for (const auto& [key, member] : value.items()) {
    const std::string at = path.empty() ? key : path + "." + key;
    INFO(at << ": " << member.dump());
    const auto found = schema.find(at);
    REQUIRE(found != schema.end());
    met.insert(at);
    CHECK(has_type(member, found->second));
    if (found->second == "object") follow(member, at, schema, met);
    if (found->second != "list of objects") continue;
    std::set<std::string> keys;
    for (const json& item : member) {
      follow(item, at + "[]", schema, met);
      std::set<std::string> here;
      for (const auto& entry : item.items()) here.insert(entry.key());
      if (keys.empty()) keys = here;
      CHECK(here == keys);  // every object of a list has the same keys
    }
  }
}

/// The documents together have every key of the section, and none beside them.
void expect_schema(const WorkbookCopy& book, const std::string& verb, const std::vector<json>& documents) {
  const auto schema = schema_of(book, verb);
  INFO(verb);
  REQUIRE(schema.size() > 1);
  std::set<std::string> met;
  for (const json& document : documents) follow(document, "", schema, met);
  for (const auto& [key, type] : schema) {
    INFO(key);
    CHECK(met.contains(key));
  }
}

}  // namespace

TEST_CASE("run --json follows notes/json.md") {
  const WorkbookCopy book;
  const std::string file = good_npy("q.npy", normal_tensor({1, 2, 8, 32}, 1));
  expect_schema(book, "run",
                {book.run({"run", "--json", "--seq", "64"}).document(),
                 book.run({"run", "--json", "--seq", "64", "--chapters"}).document(),
                 book.run({"run", "--json", "--q", file, "--k", file, "--v", file}).document()});
}

TEST_CASE("test --json follows notes/json.md: one document, or a list of them") {
  const WorkbookCopy book;
  book.solve("1.3");
  book.edit(book.readers_file("1.3"), "O(i, c) += P(i, j) * V(j, c)", "O(i, c) += V(j, c)");
  const json one = book.run({"test", "1", "--json"}).document();
  REQUIRE(one.is_object());
  const json all = book.run({"test", "--json"}).document();
  REQUIRE(all.is_array());
  REQUIRE(all.size() == 2);
  expect_schema(book, "test", {one, all[0], all[1]});
}

TEST_CASE("check --json follows notes/json.md") {
  const WorkbookCopy book;
  const std::string file = "tests/mutants/01_naive_attention.toml";
  const std::string text = book.read(file);
  std::size_t third = 0;
  for (int i = 0; i < 3; ++i) third = text.find("[[mutant]]", third + 1);
  book.write(file, text.substr(0, third));
  book.write("tests/mutants/02_online_softmax.toml", "");
  const Ran ran = book.run({"check", "--json", "--gate", "mutants", "--gate", "stubs"});
  INFO(ran.out);
  CHECK(ran.exit_code == 0);
  const json document = ran.document();
  CHECK(document["mutants"].size() == 2);
  for (const json& mutant : document["mutants"]) {
    CHECK(mutant["killed"] == true);
    CHECK(mutant["diagnosis_right"] == true);
  }
  expect_schema(book, "check", {document});
}

TEST_CASE("status, hint, reset, stubs and doctor --json follow notes/json.md") {
  const WorkbookCopy book;
  expect_schema(book, "status", {book.run({"--json"}).document(), book.run({"status", "--json"}).document()});
  expect_schema(book, "hint", {book.run({"hint", "2.1", "--json"}).document()});
  expect_schema(book, "reset", {book.run({"reset", "2.1", "--json"}).document()});
  book.fill_in("1.1", "  S(0, 0) = 0;\n");
  expect_schema(book, "stubs",
                {book.run({"stubs", "--json"}).document(), book.run({"stubs", "--force", "--json"}).document()});
  expect_schema(book, "doctor", {book.run({"doctor", "--json"}).document()});
}
