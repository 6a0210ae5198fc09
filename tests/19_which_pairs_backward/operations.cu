// Chapter 19's steps, full Q tiles, query ranges, P and P·derivative, the tiles that the producer loads, and the
// addresses and semaphores of dQ, as operations that the tests call by name.
#include <cstdint>
#include <span>

#include "common/cuda/backend.hpp"
#include "common/cuda/description.hpp"
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
WindowMask mask_of(const Arguments& call) {
  return {number(call, "Nq"), number(call, "Nk"), number(call, "left"), number(call, "right")};
}
/// Launches a kernel with `count` threads, in thread blocks of `threads`. It fills the output `numbers`.
template <class Kernel, class... More>
void list(const Arguments& call, Kernel kernel, int threads, int count, More... more) {
  DeviceArray<std::int32_t> numbers("numbers", call.array<std::int32_t>("numbers").size(), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(kernel, dim3(unsigned(count + threads - 1) / unsigned(threads)), dim3(unsigned(threads)), 0,
                         more..., count, numbers.data());
  numbers.download(call.array<std::int32_t>("numbers"));
}

// From the call's numbers Nq, Nk, left, right, kv_heads, heads_per_group, group, kv_tiles, padded; and `starts`, of
// packed sequences, or only 0.
Call call_of(const Arguments& call, const std::int32_t* starts) {
  const int group = number(call, "group"), kv_heads = number(call, "kv_heads");
  Call all{};
  all.kv_heads = kv_heads, all.heads_per_group = number(call, "heads_per_group"), all.padded = number(call, "padded");
  all.mask = mask_of(call);
  all.problem = {number(call, "kv_tiles"), group * kv_heads, group,
                 call.array<std::int32_t>("starts").size() == 1 ? nullptr : starts};
  return all;
}
DeviceArray<std::int32_t> starts_of(const Arguments& call) {
  return {"starts", std::span<const std::int32_t>(call.array<std::int32_t>("starts"))};
}

// call_of's numbers, most, count -> numbers (count, 4 + 2·most): for each thread block its head of K and V, the first
// row of its sequence, its first key and its number of steps; then head and Q tile of each step, -1 after the last one.
// K/V tiles of 128 keys, Q tiles of 64 queries
__global__ void list_steps(Call call, int most, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const WorkTile<Kernel<half, 128, Scaled>> work(call, i);
  std::int32_t* out = numbers + i * (4 + 2 * most);
  *out++ = work.kv_head, *out++ = work.first_row, *out++ = work.first_key, *out++ = work.steps;
  Step step = work.first_step();
  for (int n = 0; n < most; ++n) {
    const bool any = n < work.steps;
    *out++ = any ? step.head : -1, *out++ = any ? step.q_tile : -1;
    if (any) work.advance(step);
  }
}
void steps(const Arguments& call) {
  const DeviceArray<std::int32_t> starts = starts_of(call);
  list(call, list_steps, 32, number(call, "count"), call_of(call, starts.data()), number(call, "most"));
}

// call_of's numbers, most, count, d: 64 or 128 -> numbers (count, 3 + 5·most): for each thread block its head of K and
// V, the first row of its sequence and its first key; then for each step head and Q tile, the offset of its dQ in
// dQ_sum, the offset of its counter in `semaphores`, and its rank; -1 after the last one
template <int d>
__global__ void list_semaphores(Call call, int most, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const WorkTile<Kernel<half, d, Scaled>> work(call, i);
  std::int32_t* out = numbers + i * (3 + 5 * most);
  *out++ = work.kv_head, *out++ = work.first_row, *out++ = work.first_key;
  Step step = work.first_step();
  for (int n = 0; n < most; ++n, out += 5) {
    if (n >= work.steps) {
      for (int of = 0; of < 5; ++of) out[of] = -1;
      continue;
    }
    const Semaphore semaphore = semaphore_of(call, work, step);
    out[0] = step.head, out[1] = step.q_tile;
    out[2] = std::int32_t(address_in_dQ_sum(call, work, step) - call.dQ_sum);
    out[3] = std::int32_t(semaphore.counter - call.semaphores), out[4] = semaphore.rank;
    work.advance(step);
  }
}
void semaphores(const Arguments& call) {
  const DeviceArray<std::int32_t> starts = starts_of(call);
  const auto kernel = number(call, "d") == 64 ? list_semaphores<64> : list_semaphores<128>;
  list(call, kernel, 32, number(call, "count"), call_of(call, starts.data()), number(call, "most"));
}

// call_of's numbers, rows, most, d: 64 or 128; Q, dO (group·kv_heads·rows·d) as codes of half, lse, D
// (group·kv_heads·padded) -> blocks (kv_tiles·kv_heads, 3): head of K and V, first row and first key; values
// (kv_tiles·kv_heads, most, 6, Br), what the producer loads for each step: the first and the last element of each row
// of Q, and its LSE; then the same of dO and D. 0 after the last step
template <class T>
__global__ void __launch_bounds__(64, 1)
    load_tiles(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
               const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap dO,
               const __grid_constant__ Call call, int most, float* values, std::int32_t* blocks) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  const WorkTile<T> work(call, int(blockIdx.x));
  if (threadIdx.x == 0) init_barriers<T>(smem);
  __syncthreads();
  if (threadIdx.x == 0) {
    std::int32_t* const block = blocks + 3 * int(blockIdx.x);
    block[0] = work.kv_head, block[1] = work.first_row, block[2] = work.first_key;
    produce<T>(smem, Q, K, V, dO, call, work);
  }
  if (threadIdx.x < 32) return;
  const int lane = int(threadIdx.x) - 32;
  Position<T::stages> position;
  if (work.steps > 0) mbarrier_wait_parity(smem.K_full, 0), mbarrier_wait_parity(smem.V_full, 0);
  for (int i = work.steps * 6 * T::Br + lane; i < most * 6 * T::Br; i += 32)
    values[int(blockIdx.x) * most * 6 * T::Br + i] = 0;
  for (int n = 0; n < work.steps && n < most; ++n) {
    mbarrier_wait_parity(smem.Q_full[position.stage], position.parity),
        mbarrier_wait_parity(smem.dO_full[position.stage], position.parity);
    float* const out = values + (int(blockIdx.x) * most + n) * 6 * T::Br;
    for (int row = lane; row < T::Br; row += 32) {
      const auto copy = [&](auto& tile, auto& stats, int first) {
        out[first * T::Br + row] = float(*swizzled(tile[0], row, 0));
        out[(first + 1) * T::Br + row] = float(swizzled(tile[T::d / 64 - 1], row, 7)[7]);
        out[(first + 2) * T::Br + row] = stats[row];
      };
      copy(smem.Q[position.stage], smem.lse[position.stage], 0),
          copy(smem.dO[position.stage], smem.D[position.stage], 3);
    }
    __syncwarp();
    if (lane < 4 * T::consumers) mbarrier_arrive(smem.empty[position.stage]);
    position.advance();
  }
}
template <int d>
void load(const Arguments& call) {
  using T = Kernel<half, d, Scaled>;
  const DeviceArray<std::int32_t> starts = starts_of(call);
  const DeviceArray<half> Q("Q", call.codes("Q")), dO("dO", call.codes("dO"));
  DeviceArray<float> lse("lse_log2", call.input("lse")), D("D", call.input("D"));
  DeviceArray<float> values("values", call.output("values").size(), Role::output);
  DeviceArray<std::int32_t> blocks("blocks", call.array<std::int32_t>("blocks").size(), Role::output);
  Call all = call_of(call, starts.data());
  all.lse = lse.data(), all.D = D.data();
  const std::int64_t heads = all.problem.heads, N = all.mask.Nq;
  workbook::cuda::begin_chapter();
  const auto queries = make_tensor_map<d>(Q.data(), heads, N, T::Br, d / 64),
             dO_map = make_tensor_map<d>(dO.data(), heads, N, T::Br, d / 64);
  const auto keys = make_tensor_map<d>(Q.data(), all.kv_heads, N, T::Bc, d / 64);
  workbook::cuda::launch(load_tiles<T>, dim3(unsigned(all.problem.kv_tiles * all.kv_heads)), dim3(64),
                         sizeof(typename T::Shared), queries, keys, keys, dO_map, all, number(call, "most"),
                         values.data(), blocks.data());
  values.download(call.output("values")), blocks.download(call.array<std::int32_t>("blocks"));
}
void tiles(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  number(call, "d") == 64 ? load<64>(call) : load<128>(call);
}

