// Chapter 14's packed rows and its rule, as operations that the tests call by name.
#include <cstdint>
#include <vector>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "packed_rows.hpp"

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

const Operations operations{{"rows", rows}, {"seen", seen}};

}  // namespace
