// Chapter 19's steps of blocks, full row blocks and the mask from the side of the keys, as operations that the tests
// call by name.
#include <cstdint>
#include <span>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "dQ.hpp"

namespace ch19 {
namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

int number(const Arguments& call, const char* name) {
  return int(call.integer(name));
}
SeenKeys seen_of(const Arguments& call) {
  return {number(call, "Nq"), number(call, "Nk"), number(call, "left"), number(call, "right")};
}
/// Calls a kernel, with blocks of `threads` for `count` things, which fills the output `numbers`.
template <class Kernel, class... More>
void list(const Arguments& call, Kernel kernel, int threads, int count, More... more) {
  DeviceArray<std::int32_t> numbers("numbers", call.array<std::int32_t>("numbers").size(), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(kernel, dim3(unsigned(count + threads - 1) / unsigned(threads)), dim3(unsigned(threads)), 0,
                         more..., count, numbers.data());
  numbers.download(call.array<std::int32_t>("numbers"));
}

// Nq, Nk, left, right, kv_heads, heads_at_once, group, column_blocks, padded, most, count; starts: of packed sequences,
// or only 0 -> numbers (count, 3 + 4·most): of each block its head, the first row of its sequence, its first key; and
// of its steps head, row block, padded row and turn, -1 behind the last one. Column blocks of 128 keys, row blocks of
// 64 queries
__global__ void list_steps(Call call, int most, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const Work<Kernel<half, 128, Scaled>> work(call, i);
  std::int32_t* place = numbers + i * (3 + 4 * most);
  *place++ = work.kv_head, *place++ = work.first_row, *place++ = work.first_key;
  Step step = work.first_step();
  for (int n = 0; n < most; ++n) {
    const bool any = n < work.steps;
    *place++ = any ? step.head : -1, *place++ = any ? step.row_block : -1;
    *place++ = any ? int((place_in_dQ_sum(call, work, step) - call.dQ_sum) / 128) : -1;
    *place++ = any ? turn_of(call, work, step).number : -1;
    if (any) work.advance(step);
  }
}
void steps(const Arguments& call) {
  const auto given = call.array<std::int32_t>("starts");
  const DeviceArray<std::int32_t> starts("starts", std::span<const std::int32_t>(given));
  const int group = number(call, "group"), kv_heads = number(call, "kv_heads");
  const Given of_a_head{number(call, "column_blocks"), group * kv_heads, group,
                        given.size() == 1 ? nullptr : starts.data()};
  Call all{};
  all.kv_heads = kv_heads, all.heads_at_once = number(call, "heads_at_once"), all.padded = number(call, "padded");
  all.seen = seen_of(call), all.given = of_a_head;
  list(call, list_steps, 32, number(call, "count"), all, number(call, "most"));
}

// Nq, Nk, left, right, keys, queries, row_blocks, count -> numbers (count, 2 + row_blocks): of each `keys` keys the
// queries that see all of them, and for each `queries` queries whether all see them
__global__ void list_full(SeenKeys seen, int keys, int queries, int row_blocks, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const Range own{i * keys, (i + 1) * keys}, full = seen.full_queries(own);
  std::int32_t* const place = numbers + i * (2 + row_blocks);
  place[0] = full.first, place[1] = full.last;
  for (int n = 0; n < row_blocks; ++n) place[2 + n] = seen.all_see({n * queries, (n + 1) * queries}, own) ? 1 : 0;
}
void full_queries(const Arguments& call) {
  list(call, list_full, 32, number(call, "count"), seen_of(call), number(call, "keys"), number(call, "queries"),
       number(call, "row_blocks"));
}

// Nq, Nk, left, right, first_key, first_query -> numbers (64, 128): whether query first_query + column is one of those
// that a thread has for key first_key + row
__global__ void list_pairs(SeenKeys seen, int first_key, int first_query, int, std::int32_t* numbers) {
  const OfKeys keys(seen, first_key, first_query);
  for (int e = 0; e < 64; ++e) {
    const auto [row, column] = place_in_D(int(threadIdx.x), e);
    const Range queries = keys.queries[e / 2 % 2];
    const int query = e / 4 * 8 + e % 2;
    numbers[row * 128 + column] = queries.first <= query && query < queries.last ? 1 : 0;
  }
}
void pairs(const Arguments& call) {
  list(call, list_pairs, 128, 128, seen_of(call), number(call, "first_key"), number(call, "first_query"));
}

const Operations operations{{"steps", steps}, {"full_queries", full_queries}, {"pairs", pairs}};

}  // namespace
}  // namespace ch19
