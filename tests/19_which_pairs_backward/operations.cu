// Chapter 19's steps of blocks, full Q tiles, the mask from the side of the keys, P and what stays for dS, tiles as
// the producer brings them, and places and semaphores of dQ, as operations that the tests call by name.
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

// The call's numbers Nq, Nk, left, right, kv_heads, heads_at_once, group, kv_tiles, padded, and starts: of packed
// sequences, or only 0.
Call call_of(const Arguments& call, const std::int32_t* starts) {
  const int group = number(call, "group"), kv_heads = number(call, "kv_heads");
  Call all{};
  all.kv_heads = kv_heads, all.heads_at_once = number(call, "heads_at_once"), all.padded = number(call, "padded");
  all.seen = seen_of(call);
  all.given = {number(call, "kv_tiles"), group * kv_heads, group,
               call.array<std::int32_t>("starts").size() == 1 ? nullptr : starts};
  return all;
}
DeviceArray<std::int32_t> starts_of(const Arguments& call) {
  return {"starts", std::span<const std::int32_t>(call.array<std::int32_t>("starts"))};
}

// call_of's numbers, most, count -> numbers (count, 4 + 2·most): of each block its head of K and V, the first row of
// its sequence, its first key and how many steps it has; and of the steps head and Q tile, -1 behind the last one.
// K/V tiles of 128 keys, Q tiles of 64 queries
__global__ void list_steps(Call call, int most, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const Work<Kernel<half, 128, Scaled>> work(call, i);
  std::int32_t* place = numbers + i * (4 + 2 * most);
  *place++ = work.kv_head, *place++ = work.first_row, *place++ = work.first_key, *place++ = work.steps;
  Step step = work.first_step();
  for (int n = 0; n < most; ++n) {
    const bool any = n < work.steps;
    *place++ = any ? step.head : -1, *place++ = any ? step.q_tile : -1;
    if (any) work.advance(step);
  }
}
void steps(const Arguments& call) {
  const DeviceArray<std::int32_t> starts = starts_of(call);
  list(call, list_steps, 32, number(call, "count"), call_of(call, starts.data()), number(call, "most"));
}

// call_of's numbers, most, count, d: 64 or 128 -> numbers (count, 3 + 5·most): of each block its head of K and V, the
// first row of its sequence and its first key; and of the steps head and Q tile, where its dQ begins in dQ_sum, the
// place of its turn behind `semaphores`, and whose turn it is; -1 behind the last one
template <int d>
__global__ void list_turns(Call call, int most, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const Work<Kernel<half, d, Scaled>> work(call, i);
  std::int32_t* place = numbers + i * (3 + 5 * most);
  *place++ = work.kv_head, *place++ = work.first_row, *place++ = work.first_key;
  Step step = work.first_step();
  for (int n = 0; n < most; ++n, place += 5) {
    if (n >= work.steps) {
      for (int of = 0; of < 5; ++of) place[of] = -1;
      continue;
    }
    const Semaphore semaphore = semaphore_of(call, work, step);
    place[0] = step.head, place[1] = step.q_tile;
    place[2] = std::int32_t(place_in_dQ_sum(call, work, step) - call.dQ_sum);
    place[3] = std::int32_t(semaphore.counter - call.semaphores), place[4] = semaphore.turn;
    work.advance(step);
  }
}
void semaphores(const Arguments& call) {
  const DeviceArray<std::int32_t> starts = starts_of(call);
  const auto kernel = number(call, "d") == 64 ? list_turns<64> : list_turns<128>;
  list(call, kernel, 32, number(call, "count"), call_of(call, starts.data()), number(call, "most"));
}

// call_of's numbers, rows, most, d: 64 or 128; Q, dO (group·kv_heads·rows·d) as codes of half, lse, D
// (group·kv_heads·padded) -> blocks (kv_tiles·kv_heads, 3): their head of K and V, first row and first key; values
// (kv_tiles·kv_heads, most, 6, Br), what the producer brings of each step: of each row of Q its first and its last
// element, the line of LSE; the same of dO and D. 0 behind the last step
template <class T>
__global__ void __launch_bounds__(64, 1)
    bring_tiles(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
                const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap dO,
                const __grid_constant__ Call call, int most, float* values, std::int32_t* blocks) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  const Work<T> work(call, int(blockIdx.x));
  if (threadIdx.x == 0) make_barriers<T>(smem);
  __syncthreads();
  if (threadIdx.x == 0) {
    std::int32_t* const block = blocks + 3 * int(blockIdx.x);
    block[0] = work.kv_head, block[1] = work.first_row, block[2] = work.first_key;
    produce<T>(smem, Q, K, V, dO, call, work);
  }
  if (threadIdx.x < 32) return;
  const int lane = int(threadIdx.x) - 32;
  Position<T::stages> at;
  if (work.steps > 0) mbarrier_wait_parity(smem.K_full, 0), mbarrier_wait_parity(smem.V_full, 0);
  for (int i = work.steps * 6 * T::Br + lane; i < most * 6 * T::Br; i += 32)
    values[int(blockIdx.x) * most * 6 * T::Br + i] = 0;
  for (int n = 0; n < work.steps && n < most; ++n) {
    mbarrier_wait_parity(smem.Q_full[at.stage], at.parity), mbarrier_wait_parity(smem.dO_full[at.stage], at.parity);
    float* const place = values + (int(blockIdx.x) * most + n) * 6 * T::Br;
    for (int row = lane; row < T::Br; row += 32) {
      const auto of = [&](auto& tile, auto& line, int first) {
        place[first * T::Br + row] = float(*swizzled(tile[0], row, 0));
        place[(first + 1) * T::Br + row] = float(swizzled(tile[T::d / 64 - 1], row, 7)[7]);
        place[(first + 2) * T::Br + row] = line[row];
      };
      of(smem.Q[at.stage], smem.lse[at.stage], 0), of(smem.dO[at.stage], smem.D[at.stage], 3);
    }
    __syncwarp();
    if (lane < 4 * T::consumers) mbarrier_arrive(smem.empty[at.stage]);
    at.advance();
  }
}
template <int d>
void bring(const Arguments& call) {
  using T = Kernel<half, d, Scaled>;
  const DeviceArray<std::int32_t> starts = starts_of(call);
  const DeviceArray<half> Q("Q", call.codes("Q")), dO("dO", call.codes("dO"));
  DeviceArray<float> lse("lse_log2", call.input("lse")), D("D", call.input("D"));
  DeviceArray<float> values("values", call.output("values").size(), Role::output);
  DeviceArray<std::int32_t> blocks("blocks", call.array<std::int32_t>("blocks").size(), Role::output);
  Call all = call_of(call, starts.data());
  all.lse = lse.data(), all.D = D.data();
  const std::int64_t heads = all.given.heads, N = all.seen.Nq;
  workbook::cuda::begin_chapter();
  const auto queries = map_of<d>(Q.data(), heads, N, T::Br, d / 64),
             of_dO = map_of<d>(dO.data(), heads, N, T::Br, d / 64);
  const auto keys = map_of<d>(Q.data(), all.kv_heads, N, T::Bc, d / 64);
  workbook::cuda::launch(bring_tiles<T>, dim3(unsigned(all.given.kv_tiles * all.kv_heads)), dim3(64),
                         sizeof(typename T::Shared), queries, keys, keys, of_dO, all, number(call, "most"),
                         values.data(), blocks.data());
  values.download(call.output("values")), blocks.download(call.array<std::int32_t>("blocks"));
}
void tiles(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  number(call, "d") == 64 ? bring<64>(call) : bring<128>(call);
}

