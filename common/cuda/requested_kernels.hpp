// Records which kernels a worker was asked to run, for the book's own gates (instances.hpp, gates/instances.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace workbook::cuda {

/// Appends a line to the file named by $WORKBOOK_INSTANCES_FILE, if it is set: `what`, and the name of a source file
/// without its folders.
void note_request(const std::string& what, std::string_view file);

/// Hashes the compiler's name of a choice to a number.
constexpr std::uint64_t number_of(std::string_view choice) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : choice) hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
  return hash;
}

/// Records a request for a choice that was not compiled, and ends the process.
[[noreturn]] void refuse_left_out(std::string_view choice, const char* file);

/// A choice of kernels, recorded when its work is done. If choices are recorded, the process ends after the first
/// kernel whose d differs from the first one's. (simulator_backend.cpp)
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
