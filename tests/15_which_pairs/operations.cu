// Chapter 15's masks and packed sequences, as operations that the tests call by name.
#include <cstdint>
#include <vector>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "masks.hpp"
#include "sequences.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

ch15::WindowMask window_mask(const Arguments& call) {
  const auto number = [&](const char* name) { return int(call.integer(name)); };
  return {number("Nq"), number("Nk"), number("left"), number("right")};
}

/// Launches an operation's kernel with `count` threads, which fill the output `numbers`.
template <class Kernel, class... More>
void list(const Arguments& call, Kernel kernel, int count, More... more) {
  const auto size = call.array<std::int32_t>("numbers").size();
  DeviceArray<std::int32_t> numbers("numbers", size, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(kernel, dim3(unsigned(count + 31) / 32), dim3(32), 0, more..., count, numbers.data());
  numbers.download(call.array<std::int32_t>("numbers"));
}

__global__ void list_ranges(ch15::WindowMask mask, int count, std::int32_t* numbers) {
  const int query = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (query >= count) return;
  const ch15::Range keys = mask.key_range(query);
  numbers[2 * query] = keys.first, numbers[2 * query + 1] = keys.last;
}
// Nq, Nk, left, right -> numbers (Nq, 2), int32: the key range of each query
void ranges(const Arguments& call) {
  list(call, list_ranges, int(call.integer("Nq")), window_mask(call));
}

__global__ void list_classes(ch15::WindowMask mask, int kv_tiles, int count, std::int32_t* numbers) {
  const int number = int(blockIdx.x * blockDim.x + threadIdx.x), query = number / kv_tiles * 32;
  if (number >= count) return;
  const int first_key = number % kv_tiles * 32;
  numbers[number] = int(mask.classify({query, min(mask.Nq, query + 32)}, first_key, first_key + 32));
}
// Nq, Nk, left, right -> numbers (⌈Nq/32⌉ + 1, ⌈Nk/32⌉), int32: the class of each tile of 32 queries and 32 keys; those
// of the last row have no queries
void classes(const Arguments& call) {
  const int kv_tiles = int((call.integer("Nk") + 31) / 32), rows = int((call.integer("Nq") + 31) / 32) + 1;
  list(call, list_classes, rows * kv_tiles, window_mask(call), kv_tiles);
}

__global__ void list_tiles(ch15::WindowMask mask, int Br, int count, std::int32_t* numbers) {
  const int block = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (block >= count) return;
  const ch15::Range tiles = mask.template kv_tiles<32>({block * Br, min(mask.Nq, (block + 1) * Br)});
  numbers[2 * block] = tiles.first, numbers[2 * block + 1] = tiles.last;
}
// Nq, Nk, left, right, Br -> numbers (⌈Nq/Br⌉, 2), int32: the range of K/V tiles of 32 keys that each thread block
// needs
void tiles(const Arguments& call) {
  const int Br = int(call.integer("Br"));
  list(call, list_tiles, int(call.integer("Nq") + Br - 1) / Br, window_mask(call), Br);
}

template <int Br>
__global__ void list_queries(ch15::WindowMask mask, int Bc, int count, std::int32_t* numbers) {
  const int block = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (block >= count) return;
  const ch15::Range keys{block * Bc, min(mask.Nk, (block + 1) * Bc)};
  const ch15::Range queries = mask.query_range(keys), blocks = mask.template q_tiles<Br>(keys);
  numbers[4 * block] = queries.first, numbers[4 * block + 1] = queries.last;
  numbers[4 * block + 2] = blocks.first, numbers[4 * block + 3] = blocks.last;
}
// Nq, Nk, left, right, Bc, Br: 32 or 64 -> numbers (⌈Nk/Bc⌉, 4), int32: of each K/V tile, the range of its queries and
// of its Q tiles
void queries(const Arguments& call) {
  const int Bc = int(call.integer("Bc")), blocks = int((call.integer("Nk") + Bc - 1) / Bc);
  list(call, call.integer("Br") == 32 ? list_queries<32> : list_queries<64>, blocks, window_mask(call), Bc);
}

__global__ void list_sequences(const int* starts, int Br, int count, std::int32_t* numbers) {
  const int block = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (block >= count) return;
  const ch15::Sequence sequence = ch15::sequence_of(starts, block, Br);
  numbers[3 * block] = sequence.first, numbers[3 * block + 1] = sequence.length, numbers[3 * block + 2] = sequence.tile;
}
// starts (S + 1), int32; Br, blocks -> numbers (blocks, 3), int32: the sequence and the tile of each thread block
void sequences(const Arguments& call) {
  const auto given = call.array<std::int32_t>("starts");
  const DeviceArray<std::int32_t> starts("starts", std::span<const std::int32_t>(given));
  list(call, list_sequences, int(call.integer("blocks")), static_cast<const int*>(starts.data()),
       int(call.integer("Br")));
}

const Operations operations{
    {"ranges", ranges}, {"classes", classes}, {"tiles", tiles}, {"queries", queries}, {"sequences", sequences}};

}  // namespace
