// WORKBOOK_TODO(4.4): what stands in a stub where the reader's code will go.
#pragma once

#include <exception>

namespace workbook {

/// Thrown by WORKBOOK_TODO on the host: exercise `id` is still open.
class Todo : public std::exception {
 public:
  explicit Todo(const char* id) : id_(id) {}
  const char* what() const noexcept override { return id_; }

 private:
  const char* id_;  // a string literal
};

}  // namespace workbook

/// A macro, so that the id can be written as a number: the preprocessor turns 4.4 into "4.4".
#define WORKBOOK_TODO(id) throw ::workbook::Todo(#id)

/// Stands in a lab's stub before code that runs and is wrong; who has repaired it takes the line out. As long as it
/// is there, the exercise is open.
#define WORKBOOK_MEND(id) static_assert(true)
