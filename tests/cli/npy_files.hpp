// .npy files for the tests of `run`: valid files, and files whose header is wrong.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "common/attention/inputs.hpp"
#include "common/attention/npy.hpp"
#include "common/book/files.hpp"
#include "tests/cli/workbook_copy.hpp"

namespace workbook::test {

/// The path of a scratch .npy file with this header and `data_bytes` bytes of zeros.
inline std::string raw_npy(const std::string& name, const std::string& descr, bool fortran, const std::string& shape,
                           std::size_t data_bytes, const std::string& magic = "\x93NUMPY") {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, fortran ? "True" : "False", shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string file = magic + std::string("\x01\x00", 2);
  file += char(header.size() % 256);
  file += char(header.size() / 256);
  book::write_file(scratch(name), file + header + std::string(data_bytes, '\0'));
  return scratch(name).string();
}

inline std::string good_npy(const std::string& name, const Tensor<float>& tensor, int rank = 4) {
  write_npy(scratch(name), tensor, rank);
  return scratch(name).string();
}

/// A tensor of normal numbers.
inline Tensor<float> normal_tensor(std::array<std::int64_t, 4> sizes, std::uint64_t seed) {
  Tensor<float> tensor(sizes);
  tensor.values = normal_values(tensor.values.size(), seed);
  return tensor;
}

}  // namespace workbook::test
