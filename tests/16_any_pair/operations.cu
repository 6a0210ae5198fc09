// Chapter 16's predicates, classes, lists, iterators and ranks, as operations that the tests call by name.
#include <cstdint>
#include <vector>

#include "blocks.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"

namespace ch16 {
namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// Launches a kernel with `blocks` blocks of `threads` threads, which reads the input `given` and fills the output
/// `numbers`.
template <class Value, class Kernel, class... More>
void list(const Arguments& call, Kernel kernel, std::int64_t blocks, int threads, More... more) {
  const auto input = call.array<std::int32_t>("given");
  std::vector<Value> values;
  for (const std::int32_t value : input) values.push_back(Value(value));
  const DeviceArray<Value> given("given", std::span<const Value>(values));
  const auto size = call.array<std::int32_t>("numbers").size();
  DeviceArray<std::int32_t> numbers("numbers", size, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(kernel, dim3(unsigned(blocks)), dim3(unsigned(threads)), 0,
                         static_cast<const Value*>(given.data()), more..., numbers.data());
  numbers.download(call.array<std::int32_t>("numbers"));
}
int number(const Arguments& call, const char* name) {
  return int(call.integer(name));
}

/// Calls function(mask_mod) with the predicate of this kind, 0 to 2.
template <class Function>
__device__ void with_mask_mod(int kind, int left, int right, const int* documents, const Function& function) {
  if (kind == 0) function(Documents{documents});
  if (kind == 1) function(Prefix{left});
  if (kind == 2) function(Strided{left, right});
}

// Nq, Nk, kind, left, right; given: the documents -> numbers (Nq, Nk), int32: whether the pair is unmasked
__global__ void test_pairs(const int* documents, int kind, int left, int right, int Nq, int Nk, std::int32_t* numbers) {
  const int pair = int(blockIdx.x * blockDim.x + threadIdx.x), query = pair / Nk, key = pair % Nk;
  if (pair >= Nq * Nk) return;
  with_mask_mod(kind, left, right, documents,
                [&](const auto& mask_mod) { numbers[pair] = mask_mod(query + Nk - Nq, key) ? 1 : 0; });
}
void pairs(const Arguments& call) {
  const int Nq = number(call, "Nq"), Nk = number(call, "Nk");
  list<int>(call, test_pairs, (Nq * Nk + 127) / 128, 128, number(call, "kind"), number(call, "left"),
            number(call, "right"), Nq, Nk);
}

/// A predicate that is a table of bytes.
struct Given {
  const int* unmasked;  // (Nq, Nk)
  int Nq, Nk;
  __device__ bool operator()(int diagonal, int key) const { return unmasked[(diagonal - Nk + Nq) * Nk + key] != 0; }
};
// Nq, Nk; given (Nq, Nk): whether pairs are unmasked -> numbers (⌈Nq/32⌉, ⌈Nk/64⌉), int32: the class of each block
__global__ void classify_given(const int* given, int Nq, int Nk, int columns, std::int32_t* numbers) {
  const int block = int(blockIdx.x);
  const PairMask<Given> mask{{given, Nq, Nk}, Nq, Nk};
  const BlockClass block_class = classify_block<32, 64>(mask, block / columns * 32, block % columns * 64);
  if (threadIdx.x == 0) numbers[block] = int(block_class);
}
void classes(const Arguments& call) {
  const int Nq = number(call, "Nq"), Nk = number(call, "Nk"), columns = (Nk + 63) / 64;
  list<int>(call, classify_given, (Nq + 31) / 32 * columns, 32, Nq, Nk, columns);
}

// rows, columns, wanted, step; given: classes -> numbers (1 + length): the count, and the list
__global__ void list_given(const BlockClass* given, int step, int length, int wanted, std::int32_t* numbers) {
  __shared__ int list[256];
  for (int n = int(threadIdx.x); n < 256; n += 32) list[n] = -1;
  __syncwarp();  // the list overwrites them
  const int count = list_blocks(given, step, length, BlockClass(wanted), list);
  __syncwarp();  // all lanes have written their entries
  if (threadIdx.x == 0) numbers[0] = count;
  for (int n = int(threadIdx.x); n < length + 64; n += 32) numbers[1 + n] = list[n];
}
void lists(const Arguments& call) {
  list<BlockClass>(call, list_given, 1, 32, number(call, "step"), number(call, "length"), number(call, "wanted"));
}

// rows, columns, transposed, line; given: classes -> numbers: the line's first index, its step and its length
__global__ void line_given(const BlockClass* given, int rows, int columns, int transposed, int index,
                           std::int32_t* numbers) {
  const BlockTable table{const_cast<BlockClass*>(given), rows, columns};
  const Line line = line_of(table, index, transposed != 0);
  numbers[0] = int(line.first - given), numbers[1] = line.step, numbers[2] = line.length;
}
void line(const Arguments& call) {
  list<BlockClass>(call, line_given, 1, 1, number(call, "rows"), number(call, "columns"), number(call, "transposed"),
                   number(call, "line"));
}

// partial_count, full_count; given: both lists, one after the other -> numbers (blocks, 32): the index of each block in
// each lane
__global__ void iterate_given(const int* partial, const int* full, int partial_count, int full_count,
                              std::int32_t* numbers) {
  BlockIterator iterator{partial, full, partial_count, partial_count + full_count, -1};
  for (int n = 0; n < partial_count + full_count; ++n) numbers[32 * n + threadIdx.x] = iterator.block(n);
}
void iterator(const Arguments& call) {
  const int partial_count = number(call, "partial_count"), full_count = number(call, "full_count");
  const std::vector<int> both(call.array<std::int32_t>("given").begin(), call.array<std::int32_t>("given").end());
  // Padding follows the full blocks, for code that does not subtract the number of partial blocks.
  std::vector<int> full_list(both.begin() + partial_count, both.end());
  full_list.resize(both.size(), -1);
  const DeviceArray<int> partial("partial", std::span<const int>(both).first(std::size_t(partial_count))),
      full("full", std::span<const int>(full_list));
  DeviceArray<std::int32_t> numbers("numbers", call.array<std::int32_t>("numbers").size(), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(iterate_given, dim3(1), dim3(32), 0, partial.data(), full.data(), partial_count, full_count,
                         numbers.data());
  numbers.download(call.array<std::int32_t>("numbers"));
}

// rows, columns; given: classes -> numbers (rows, columns): the rank of each block
__global__ void ranks_given(const BlockClass* given, int rows, int columns, std::int32_t* numbers) {
  const int block = int(blockIdx.x);
  const BlockTable table{const_cast<BlockClass*>(given), rows, columns};
  if (threadIdx.x == 0) numbers[block] = dQ_rank(table, block / columns, block % columns);
}
void ranks(const Arguments& call) {
  const int rows = number(call, "rows"), columns = number(call, "columns");
  list<BlockClass>(call, ranks_given, rows * columns, 32, rows, columns);
}

const Operations operations{{"pairs", pairs}, {"classes", classes},   {"lists", lists},
                            {"line", line},   {"iterator", iterator}, {"ranks", ranks}};

}  // namespace
}  // namespace ch16
