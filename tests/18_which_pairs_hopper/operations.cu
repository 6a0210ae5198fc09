// Chapter 18's full tiles, its mask in D, TMA coordinates of sequences and its tile scheduler, as operations that the
// tests call by name.
#include <cstdint>
#include <span>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "phases.hpp"

namespace ch18 {
namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

int number(const Arguments& call, const char* name) {
  return int(call.integer(name));
}
WindowMask window_mask(const Arguments& call) {
  return {number(call, "Nq"), number(call, "Nk"), number(call, "left"), number(call, "right")};
}
/// Launches a kernel with at least `count` threads, in blocks of `threads`, which fill the output `numbers`.
template <class Number, class Kernel, class... More>
void list(const Arguments& call, Kernel kernel, int threads, int count, More... more) {
  DeviceArray<Number> numbers("numbers", call.array<Number>("numbers").size(), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(kernel, dim3(unsigned(count + threads - 1) / unsigned(threads)), dim3(unsigned(threads)), 0,
                         more..., count, numbers.data());
  numbers.download(call.array<Number>("numbers"));
}

// Nq, Nk, left, right, rows, count -> numbers (count, 2): for each `rows` queries, the range of full tiles of 32 keys
__global__ void list_full_tiles(WindowMask mask, int rows, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const Range tiles = mask.template full_tiles<32>({i * rows, min(mask.Nq, (i + 1) * rows)});
  numbers[2 * i] = tiles.first, numbers[2 * i + 1] = tiles.last;
}
void full_tiles(const Arguments& call) {
  list<std::int32_t>(call, list_full_tiles, 32, number(call, "count"), window_mask(call), number(call, "rows"));
}

// Nq, Nk, left, right, first_query, first_key, Bc: 64 or 128 -> numbers (64, Bc): the scores 0, 1, …, masked
template <int Bc>
__global__ void mask_tile(WindowMask mask, int first_query, int first_key, int, float* numbers) {
  Fragment<float, Bc / 2> S;
  const auto position = [](int e) {
    const auto [row, column] = coordinates_in_D(int(threadIdx.x), e);
    return row * Bc + column;
  };
  for (int e = 0; e < Bc / 2; ++e) S[e] = float(position(e));
  mask_scores(S, mask, first_query, first_key);
  for (int e = 0; e < Bc / 2; ++e) numbers[position(e)] = S[e];
}
void masked_tile(const Arguments& call) {
  list<float>(call, number(call, "Bc") == 64 ? mask_tile<64> : mask_tile<128>, 128, 128, window_mask(call),
              number(call, "first_query"), number(call, "first_key"));
}

// count; given (count, 4): head, N, first, length -> numbers (count, 2): before_first and end
__global__ void list_rows(const std::int32_t* given, int count, std::int32_t* numbers) {
  const int i = int(threadIdx.x);
  if (i >= count) return;
  const SequenceRows rows = rows_of_sequence(given[4 * i], given[4 * i + 1], given[4 * i + 2], given[4 * i + 3]);
  numbers[2 * i] = rows.before_first, numbers[2 * i + 1] = rows.end;
}
void sequence_rows(const Arguments& call) {
  const DeviceArray<std::int32_t> given("given", std::span<const std::int32_t>(call.array<std::int32_t>("given")));
  list<std::int32_t>(call, list_rows, 32, number(call, "count"), static_cast<const std::int32_t*>(given.data()));
}

// Nq, Nk, left, right, heads, heads_per_group, q_tiles, count; starts: of packed sequences, or only 0 ->
// numbers (count, 7): of each work tile head, first_row, first_query, kv_tiles, and Nq and Nk of its mask; for tiles of
// 128 queries and 64 keys
__global__ void list_work_tiles(Call arguments, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const WorkTile work = decode_tile<Kernel<half, 64, 64, 2, Scaled>>(arguments, i);
  const int all[] = {work.head,          work.first_row, work.first_query, work.kv_tiles.first,
                     work.kv_tiles.last, work.mask.Nq,   work.mask.Nk};
  for (int n = 0; n < 7; ++n) numbers[7 * i + n] = all[n];
}
void work_tiles(const Arguments& call) {
  const auto given = call.array<std::int32_t>("starts");
  const DeviceArray<std::int32_t> starts("starts", std::span<const std::int32_t>(given));
  const int heads = number(call, "heads");
  const Problem problem{number(call, "q_tiles"), heads, 1, nullptr, given.size() == 1 ? nullptr : starts.data()};
  list<std::int32_t>(call, list_work_tiles, 32, number(call, "count"),
                     Call{nullptr, nullptr, heads, number(call, "heads_per_group"), window_mask(call), problem});
}

const Operations operations{{"full_tiles", full_tiles},
                            {"masked_tile", masked_tile},
                            {"sequence_rows", sequence_rows},
                            {"work_tiles", work_tiles}};

}  // namespace
}  // namespace ch18
