// Chapter 14's packed rows and its walk, as operations that the tests call by name.
#include <cstdint>
#include <vector>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "packed_rows.hpp"
#include "walk.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

__global__ void list_rows(ch14::PackedRows rows, std::int32_t* query, std::int64_t* place) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows.count()) query[row] = rows.query(row), place[row] = rows.place(row);
}

// heads, Nq -> query (heads·Nq), int32, and place (heads·Nq), int64: of each packed row
void rows(const Arguments& call) {
  const ch14::PackedRows rows{int(call.integer("heads")), int(call.integer("Nq"))};
  const auto count = std::size_t(rows.heads) * std::size_t(rows.Nq);
  DeviceArray<std::int32_t> query("query", count, Role::output);
  DeviceArray<std::int64_t> place("place", count, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_rows, dim3(unsigned(count + 63) / 64), dim3(64), 0, rows, query.data(), place.data());
  query.download(call.array<std::int32_t>("query"));
  place.download(call.array<std::int64_t>("place"));
}

__global__ void list_seen(ch14::PackedRows rows, ch14::SeenKeys seen, int Br, std::int32_t* keys, std::int32_t* tiles) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows.count()) return;
  keys[row] = seen.of(rows, row);
  if (row % Br == 0) tiles[row / Br] = seen.template tiles<32>(rows, row, Br);
}

// heads, Nq, Nk, causal, Br -> keys (heads·Nq), int32, that each packed row sees, and tiles (⌈heads·Nq/Br⌉), int32: how
// many of 32 keys each Br rows need
void seen(const Arguments& call) {
  const ch14::PackedRows rows{int(call.integer("heads")), int(call.integer("Nq"))};
  const ch14::SeenKeys seen{int(call.integer("Nk")), call.integer("causal") != 0};
  const int Br = int(call.integer("Br"));
  const auto count = std::size_t(rows.heads) * std::size_t(rows.Nq), blocks = (count + Br - 1) / Br;
  DeviceArray<std::int32_t> keys("keys", count, Role::output), tiles("tiles", blocks, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_seen, dim3(unsigned(count + 63) / 64), dim3(64), 0, rows, seen, Br, keys.data(),
                         tiles.data());
  keys.download(call.array<std::int32_t>("keys"));
  tiles.download(call.array<std::int32_t>("tiles"));
}

__global__ void list_steps(ch14::Walk walk, int room, std::int32_t* count, std::int32_t* steps) {
  if (threadIdx.x == 0) count[0] = walk.steps();
  for (int step = threadIdx.x; step < room; step += 32) {
    const auto [head, number] = step < walk.steps() ? walk.at(step) : ch14::QTile{-1, -1};
    steps[2 * step] = head, steps[2 * step + 1] = number;
  }
}

// first_head, group, begin, end -> count (1), int32: the steps of that walk, and steps (room, 2), int32: the head and
// the Q tile of each
void walk(const Arguments& call) {
  const auto number = [&](const char* name) { return int(call.integer(name)); };
  const std::size_t room = call.array<std::int32_t>("steps").size();
  DeviceArray<std::int32_t> count("count", 1, Role::output), steps("steps", room, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_steps, dim3(1), dim3(32), 0,
                         ch14::Walk{number("first_head"), number("group"), number("begin"), number("end")},
                         int(room / 2), count.data(), steps.data());
  count.download(call.array<std::int32_t>("count"));
  steps.download(call.array<std::int32_t>("steps"));
}

const Operations operations{{"rows", rows}, {"seen", seen}, {"walk", walk}};

}  // namespace