// Nq, Nk, left, right, keys, queries, q_tiles, count -> numbers (count, 2 + q_tiles): for each `keys` keys, the range
// of queries that attend to all of them, and for each `queries` queries whether all do
__global__ void list_full(WindowMask mask, int keys, int queries, int q_tiles, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const Range range{i * keys, (i + 1) * keys}, full = mask.full_queries(range);
  std::int32_t* const out = numbers + i * (2 + q_tiles);
  out[0] = full.first, out[1] = full.last;
  for (int n = 0; n < q_tiles; ++n) out[2 + n] = mask.is_full({n * queries, (n + 1) * queries}, range) ? 1 : 0;
}
void full_queries(const Arguments& call) {
  list(call, list_full, 32, number(call, "count"), mask_of(call), number(call, "keys"), number(call, "queries"),
       number(call, "q_tiles"));
}

// Nq, Nk, left, right, first_key, first_query -> numbers (64, 128): whether query first_query + column is in the range
// that a thread has for key first_key + row
__global__ void list_pairs(WindowMask mask, int first_key, int first_query, int, std::int32_t* numbers) {
  const LaneKeys keys(mask, first_key, first_query);
  for (int e = 0; e < 64; ++e) {
    const auto [row, column] = coordinates_in_D(int(threadIdx.x), e);
    const Range queries = keys.queries[e / 2 % 2];
    const int query = e / 4 * 8 + e % 2;
    numbers[row * 128 + column] = queries.first <= query && query < queries.last ? 1 : 0;
  }
}
void pairs(const Arguments& call) {
  list(call, list_pairs, 128, 128, mask_of(call), number(call, "first_key"), number(call, "first_query"));
}

