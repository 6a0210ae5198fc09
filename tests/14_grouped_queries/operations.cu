// Chapter 14's packed rows, their mask and the Q tiles of a group, as operations that the tests call by name.
#include <cstdint>
#include <vector>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "group_tiles.hpp"
#include "packed_rows.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

__global__ void list_rows(ch14::PackedRows rows, std::int32_t* query, std::int64_t* memory_row) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows.count()) query[row] = rows.query(row), memory_row[row] = rows.memory_row(row);
}

// heads, Nq -> query (heads·Nq), int32, and memory_row (heads·Nq), int64, of each packed row
void rows(const Arguments& call) {
  const ch14::PackedRows rows{int(call.integer("heads")), int(call.integer("Nq"))};
  const auto count = std::size_t(rows.heads) * std::size_t(rows.Nq);
  DeviceArray<std::int32_t> query("query", count, Role::output);
  DeviceArray<std::int64_t> memory_row("memory_row", count, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_rows, dim3(unsigned(count + 63) / 64), dim3(64), 0, rows, query.data(),
                         memory_row.data());
  query.download(call.array<std::int32_t>("query"));
  memory_row.download(call.array<std::int64_t>("memory_row"));
}

__global__ void list_visible(ch14::PackedRows rows, ch14::RowMask mask, int Br, std::int32_t* keys,
                             std::int32_t* tiles) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows.count()) return;
  keys[row] = mask.visible_keys(rows, row);
  if (row % Br == 0) tiles[row / Br] = mask.template kv_tiles<32>(rows, row, Br);
}

// heads, Nq, Nk, causal, Br -> keys (heads·Nq), int32: the number that each packed row attends to; and tiles
// (⌈heads·Nq/Br⌉), int32: the number of K/V tiles of 32 keys that each Br rows need
void visible(const Arguments& call) {
  const ch14::PackedRows rows{int(call.integer("heads")), int(call.integer("Nq"))};
  const ch14::RowMask mask{int(call.integer("Nk")), call.integer("causal") != 0};
  const int Br = int(call.integer("Br"));
  const auto count = std::size_t(rows.heads) * std::size_t(rows.Nq), blocks = (count + Br - 1) / Br;
  DeviceArray<std::int32_t> keys("keys", count, Role::output), tiles("tiles", blocks, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_visible, dim3(unsigned(count + 63) / 64), dim3(64), 0, rows, mask, Br, keys.data(),
                         tiles.data());
  keys.download(call.array<std::int32_t>("keys"));
  tiles.download(call.array<std::int32_t>("tiles"));
}

__global__ void list_steps(ch14::GroupTiles tiles, int capacity, std::int32_t* count, std::int32_t* steps) {
  if (threadIdx.x == 0) count[0] = tiles.steps();
  for (int step = threadIdx.x; step < capacity; step += 32) {
    const auto [head, index] = step < tiles.steps() ? tiles.at(step) : ch14::QTile{-1, -1};
    steps[2 * step] = head, steps[2 * step + 1] = index;
  }
}

// first_head, group, begin, end -> count (1), int32: the number of steps; and steps (capacity, 2), int32: the head and
// the Q tile of each
void group_tiles(const Arguments& call) {
  const auto number = [&](const char* name) { return int(call.integer(name)); };
  const std::size_t capacity = call.array<std::int32_t>("steps").size();
  DeviceArray<std::int32_t> count("count", 1, Role::output), steps("steps", capacity, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_steps, dim3(1), dim3(32), 0,
                         ch14::GroupTiles{number("first_head"), number("group"), number("begin"), number("end")},
                         int(capacity / 2), count.data(), steps.data());
  count.download(call.array<std::int32_t>("count"));
  steps.download(call.array<std::int32_t>("steps"));
}

const Operations operations{{"rows", rows}, {"visible", visible}, {"group_tiles", group_tiles}};

}  // namespace
