// A warp-specialised attention kernel with TMA and wgmma. Copies and matmuls run asynchronously wherever other work can
// overlap with them.
//
// - One thread, the producer, issues TMA loads of whole tiles. mbarriers count the bytes.
// - Three consumers, warpgroups of four warps, multiply 64 rows of Q each by wgmma, which reads K and V from shared
//   memory asynchronously.
// - A consumer issues the next tile's S = Q Kᵀ and this tile's O += P V together; the softmax of one overlaps with the
//   other. Consumers alternate (ping-pong), so that the softmax of one overlaps with the wgmma of the others.
//
// `planted` names the line that is omitted or changed if a mistake is planted (warp_specialised.hpp).
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 and 3.2, Algorithms 1 and 2.
#include "tests/simt/warp_specialised.hpp"

#include <cmath>

#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

using namespace workbook::cuda;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;
constexpr float slack = 8;  // m may be smaller than a row's maximum by up to this

/// Initially every thread of a block has 65536 / 512 = 128 registers: 128·32 + 384·160 is 65536 again.
constexpr int consumers = 3, threads = 128 * (1 + consumers), Br = 64 * consumers, stages = 2;
constexpr int producer_registers = 32, consumer_registers = 160;
/// The largest number of keys for which S, P and O fit into the registers: they take Bc / 2, Bc / 4 and d / 2.
template <int d>
struct Tiling {
  static constexpr int Bc = d == 64 ? 128 : 80;
};

template <int d>
using Scores = Fragment<float, Tiling<d>::Bc / 2>;
template <int d>
using Probabilities = Fragment<half, 4>[Tiling<d>::Bc / 16];
template <int d>
using Output = Fragment<float, d / 2>;

/// Rows of 64 halves: for d = 128 a tile is two such sections, columns 0 to 63 and the rest.
template <int d, int rows>
using Tile = half[d / 64][rows][64];
template <int d>
struct alignas(1024) Smem {
  Tile<d, 64> Q[consumers];  // later O
  Tile<d, Tiling<d>::Bc> K[stages], V[stages];
  Mbarrier Q_full, K_full[stages], K_empty[stages], V_full[stages], V_empty[stages];
  SHARED_LAYOUT(Smem, Q, K, V, Q_full, K_full, K_empty, V_full, V_empty);
};

struct Call {
  float* lse;
  int Nq, Nk, heads, q_tiles;
  float scale;  // holds log2(e)
  Planted planted;
#if defined(__CUDACC__)  // for a GPU nothing is planted: ptxas must find every fence and wait
  __device__ constexpr bool has(Planted) const {
    return false;
  }
#else
  bool has(Planted mistake) const {
    return planted == mistake;
  }
#endif
  __device__ int ring() const {
    return has(Planted::one_stage_hangs) ? 1 : stages;
  }
};

/// The position of a thread in a ring buffer: the stage, and the parity of the current phase of its barriers.
struct Position {
  int stage = 0, parity = 0;
  __device__ void advance(const Call& call) {
    if (++stage == call.ring()) stage = 0, parity ^= 1;
  }
};

/// The work of a block: one Q tile of one head. It loops over the K/V tiles from the last to the first, so that the
/// masked tiles come first.
template <int d, bool causal>
struct Work {
  static constexpr int heads_per_group = 4;
  int head, first_query, tiles;
  __device__ Work(const Call& call) {
    const int first_head = blockIdx.x / (heads_per_group * call.q_tiles) * heads_per_group;
    const int heads = min(heads_per_group, call.heads - first_head);
    const int number = blockIdx.x - first_head * call.q_tiles;
    head = first_head + number % heads;
    first_query = (call.q_tiles - 1 - number / heads) * Br;
    const int visible = causal ? min(call.Nk, first_query + Br + call.Nk - call.Nq) : call.Nk;
    tiles = max(1, (visible + Tiling<d>::Bc - 1) / Tiling<d>::Bc);  // if no key is visible, one tile, masked
  }
};

