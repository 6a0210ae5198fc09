// Makes a chapter's functions operations that the tests call by name.
//
// A worker executable consists of one chapter's files, including its stages' descriptions (stage.hpp), special
// operations if there are any (tests/NN_name/operations.cpp, or operations.cu for kernels), and the server
// (common/worker/server.cpp). The inputs and outputs of a call are in memory shared with the parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention/setting.hpp"

namespace workbook::cuda {

/// The arguments of one call. A name or type that the caller did not send throws std::logic_error.
class Arguments {
 public:
  virtual ~Arguments() = default;

  /// Number `name`; flags are 0 or 1.
  virtual double number(std::string_view name) const = 0;
  virtual bool has(std::string_view name) const = 0;
  std::int64_t integer(std::string_view name) const { return std::int64_t(number(name)); }
  /// The number, or `otherwise` if the caller did not send it.
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const {
    return has(name) ? integer(name) : otherwise;
  }
  /// The names of all numbers.
  virtual std::vector<std::string> names() const = 0;
  bool flag(std::string_view name) const { return number(name) != 0; }

  /// Array `name`, an input or an output, as elements of T (float, double, std::int32_t, std::int64_t, std::uint16_t).
  template <class T>
  std::span<T> array(std::string_view name) const {
    const auto bytes = raw(name, sizeof(T));
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  std::span<const float> input(std::string_view name) const { return array<float>(name); }
  std::span<float> output(std::string_view name) const { return array<float>(name); }
  std::span<const std::uint16_t> codes(std::string_view name) const { return array<std::uint16_t>(name); }

  /// The numbers of a shape and of a setting (for_numbers), with the arrays of its mask.
  Shape shape() const {
    Shape shape;
    for_shape_numbers(shape, [&](std::string_view name, std::int64_t& value) { value = integer(name); });
    return shape;
  }
  Setting setting() const;
  /// A setting and the arrays Q, K, V, O, lse.
  AttentionCall attention_call() const {
    return {setting(), input("Q"), input("K"), input("V"), output("O"), output("lse")};
  }
  /// The same with arrays Q, K, V, O, dO, lse and dQ, dK, dV.
  GradientCall gradient_call() const {
    return {setting(),   input("Q"),   input("K"),   input("V"),   input("O"),
            input("dO"), input("lse"), output("dQ"), output("dK"), output("dV")};
  }

 private:
  virtual std::span<std::byte> raw(std::string_view name, std::size_t element_size) const = 0;
};

/// One operation: a name, and the function that unpacks the arguments and calls the chapter.
struct Operation {
  std::string name;
  std::function<void(const Arguments&)> run;
};

/// Adds operations to this worker before main: const Operations special{{"copy", copy}, {"transpose", transpose}};
class Operations {
 public:
  using Table = std::map<std::string, std::function<void(const Arguments&)>, std::less<>>;

  Operations(std::initializer_list<Operation> added);
  /// Throws std::logic_error if the name exists already.
  static void add(const Operation& operation);
  /// All operations, by name.
  static const Table& all();
};

/// Writes the text to the start of the call's output "text" (bytes). The remaining bytes stay 0xff, which never occurs
/// in UTF-8.
void answer_text(const Arguments& call, const std::string& text);

/// Thrown by given code that refuses a call before doing any work, for example for lack of memory.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown by given code for a call that exceeds this device's limits but that other devices could run.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes that this process may still allocate: the smaller of the machine's free memory (MemAvailable, the container's
/// limit) and what remains of the limit set by the parent.
std::uint64_t available_memory();

}  // namespace workbook::cuda