// Nq, Nk, left, right, keys, queries, q_tiles, count -> numbers (count, 2 + q_tiles): of each `keys` keys the
// queries that see all of them, and for each `queries` queries whether all see them
__global__ void list_full(SeenKeys seen, int keys, int queries, int q_tiles, int count, std::int32_t* numbers) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const Range own{i * keys, (i + 1) * keys}, full = seen.full_queries(own);
  std::int32_t* const place = numbers + i * (2 + q_tiles);
  place[0] = full.first, place[1] = full.last;
  for (int n = 0; n < q_tiles; ++n) place[2 + n] = seen.all_see({n * queries, (n + 1) * queries}, own) ? 1 : 0;
}
void full_queries(const Arguments& call) {
  list(call, list_full, 32, number(call, "count"), seen_of(call), number(call, "keys"), number(call, "queries"),
       number(call, "q_tiles"));
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

// Nq, Nk, left, right, first_key, first_query, Br: 64 or 128, masked, half: 0, 1 or 2; scale, softcap, alibi: a slope;
// products (64, Br), lse (Br) -> P, S (64, Br): the rounded P of a consumer's tile, and what stays in place of the
// products, of the first half of its queries, of the second one, or of all; elsewhere P is -1. All in units of log2
template <bool masked, int Br, class Change>
__global__ void form_P(SeenKeys seen, int first_key, int first_query, int which, Change change, const float* products,
                       const float* lse, float* P, float* S) {
  Fragment<half, 4> rounded[Br / 16];
  Fragment<float, Br / 2> scores;
  const auto at = [](int e) {
    const auto [row, column] = place_in_D(int(threadIdx.x), e);
    return row * Br + column;
  };
  for (int e = 0; e < Br / 2; ++e) scores[e] = products[at(e)];
  for (int j = 0; j < Br / 16; ++j) rounded[j].fill(0xbc00bc00);  // -1, twice
  OfQueries<Br / 8, false> of_queries;
  of_queries.load(lse);
  const OfKeys keys(seen, first_key, first_query);
  if (which == 0) exponentiate<masked, 0, Br / 16>(rounded, scores, of_queries, change, keys);
  if (which == 1) exponentiate<masked, Br / 16, Br / 8>(rounded, scores, of_queries, change, keys);
  if (which == 2) exponentiate<masked, 0, Br / 8>(rounded, scores, of_queries, change, keys);
  for (int e = 0; e < Br / 2; ++e) {
    const std::uint32_t two = rounded[e / 8][e % 8 / 2];
    S[at(e)] = scores[e], P[at(e)] = float(reinterpret_cast<const half*>(&two)[e % 2]);
  }
}
void probabilities(const Arguments& call) {
  const DeviceArray<float> products("products", call.input("products")), lse("lse_log2", call.input("lse"));
  DeviceArray<float> P("P", call.output("P").size(), Role::output), S("S", call.output("S").size(), Role::output);
  const auto launch = [&](auto kernel, const auto& change) {
    workbook::cuda::begin_chapter();
    workbook::cuda::launch(kernel, dim3(1), dim3(128), 0, seen_of(call), number(call, "first_key"),
                           number(call, "first_query"), number(call, "half"), change,
                           static_cast<const float*>(products.data()), static_cast<const float*>(lse.data()), P.data(),
                           S.data());
  };
  const auto with = [&]<class Change>(const Change& change) {
    const bool masked = number(call, "masked") != 0, small = number(call, "Br") == 64;
    if (small) launch(masked ? form_P<true, 64, Change> : form_P<false, 64, Change>, change);
    if (!small) launch(masked ? form_P<true, 128, Change> : form_P<false, 128, Change>, change);
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
