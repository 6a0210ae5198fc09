// Chapter 16's predicates, classes, lists and walks, as operations that the tests call by name.
#include <cstdint>
#include <vector>

#include "blocks.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"

namespace ch16 {
namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// Calls a kernel with `blocks` blocks of `threads`, which fills the output `numbers`; the input `given` is there.
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

/// The predicate that a call asks for, kind 0 to 2.
template <class Take>
__device__ void with_predicate(int kind, int left, int right, const int* documents, const Take& take) {
  if (kind == 0) take(Documents{documents});
  if (kind == 1) take(Prefix{left});
  if (kind == 2) take(Strided{left, right});
}

// Nq, Nk, kind, left, right; given: the documents -> numbers (Nq, Nk), int32: whether the pair counts
__global__ void ask_pairs(const int* documents, int kind, int left, int right, int Nq, int Nk, std::int32_t* numbers) {
  const int pair = int(blockIdx.x * blockDim.x + threadIdx.x), query = pair / Nk, key = pair % Nk;
  if (pair >= Nq * Nk) return;
  with_predicate(kind, left, right, documents,
                 [&](const auto& predicate) { numbers[pair] = predicate(query + Nk - Nq, key) ? 1 : 0; });
}
void pairs(const Arguments& call) {
  const int Nq = number(call, "Nq"), Nk = number(call, "Nk");
  list<int>(call, ask_pairs, (Nq * Nk + 127) / 128, 128, number(call, "kind"), number(call, "left"),
            number(call, "right"), Nq, Nk);
}

/// A predicate that is a table of bytes.
struct Given {
  const int* counts;  // (Nq, Nk)
  int Nq, Nk;
  __device__ bool operator()(int at, int key) const { return counts[(at - Nk + Nq) * Nk + key] != 0; }
};
// Nq, Nk; given (Nq, Nk): whether pairs count -> numbers (⌈Nq/32⌉, ⌈Nk/64⌉), int32: the class of each block
__global__ void class_given(const int* given, int Nq, int Nk, int columns, std::int32_t* numbers) {
  const int block = int(blockIdx.x);
  const Pairs<Given> pairs{{given, Nq, Nk}, Nq, Nk};
  const BlockClass own = class_of<32, 64>(pairs, block / columns * 32, block % columns * 64);
  if (threadIdx.x == 0) numbers[block] = int(own);
}
void classes(const Arguments& call) {
  const int Nq = number(call, "Nq"), Nk = number(call, "Nk"), columns = (Nk + 63) / 64;
  list<int>(call, class_given, (Nq + 31) / 32 * columns, 32, Nq, Nk, columns);
}

// rows, columns, wanted, step; given: classes -> numbers (1 + length): how many, and the list of every step-th
__global__ void list_given(const BlockClass* given, int step, int length, int wanted, std::int32_t* numbers) {
  __shared__ int list[256];
  for (int n = int(threadIdx.x); n < 256; n += 32) list[n] = -1;
  __syncwarp();  // the list overwrites them
  const int count = list_blocks(given, step, length, BlockClass(wanted), list);
  __syncwarp();  // all lanes have written theirs
  if (threadIdx.x == 0) numbers[0] = count;
  for (int n = int(threadIdx.x); n < length + 64; n += 32) numbers[1 + n] = list[n];
}
void lists(const Arguments& call) {
  list<BlockClass>(call, list_given, 1, 32, number(call, "step"), number(call, "length"), number(call, "wanted"));
}

// rows, columns, of_columns, line; given: classes -> numbers: the line's first place, its step and its length
__global__ void line_given(const BlockClass* given, int rows, int columns, int of_columns, int number,
                           std::int32_t* numbers) {
  const BlockTable table{const_cast<BlockClass*>(given), rows, columns};
  const Line line = line_of(table, number, of_columns != 0);
  numbers[0] = int(line.first - given), numbers[1] = line.step, numbers[2] = line.length;
}
void line(const Arguments& call) {
  list<BlockClass>(call, line_given, 1, 1, number(call, "rows"), number(call, "columns"), number(call, "of_columns"),
                   number(call, "line"));
}

// partials, fulls; given: both lists, one behind the other -> numbers (blocks, 32): what each lane has of each block
__global__ void walk_given(const int* partial, const int* full, int partials, int fulls, std::int32_t* numbers) {
  Walk walk{partial, full, partials, partials + fulls, -1};
  for (int n = 0; n < partials + fulls; ++n) numbers[32 * n + threadIdx.x] = walk.block(n);
}
void walk(const Arguments& call) {
  const int partials = number(call, "partials"), fulls = number(call, "fulls");
  const std::vector<int> both(call.array<std::int32_t>("given").begin(), call.array<std::int32_t>("given").end());
  // Who counts on from the partial ones reads what stands behind the full ones; without partial ones there is nothing.
  std::vector<int> full_list(both.begin() + partials, both.end());
  full_list.resize(both.size(), -1);
  const DeviceArray<int> partial("partial", std::span<const int>(both).first(std::size_t(partials))),
      full("full", std::span<const int>(full_list));
  DeviceArray<std::int32_t> numbers("numbers", call.array<std::int32_t>("numbers").size(), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(walk_given, dim3(1), dim3(32), 0, partial.data(), full.data(), partials, fulls,
                         numbers.data());
  numbers.download(call.array<std::int32_t>("numbers"));
}

// rows, columns; given: classes -> numbers (rows, columns): the turn of each block
__global__ void turns_given(const BlockClass* given, int rows, int columns, std::int32_t* numbers) {
  const int block = int(blockIdx.x);
  const BlockTable table{const_cast<BlockClass*>(given), rows, columns};
  if (threadIdx.x == 0) numbers[block] = semaphore_of(table, block / columns, block % columns);
}
void semaphores(const Arguments& call) {
  const int rows = number(call, "rows"), columns = number(call, "columns");
  list<BlockClass>(call, turns_given, rows * columns, 32, rows, columns);
}

const Operations operations{{"pairs", pairs}, {"classes", classes}, {"lists", lists},
                            {"line", line},   {"walk", walk},       {"semaphores", semaphores}};

}  // namespace
}  // namespace ch16