/// The producer, one thread: fills a stage as soon as all consumers have released it.
template <int d, bool causal>
__device__ __forceinline__ void produce(Smem<d>& smem, const TensorMap& Q, const TensorMap& K, const TensorMap& V,
                                        const Call& call) {
  const Work<d, causal> work(call);
  mbarrier_arrive_expect_tx(smem.Q_full, sizeof smem.Q);
  for (int i = 0; i < consumers; ++i)
    cp_async_bulk_tensor_load(smem.Q[i], Q, smem.Q_full, 0, work.first_query + 64 * i, 0, work.head);
  Position at;
  const auto load = [&](auto& tiles, const TensorMap& tensor, auto& full, auto& empty, int j) {
    mbarrier_wait_parity(empty[at.stage],
                         at.parity ^ 1);  // returns immediately in the first round: all stages are free
    mbarrier_arrive_expect_tx(full[at.stage], sizeof tiles[0]);
    cp_async_bulk_tensor_load(tiles[at.stage], tensor, full[at.stage], 0, j * Tiling<d>::Bc, 0, work.head);
  };
  for (int j = work.tiles - 1; j >= 0; --j) {
    load(smem.K, K, smem.K_full, smem.K_empty, j);  // (Bc, d)
    load(smem.V, V, smem.V_full, smem.V_empty, j);  // (Bc, d)
    at.advance(call);
  }
}

/// Starts S = Q Kᵀ, unscaled: (64, d), (d, Bc) -> (64, Bc).
template <int d>
__device__ __forceinline__ void start_QK(Scores<d>& S, const Tile<d, 64>& Q, const Tile<d, Tiling<d>::Bc>& K,
                                         const Call& call) {
  const WgmmaMatrix A = wgmma_matrix(Q, 0, 1024, Swizzle::bytes_128), B = wgmma_matrix(K, 0, 1024, Swizzle::bytes_128);
  if (!call.has(Planted::no_wgmma_fence)) wgmma_fence();
#pragma unroll
  for (int c = 0; c < d / 16; ++c) {  // 16 columns are 32 bytes of a row
    const int section = c / 4, bytes = c % 4 * 32;
    wgmma_mma_async<half>(S, A + int(section * sizeof Q[0] + bytes), B + int(section * sizeof K[0] + bytes), c > 0);
  }
  wgmma_commit_group();
}

/// Starts O += P V: (64, Bc), (Bc, d) -> (64, d).
template <int d>
__device__ __forceinline__ void start_PV(Output<d>& O, const Probabilities<d>& P, const Tile<d, Tiling<d>::Bc>& V,
                                         const Call& call) {
  const int section = call.has(Planted::section_forgotten) ? 0 : int(sizeof V[0]);
  const WgmmaMatrix B = wgmma_matrix(V, section, 1024, Swizzle::bytes_128);
  if (!call.has(Planted::no_wgmma_fence)) wgmma_fence();
#pragma unroll
  for (int j = 0; j < Tiling<d>::Bc / 16; ++j) {  // 16 keys are 16 rows
    wgmma_mma_async<half, Major::n>(O, P[j], B + int(j * 16 * sizeof V[0][0]), true);
  }
  wgmma_commit_group();
}

/// S·scale, and -inf for keys that do not exist or, with the causal mask, come after the query. `keys` of the tile's
/// keys exist, and the first `visible` are visible to this lane's first row.
template <int n>
__device__ __forceinline__ void scale_and_mask(Fragment<float, n>& S, float scale, int keys, int visible) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int end = min(keys, visible + e / 2 * 8), first_column = threadIdx.x % 4 * 2 + e % 2;
#pragma unroll
    for (int j = 0; j < n / 4; ++j) S[4 * j + e] = 8 * j + first_column < end ? S[4 * j + e] * scale : -INFINITY;
  }
}

/// The maximum of S in a row of this quad: separately over the even and the odd columns, for more parallelism.
template <int n>
__device__ __forceinline__ float largest(const Fragment<float, n>& S, int r) {
  float x[2] = {S[2 * r], S[2 * r + 1]};
#pragma unroll
  for (int j = 1; j < n / 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) x[e] = fmaxf(x[e], S[4 * j + 2 * r + e]);
  x[0] = fmaxf(x[0], x[1]);
  x[0] = fmaxf(x[0], __shfl_xor_sync(all_lanes, x[0], 1));
  return fmaxf(x[0], __shfl_xor_sync(all_lanes, x[0], 2));
}

