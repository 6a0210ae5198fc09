#include "common/pictures/parameters.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <cmath>

#include "common/book/files.hpp"
#include "common/book/manifest.hpp"

namespace workbook::pictures {
namespace {

[[noreturn]] void fail_at(const std::string& where, const std::string& message) {
  throw book::ManifestError(fmt::format("{}: {}", where, message));
}

Parameters::Value value_of(const toml::node& node, const std::string& where) {
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto number = node.value<double>()) return *number;
  if (const auto text = node.value_exact<std::string>()) return *text;
  const toml::array* array = node.as_array();
  if (array == nullptr || array->empty()) fail_at(where, "a value must be a number, a string or a list of them");
  std::vector<double> numbers;
  std::vector<std::string> texts;
  for (const toml::node& element : *array) {
    if (const auto number = element.value<double>()) numbers.push_back(*number);
    if (const auto text = element.value_exact<std::string>()) texts.push_back(*text);
  }
  if (numbers.size() == array->size()) return numbers;
  if (texts.size() == array->size()) return texts;
  fail_at(where, "a list must hold numbers, or strings");
}

}  // namespace

Parameters::Parameters(std::string where, std::map<std::string, Value> values)
    : where_(std::move(where)), values_(std::move(values)) {}

template <class T>
T Parameters::get(const std::string& key, const char* type) {
  requested_.insert(key);
  const auto found = values_.find(key);
  if (found == values_.end()) fail(fmt::format("{} is missing", key));
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) fail(fmt::format("{} must be {}", key, type));
  return *value;
}
template bool Parameters::get(const std::string&, const char*);
template double Parameters::get(const std::string&, const char*);
template std::string Parameters::get(const std::string&, const char*);
template std::vector<double> Parameters::get(const std::string&, const char*);
template std::vector<std::string> Parameters::get(const std::string&, const char*);

int Parameters::count(const std::string& key) {
  const double value = number(key);
  if (value < 1 || value > 1e6 || value != std::floor(value)) fail(fmt::format("{} must be a whole number", key));
  return int(value);
}

void Parameters::fail(const std::string& message) const {
  fail_at(where_, message);
}

void Parameters::finish() const {
  for (const auto& [key, value] : values_) {
    if (!requested_.contains(key)) fail(fmt::format("unknown key {}", key));
  }
}

std::vector<Parameters> read_tables(const std::filesystem::path& file, const std::string& shown,
                                    const std::string& name) {
  toml::table document;
  try {
    document = toml::parse(book::read_file(file), shown);
  } catch (const toml::parse_error& error) {
    fail_at(fmt::format("{}:{}", shown, error.source().begin.line), std::string(error.description()));
  }
  const toml::array* tables = document[name].as_array();
  if (tables == nullptr || document.size() != 1)
    fail_at(shown, fmt::format("the file must contain only tables [[{}]]", name));
  std::vector<Parameters> read;
  for (const toml::node& node : *tables) {
    const std::string where = fmt::format("{}:{}", shown, node.source().begin.line);
    const toml::table* table = node.as_table();
    if (table == nullptr) fail_at(where, "this is not a table");
    std::map<std::string, Parameters::Value> values;
    for (const auto& [key, value] : *table) values[std::string(key.str())] = value_of(value, where);
    read.emplace_back(where, std::move(values));
  }
  return read;
}

}  // namespace workbook::pictures
