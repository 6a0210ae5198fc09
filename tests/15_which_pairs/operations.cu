// Chapter 15's masks and its packed sequences, as operations that the tests call by name.
#include <cstdint>
#include <vector>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "masks.hpp"
#include "sequences.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

ch15::SeenKeys seen_keys(const Arguments& call) {
  const auto number = [&](const char* name) { return int(call.integer(name)); };
  return {number("Nq"), number("Nk"), number("left"), number("right")};
}

/// Calls an operation's kernel, a thread for each `count`, which fills `size` numbers of the output `numbers`.
template <class Kernel, class... More>
void list(const Arguments& call, Kernel kernel, int count, More... more) {
  const auto size = call.array<std::int32_t>("numbers").size();
  DeviceArray<std::int32_t> numbers("numbers", size, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(kernel, dim3(unsigned(count + 31) / 32), dim3(32), 0, more..., count, numbers.data());
  numbers.download(call.array<std::int32_t>("numbers"));
}

__global__ void list_ranges(ch15::SeenKeys seen, int count, std::int32_t* numbers) {
  const int query = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (query >= count) return;
  const ch15::Range keys = seen.of(query);
  numbers[2 * query] = keys.first, numbers[2 * query + 1] = keys.last;
}
// Nq, Nk, left, right -> numbers (Nq, 2), int32: the range of each query
void ranges(const Arguments& call) {
  list(call, list_ranges, int(call.integer("Nq")), seen_keys(call));
}

__global__ void list_classes(ch15::SeenKeys seen, int kv_tiles, int count, std::int32_t* numbers) {
  const int number = int(blockIdx.x * blockDim.x + threadIdx.x), query = number / kv_tiles * 32;
  if (number >= count) return;
  const int first_key = number % kv_tiles * 32;
  numbers[number] = int(seen.class_of({query, min(seen.Nq, query + 32)}, first_key, first_key + 32));
}
// Nq, Nk, left, right -> numbers (⌈Nq/32⌉ + 1, ⌈Nk/32⌉), int32: the class of each tile of 32 queries and 32 keys; those
// of the last row have no queries
void classes(const Arguments& call) {
  const int kv_tiles = int((call.integer("Nk") + 31) / 32), rows = int((call.integer("Nq") + 31) / 32) + 1;
  list(call, list_classes, rows * kv_tiles, seen_keys(call), kv_tiles);
}

__global__ void list_tiles(ch15::SeenKeys seen, int Br, int count, std::int32_t* numbers) {
  const int block = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (block >= count) return;
  const ch15::Range tiles = seen.template tiles<32>({block * Br, min(seen.Nq, (block + 1) * Br)});
  numbers[2 * block] = tiles.first, numbers[2 * block + 1] = tiles.last;
}
// Nq, Nk, left, right, Br -> numbers (⌈Nq/Br⌉, 2), int32: the tiles of 32 keys that each block needs
void tiles(const Arguments& call) {
  const int Br = int(call.integer("Br"));
  list(call, list_tiles, int(call.integer("Nq") + Br - 1) / Br, seen_keys(call), Br);
}

template <int Br>
__global__ void list_queries(ch15::SeenKeys seen, int Bc, int count, std::int32_t* numbers) {
  const int block = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (block >= count) return;
  const ch15::Range keys{block * Bc, min(seen.Nk, (block + 1) * Bc)};
  const ch15::Range queries = seen.queries(keys), blocks = seen.template q_tiles<Br>(keys);
  numbers[4 * block] = queries.first, numbers[4 * block + 1] = queries.last;
  numbers[4 * block + 2] = blocks.first, numbers[4 * block + 3] = blocks.last;
}
// Nq, Nk, left, right, Bc, Br: 32 or 64 -> numbers (⌈Nk/Bc⌉, 4), int32: the queries that see each K/V tile, and
// their Q tiles
void queries(const Arguments& call) {
  const int Bc = int(call.integer("Bc")), blocks = int((call.integer("Nk") + Bc - 1) / Bc);
  list(call, call.integer("Br") == 32 ? list_queries<32> : list_queries<64>, blocks, seen_keys(call), Bc);
}

__global__ void list_sequences(const int* starts, int Br, int count, std::int32_t* numbers) {
  const int block = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (block >= count) return;
  const ch15::Sequence own = ch15::sequence_of(starts, block, Br);
  numbers[3 * block] = own.first, numbers[3 * block + 1] = own.length, numbers[3 * block + 2] = own.tile;
}
// starts (S + 1), int32; Br, blocks -> numbers (blocks, 3), int32: the sequence of each block, and its number there
void sequences(const Arguments& call) {
  const auto given = call.array<std::int32_t>("starts");
  const DeviceArray<std::int32_t> starts("starts", std::span<const std::int32_t>(given));
  list(call, list_sequences, int(call.integer("blocks")), static_cast<const int*>(starts.data()),
       int(call.integer("Br")));
}

const Operations operations{
    {"ranges", ranges}, {"classes", classes}, {"tiles", tiles}, {"queries", queries}, {"sequences", sequences}};

}  // namespace
