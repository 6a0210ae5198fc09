// What --set gives (input.hpp).
#include <charconv>
#include <cmath>

#include "common/attention/error.hpp"
#include "common/cli/input.hpp"

namespace workbook::cli {

namespace {
/// Whether the call sets this parameter itself.
bool is_taken(std::string_view name) {
  bool taken = false;
  for (const std::string_view other : {"Br", "Bc", "trace", "workers", "lane_seed"}) taken |= name == other;
  for_numbers(Setting(), [&](std::string_view number, auto) { taken |= name == number; });
  return taken;
}
}  // namespace

std::map<std::string, double> numbers_set(const std::vector<std::string>& set) {
  std::map<std::string, double> numbers;
  for (const std::string& text : set) {
    const std::size_t equals = text.find('=');
    const std::string digits = equals == std::string::npos ? "" : text.substr(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool number = !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
    // A kernel reads some of the numbers as integers.
    if (equals == 0 || !number || !(std::abs(value) <= double(largest_number))) {
      fail_input("--set {}: allowed: NAME=NUMBER, e.g. warps=2, with a number from -{} to {}", text, largest_number,
                 largest_number);
    }
    const std::string name = text.substr(0, equals);
    if (is_taken(name)) {
      fail_input("--set {}: --set cannot change {}; allowed: a parameter of the chapter's kernels, e.g. warps=2", text,
                 name);
    }
    numbers[name] = value;
  }
  return numbers;
}

}  // namespace workbook::cli
