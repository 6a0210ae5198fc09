#include "common/cuda/block_record.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "common/cuda/trace_record.hpp"
#include "common/simt/simulator.hpp"

namespace workbook::cuda {
namespace {

constexpr std::int64_t kElementBytes = 2;  // of every stage of kernels

/// The call's output `name`, which must have one element per thread block of the launch.
std::span<std::int64_t> of_blocks(const Arguments& call, const char* name) {
  const dim3 grid = simt::last_launch().grid;
  const std::uint64_t blocks = std::uint64_t(grid.x) * grid.y * grid.z;
  const auto output = call.array<std::int64_t>(name);
  if (output.size() < blocks)
    throw std::length_error(std::string(name) + " has " + std::to_string(output.size()) +
                            " elements; it needs one for each of the " + std::to_string(blocks) +
                            " thread blocks of the launch");
  return output;
}

/// Records the first rows and the tiles that each thread block read of a tensor (heads, rows, d) with counted tiles.
template <class Take>
void visit_rows(const char* name, std::int64_t rows, std::int64_t d, std::int64_t tile, const Take& take) {
  const simt::TensorTraffic* tensor = simt::last_launch().tensor(name);
  if (tensor == nullptr) return;
  const auto row_bytes = std::size_t(d * kElementBytes);
  const std::size_t unit = unit_bytes({1, std::size_t(rows), row_bytes, std::size_t(tile)});
  for (const auto& [block, units] : tensor->tiles_of_block)
    for (const std::uint32_t each : units) take(block, std::int64_t(each * (unit / row_bytes)));
}

void note_tiles(const Arguments& call, const char* tensor, const char* output, std::int64_t rows, std::int64_t d,
                std::int64_t tile) {
  const auto sets = of_blocks(call, output);
  std::fill(sets.begin(), sets.end(), 0);
  visit_rows(tensor, rows, d, tile,
             [&](std::uint64_t block, std::int64_t row) { sets[block] |= std::int64_t(1) << (row % rows / tile); });
}

}  // namespace

void record_blocks(const Arguments& call, const Tiles& tiles) {
  const auto [B, H, Hkv, Nq, Nk, d] = call.shape();
  if (Nk > std::int64_t(64) * tiles.Bc)
    throw std::invalid_argument("Nk = " + std::to_string(Nk) +
                                ": allowed: at most 64 tiles of Bc = " + std::to_string(tiles.Bc) + " keys");
  note_tiles(call, "K", "K_tiles", Nk, d, tiles.Bc);
  note_tiles(call, "V", "V_tiles", Nk, d, tiles.Bc);
  const auto first_row = of_blocks(call, "first_row");
  std::fill(first_row.begin(), first_row.end(), -1);
  visit_rows("Q", Nq, d, tiles.Br, [&](std::uint64_t block, std::int64_t row) {
    if (first_row[block] < 0) first_row[block] = row;
  });
  const auto masked = of_blocks(call, "masked_tiles");
  std::fill(masked.begin(), masked.end(), 0);
  for (const simt::Note& note : simt::last_launch().notes)
    if (note.label == "masked tile") masked[note.block] |= std::int64_t(1) << note.value;
}

}  // namespace workbook::cuda