/// S -> P = exp2(S·scale - m) in 16 rows, scale > 0; m and l. rescale is the factor that brings l and O to the new m.
template <int n>
__device__ __forceinline__ void online_softmax(Fragment<float, n>& S, float (&m)[2], float (&l)[2], float (&rescale)[2],
                                               float scale) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float m_tile = largest(S, r) * scale, m_new = m_tile > m[r] + slack ? m_tile : m[r];
    const float m_safe = m_new == -INFINITY ? 0 : m_new;
    rescale[r] = ex2_approx_ftz(m[r] - m_safe);
    m[r] = m_new;
    float sum[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& p = S[4 * j + 2 * r + e];
        p = ex2_approx_ftz(p * scale - m_safe);
        sum[e] += p;
      }
    l[r] = l[r] * rescale[r] + (sum[0] + sum[1]);
  }
}

/// P as fp16: a lane's elements of two adjacent tiles of S have the layout of wgmma's operand A.
template <int n, int parts>
__device__ __forceinline__ void round_P(Fragment<half, 4> (&P)[parts], const Fragment<float, n>& S) {
  static_assert(n == 8 * parts);
#pragma unroll
  for (int j = 0; j < parts; ++j)
#pragma unroll
    for (int k = 0; k < 4; ++k) P[j][k] = cvt_rn_x2<half>(S[8 * j + 2 * k], S[8 * j + 2 * k + 1]);
}

/// O = O·rescale, if any lane's factor differs from 1.
template <int n>
__device__ __forceinline__ void rescale_O(Fragment<float, n>& O, const float (&rescale)[2]) {
  if (!__any_sync(all_lanes, rescale[0] != 1 || rescale[1] != 1)) return;
#pragma unroll
  for (int i = 0; i < n; ++i) O[i] *= rescale[i % 4 / 2];
}

/// O / l and the LSE, m + log l. O is written to this consumer's Q buffer, swizzled, and from there stored by TMA,
/// which skips the rows that do not exist.
template <int d>
__device__ __forceinline__ void write_output(Tile<d, 64>& O_tile, const TensorMap& O_tensor, const Call& call,
                                             const Output<d>& O, const float (&m)[2], const float (&l)[2], int head,
                                             int first_query, int barrier) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int swizzle = call.has(Planted::O_not_swizzled) ? 0 : row;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = l[r];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const float inverse = sum == 0 ? 0 : 1 / sum;
    const int query = first_query + row + 8 * r;
    if (lane % 4 == 0 && query < call.Nq) call.lse[head * call.Nq + query] = (m[r] + log2f(sum)) * ln_2;
#pragma unroll
    for (int c = 0; c < d / 8; ++c) {
      half* chunk = &O_tile[c / 8][row + 8 * r][(c ^ swizzle) % 8 * 8];
      reinterpret_cast<std::uint32_t*>(chunk)[lane % 4] =
          cvt_rn_x2<half>(O[4 * c + 2 * r] * inverse, O[4 * c + 2 * r + 1] * inverse);
    }
  }
  if (!call.has(Planted::no_proxy_fence)) fence_proxy_async();
  if (!call.has(Planted::no_barrier_before_store)) barrier_sync(barrier, 128);  // the consumer's 64 rows are written
  if (threadIdx.x % 128 == 0) {
    cp_async_bulk_tensor_store(O_tensor, O_tile, 0, first_query, 0, head);
    cp_async_bulk_commit_group();
    if (!call.has(Planted::no_wait_for_store))
      cp_async_bulk_wait_group_read<0>();  // shared memory is released at the end of the block
  }
}

