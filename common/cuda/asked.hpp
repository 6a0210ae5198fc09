// What a worker was asked for, noted for the book's own gates (instances.hpp, gates/instances.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace workbook::cuda {

/// Adds a line to the file that $WORKBOOK_INSTANCES_FILE names, if it names one: `what`, and the name of a source file
/// without its folders.
void note_asked(const std::string& what, std::string_view file);

/// A number for a choice, told by the words that the compiler has for it.
constexpr std::uint64_t number_of(std::string_view choice) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : choice) hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
  return hash;
}

/// Notes that a choice was asked for that was left out, and ends the process.
[[noreturn]] void refuse_left_out(std::string_view choice, const char* file);

/// A choice of kernels that is noted when its work is done. Where choices are noted, the process ends with the first
/// kernel that has run with another d than the first one. (simulator_backend.cpp)
class NotedChoice {
 public:
  NotedChoice(std::string_view choice, int d);
  ~NotedChoice();
  NotedChoice(const NotedChoice&) = delete;
  NotedChoice& operator=(const NotedChoice&) = delete;

 private:
  std::string_view choice_;
  int d_;
  std::size_t launches_before_;
};

}  // namespace workbook::cuda
