// The masks of chapter 16's tests, and blocks that are classified pair by pair.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/attention/problem.hpp"
#include "tests/support/subject.hpp"

namespace workbook::test {

/// One mask of each kind for Nk keys. The documents differ in length, and the last has the remaining keys. The prefix
/// ends within a tile. Two strides: groups shorter than a tile, and groups and gaps that contain whole tiles.
inline std::vector<Mask> masks_for(std::int64_t Nk) {
  std::vector<std::int64_t> lengths;
  std::int64_t left = Nk;
  for (const std::int64_t length : {37, 1, 64, 40})
    if (length < left) lengths.push_back(length), left -= length;
  lengths.push_back(left);
  return {Mask::of_documents(lengths), Mask::of_prefix(std::min<std::int64_t>(Nk, 45)), Mask::in_strides(3, 7),
          Mask::in_strides(70, 180)};
}
inline bool attends(const Mask& mask, const Shape& shape, std::int64_t query, std::int64_t key) {
  return query < shape.Nq && key < shape.Nk && mask.attends(shape, query, key);
}

/// The classes of the blocks of Br queries and Bc keys of one head, from all of their pairs: 0 empty, 1 full, 2
/// partial.
struct ClassedBlocks {
  std::int64_t rows, columns;
  std::vector<std::int32_t> classes;
  template <class Counts>
  ClassedBlocks(std::int64_t Nq, std::int64_t Nk, std::int64_t Br, std::int64_t Bc, const Counts& counts)
      : rows(tiles_of(Nq, Br)), columns(tiles_of(Nk, Bc)) {
    for (std::int64_t block = 0; block < rows * columns; ++block) {
      const std::int64_t first_query = block / columns * Br, first_key = block % columns * Bc,
                         end_query = std::min(Nq, first_query + Br);
      std::int64_t seen = 0;
      for (std::int64_t i = first_query; i < end_query; ++i)
        for (std::int64_t j = first_key; j < std::min(Nk, first_key + Bc); ++j) seen += counts(i, j) ? 1 : 0;
      classes.push_back(seen == 0 ? 0 : seen == (end_query - first_query) * Bc ? 1 : 2);
    }
  }
  std::int64_t count(std::int32_t of_class) const { return std::ranges::count(classes, of_class); }
  std::int64_t visited() const { return count(1) + count(2); }
};
inline ClassedBlocks blocks_of(const Setting& setting, std::int64_t Br, std::int64_t Bc) {
  const Shape& shape = setting.shape;
  return {shape.Nq, shape.Nk, Br, Bc,
          [&](std::int64_t i, std::int64_t j) { return attends(setting.mask, shape, i, j); }};
}

/// A call of one of the chapter's operations on numbers.
inline std::vector<std::int32_t> numbers_of(const char* operation, const Numbers& numbers,
                                            const std::vector<std::int32_t>& given, std::size_t size) {
  worker::Call request(operation);
  for (const auto& [name, value] : numbers) request.number(name, value);
  request.input("given", given).output<std::int32_t>("numbers", size);
  return call(request).output<std::int32_t>("numbers");
}

}  // namespace workbook::test