/// Consumer number `own`: 64 rows of Q against all keys.
template <int d, bool causal>
__device__ __forceinline__ void consume(Smem<d>& smem, const TensorMap& O_tensor, const Call& call, int own) {
  const Work<d, causal> work(call);
  const int first_query = work.first_query + 64 * own, lane = threadIdx.x % 32;
  const int diagonal = first_query + call.Nk - call.Nq;  // the last key visible to the first of the 64 rows
  Output<d> O;
  O.fill(0);
  Scores<d> S;
  Probabilities<d> P;
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {}, rescale[2];
  Position K, V;
  const auto wait = [](auto& full, const auto& at) { mbarrier_wait_parity(full[at.stage], at.parity); };
  const auto release = [&](auto& empty, auto& at) {  // each warp signals that it has read this stage
    if (lane == 0) mbarrier_arrive(empty[at.stage]);
    at.advance(call);
  };
  const auto begin_issue = [&] { barrier_sync(1 + own, 256); };
  const auto end_issue = [&] { barrier_arrive(1 + (own + 1) % consumers, 256); };
  const auto mask_and_softmax = [&](int j) {
    const int keys = call.Nk - j * Tiling<d>::Bc, visible = causal ? diagonal + 1 - j * Tiling<d>::Bc : Tiling<d>::Bc;
    const bool scaled =
        keys < Tiling<d>::Bc || visible < Tiling<d>::Bc || call.scale <= 0;  // otherwise as part of S·scale - m
    if (scaled) scale_and_mask(S, call.scale, keys, visible + int(threadIdx.x) % 128 / 32 * 16 + lane / 4);
    online_softmax(S, m, l, rescale, scaled ? 1 : call.scale);
  };

  if (own == consumers - 1) end_issue();  // consumer 0 starts
  mbarrier_wait_parity(smem.Q_full, 0);
  wait(smem.K_full, K);
  begin_issue();
  start_QK<d>(S, smem.Q[own], smem.K[K.stage], call);
  end_issue();
  wgmma_wait_group<0>(S);
  release(smem.K_empty, K);
  mask_and_softmax(work.tiles - 1);
  round_P(P, S);
  if (work.tiles > 1) wait(smem.K_full, K);
  for (int j = work.tiles - 2; j >= 0; --j) {
    begin_issue();
    start_QK<d>(S, smem.Q[own], smem.K[K.stage], call);  // S = Q K_jᵀ
    rescale_O(O, rescale);
    wait(smem.V_full, V);
    start_PV<d>(O, P, smem.V[V.stage], call);  // O += P V_{j + 1}
    end_issue();
    if (call.has(Planted::K_released_early)) release(smem.K_empty, K);
    if (!call.has(Planted::no_wait_for_S)) wgmma_wait_group<1>(S);  // S is complete, O not yet
    if (!call.has(Planted::K_released_early)) release(smem.K_empty, K);
    mask_and_softmax(j);  // overlaps with O += P V
    // Not at the top: the compiler moves no code across this wait, but it would move the exponentials below the next
    // one.
    if (j > 0) wait(smem.K_full, K);
    if (!call.has(Planted::no_wait_for_O)) wgmma_wait_group<0>(O);
    release(smem.V_empty, V);
    round_P(P, S);
  }
  rescale_O(O, rescale);
  if (call.has(Planted::wrong_parity_hangs)) V.parity ^= 1;
  wait(smem.V_full, V);
  start_PV<d>(O, P, smem.V[V.stage], call);
  wgmma_wait_group<0>(O);
  write_output<d>(smem.Q[own], O_tensor, call, O, m, l, work.head, first_query, 1 + consumers + own);
}

/// One block per tile of queries and head: the producer's warps, and the consumers.
template <int d, bool causal>
__global__ void __launch_bounds__(threads, 1)
    forward(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
            const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap O,
            const __grid_constant__ Call call) {
  auto& smem = call.has(Planted::tiles_at_512)
                   ? *reinterpret_cast<Smem<d>*>(dynamic_shared_array<unsigned char>() + 512)
                   : dynamic_shared<Smem<d>>();
  if (threadIdx.x == 0) {
    mbarrier_init(smem.Q_full, 1);
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(smem.K_full[i], 1), mbarrier_init(smem.V_full[i], 1);  // the producer
      mbarrier_init(smem.K_empty[i], 4 * consumers);                       // the consumers' warps
      mbarrier_init(smem.V_empty[i], 4 * consumers);
    }
    if (!call.has(Planted::no_init_fence)) fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are initialised

  const int group =
      __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // tells the compiler that the value is uniform in the warp
  if (group == 0) {
    setmaxnreg_dec<producer_registers>();
    if (threadIdx.x == 0) produce<d, causal>(smem, Q, K, V, call);
  } else {
    setmaxnreg_inc<consumer_registers>();
    consume<d, causal>(smem, O, call, group - 1);
  }
}