// Nq, Nk, left, right, first_key, first_query, Br: 64 or 128, masked, half: 0, 1 or 2; scale, softcap, alibi: a slope;
// products (64, Br), lse (Br) -> P, S (64, Br): the rounded P of a consumer's tile, and P·derivative, of the first half
// of its queries, of the second half, or of all; elsewhere P is -1. All in units of log2
template <bool masked, int Br, class ScoreMod>
__global__ void form_P(WindowMask mask, int first_key, int first_query, int which, ScoreMod score_mod,
                       const float* products, const float* lse, float* P, float* S) {
  Fragment<half, 4> rounded[Br / 16];
  Fragment<float, Br / 2> scores;
  const auto at = [](int e) {
    const auto [row, column] = coordinates_in_D(int(threadIdx.x), e);
    return row * Br + column;
  };
  for (int e = 0; e < Br / 2; ++e) scores[e] = products[at(e)];
  for (int j = 0; j < Br / 16; ++j) rounded[j].fill(0xbc00bc00);  // -1, twice
  QueryStats<Br / 8, false> stats;
  stats.load(lse);
  const LaneKeys keys(mask, first_key, first_query);
  if (which == 0) exponentiate<masked, 0, Br / 16>(rounded, scores, stats, score_mod, keys);
  if (which == 1) exponentiate<masked, Br / 16, Br / 8>(rounded, scores, stats, score_mod, keys);
  if (which == 2) exponentiate<masked, 0, Br / 8>(rounded, scores, stats, score_mod, keys);
  for (int e = 0; e < Br / 2; ++e) {
    const std::uint32_t pair = rounded[e / 8][e % 8 / 2];
    S[at(e)] = scores[e], P[at(e)] = float(reinterpret_cast<const half*>(&pair)[e % 2]);
  }
}
void probabilities(const Arguments& call) {
  const DeviceArray<float> products("products", call.input("products")), lse("lse_log2", call.input("lse"));
  DeviceArray<float> P("P", call.output("P").size(), Role::output), S("S", call.output("S").size(), Role::output);
  const auto launch = [&](auto kernel, const auto& score_mod) {
    workbook::cuda::begin_chapter();
    workbook::cuda::launch(kernel, dim3(1), dim3(128), 0, mask_of(call), number(call, "first_key"),
                           number(call, "first_query"), number(call, "half"), score_mod,
                           static_cast<const float*>(products.data()), static_cast<const float*>(lse.data()), P.data(),
                           S.data());
  };
  const auto with = [&]<class ScoreMod>(const ScoreMod& score_mod) {
    const bool masked = number(call, "masked") != 0, small = number(call, "Br") == 64;
    if (small) launch(masked ? form_P<true, 64, ScoreMod> : form_P<false, 64, ScoreMod>, score_mod);
    if (!small) launch(masked ? form_P<true, 128, ScoreMod> : form_P<false, 128, ScoreMod>, score_mod);
  };
  const auto scale = float(call.number("scale")), cap = float(call.number("softcap")),
             slope = float(call.number("alibi"));
  const Softcap capped{cap, cap > 0 ? 2 * log2_e * scale / cap : 0};
  if (slope > 0)
    cap > 0 ? with(WithAlibi<Softcap>{capped, slope}) : with(WithAlibi<Scaled>{{scale}, slope});
  else
    cap > 0 ? with(capped) : with(Scaled{scale});
  P.download(call.output("P")), S.download(call.output("S"));
}

const Operations operations{{"steps", steps}, {"full_queries", full_queries},
                            {"pairs", pairs}, {"probabilities", probabilities},
                            {"tiles", tiles}, {"semaphores", semaphores}};

}  // namespace
}  // namespace ch19
