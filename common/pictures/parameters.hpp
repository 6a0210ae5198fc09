// The parameters of a picture from a table of a TOML file: numbers, texts and lists of them, with strict checks.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace workbook::pictures {

/// One table. A missing key, a wrong type or an unused key is a book::ManifestError with FILE:LINE.
class Parameters {
 public:
  using Value = std::variant<bool, double, std::string, std::vector<double>, std::vector<std::string>>;

  Parameters(std::string where, std::map<std::string, Value> values);

  bool has(const std::string& key) const { return values_.contains(key); }
  bool flag(const std::string& key) { return get<bool>(key, "true or false"); }
  double number(const std::string& key) { return get<double>(key, "a number"); }
  /// A whole number of at least 1.
  int count(const std::string& key);
  std::string text(const std::string& key) { return get<std::string>(key, "a string"); }
  std::vector<double> numbers(const std::string& key) { return get<std::vector<double>>(key, "a list of numbers"); }
  std::vector<std::string> texts(const std::string& key) {
    return get<std::vector<std::string>>(key, "a list of strings");
  }

  [[noreturn]] void fail(const std::string& message) const;
  /// Fails if there is a key that no call has requested.
  void finish() const;

 private:
  template <class T>
  T get(const std::string& key, const char* type);

  std::string where_;  ///< "chapters/01_name/pictures.toml:3"
  std::map<std::string, Value> values_;
  std::set<std::string> requested_;
};

/// The file's tables [[name]], in order. `shown`: the file's name in messages. book::ManifestError if the file is not
/// TOML or contains anything else.
std::vector<Parameters> read_tables(const std::filesystem::path& file, const std::string& shown,
                                    const std::string& name);

}  // namespace workbook::pictures