/// A tensor (heads, N, d) for TMA: as (heads, d / 64, N, 64), with boxes of (1, d / 64, rows, 64), the layout of a
/// Tile. Rows beyond N are zeros, not rows of the next head.
template <int d>
TensorMap map_of(const half* tensor, int heads, int N, int rows) {
  return tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads)},
                    {2 * d, 2 * 64, std::uint64_t(N) * d * 2}, {64, std::uint32_t(rows), d / 64, 1},
                    Swizzle::bytes_128);
}

template <int d, bool causal>
void start(const half* Q, const half* K, const half* V, half* O, float* lse, int heads, int Nq, int Nk, float scale,
           Planted planted) {
  const int q_tiles = (Nq + Br - 1) / Br;
  const Call call{lse, Nq, Nk, heads, q_tiles, scale * log2_e, planted};
  const std::size_t gap = planted == Planted::tiles_at_512 ? 512 : 0;
  launch(forward<d, causal>, dim3(unsigned(q_tiles * heads)), dim3(threads), sizeof(Smem<d>) + gap,
         map_of<d>(Q, heads, Nq, 64), map_of<d>(K, heads, Nk, Tiling<d>::Bc), map_of<d>(V, heads, Nk, Tiling<d>::Bc),
         map_of<d>(O, heads, Nq, 64), call);
}

/// Three heads, 500 queries and 700 keys, for the counters.
template <int d, bool causal>
void run_attention() {
  constexpr int heads = 3, Nq = 500, Nk = 700;
  auto Q = random_halves("Q", heads * Nq * d, 1), K = random_halves("K", heads * Nk * d, 2),
       V = random_halves("V", heads * Nk * d, 3);
  DeviceArray<half> O("O", heads * Nq * d, Role::output);
  auto lse = output("lse", heads * Nq);
  start<d, causal>(Q.data(), K.data(), V.data(), O.data(), lse.data(), heads, Nq, Nk, 0.125f, Planted::nothing);
  std::vector<half> host(O.size());
  O.download(std::span<half>(host));
  for (const half& o : host) {
    if (!(std::abs(__half2float(o)) <= 1)) throw std::logic_error("attention's output is no mean of values");
  }
}

constexpr Case cases[] = {
    {"warp-specialised attention, d = 64", run_attention<64, false>},
    {"warp-specialised attention, d = 64, causal", run_attention<64, true>},
    {"warp-specialised attention, d = 128", run_attention<128, false>},
    {"warp-specialised attention, d = 128, causal", run_attention<128, true>},
};

}  // namespace

std::span<const Case> hopper_attention() {
  return cases;
}

const char* name(Planted planted) {
  constexpr const char* names[kPlanted] = {
      "nothing",           "no_proxy_fence", "no_wgmma_fence",     "no_wait_for_S",           "no_wait_for_O",
      "K_released_early",  "tiles_at_512",   "O_not_swizzled",     "no_barrier_before_store", "no_wait_for_store",
      "section_forgotten", "no_init_fence",  "wrong_parity_hangs", "one_stage_hangs"};
  return names[int(planted)];
}

HostResult warp_specialised(const HostCall& call, Planted planted) {
  const workbook::Shape& s = call.shape;
  const auto tensor = [](const char* name, const std::vector<std::uint16_t>& codes) {
    return DeviceArray<half>(name, std::span<const std::uint16_t>(codes));
  };
  auto Q = tensor("Q", call.Q), K = tensor("K", call.K), V = tensor("V", call.V);
  DeviceArray<half> O("O", std::size_t(s.q_size()), Role::output);
  DeviceArray<float> lse("lse", std::size_t(s.lse_size()), Role::output);
  const auto run = s.d == 64 ? (call.causal ? start<64, true> : start<64, false>)
                             : (call.causal ? start<128, true> : start<128, false>);
  run(Q.data(), K.data(), V.data(), O.data(), lse.data(), int(s.B * s.H), int(s.Nq), int(s.Nk), call.scale, planted);
  HostResult result;
  result.O.resize(O.size());
  result.lse.resize(lse.size());
  O.download(std::span<std::uint16_t>(result.O));
  lse.download(std::span<float>(result.lse));
  return result;
}

}  // namespace zoo
