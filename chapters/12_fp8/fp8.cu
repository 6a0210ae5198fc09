// Chapter 12, FP8: a consumer and its main loop; the kernel that multiplies; and the launches.
//
// Source: Shah et al. 2024 (FlashAttention-3), Algorithm 2 and section 3.3.
// Test it: ./workbook test 12
#include "fp8.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch12 {
namespace {

using workbook::cuda::setmaxnreg_dec, workbook::cuda::setmaxnreg_inc, workbook::cuda::tensor_map;

/// Consumer warpgroup number `index` of a thread block: 64 rows of Q from first_query on, against the first kv_tiles
/// K/V tiles.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  int index, head, first_query, kv_tiles;
  typename T::Scores S;
  typename T::Probabilities P;
  typename T::Output O, part;  // part: P V of one tile, in fp32
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, rescale[2];
  float S_scale, V_scale = 1, next_V_scale;               // of the last S; of O; of the V tile of that S
  float Q_scale, prefetched_K_scale, prefetched_V_scale;  // of the queries; of the next K/V tile
  Position<T::stages> K_position, V_position;

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& arguments, const WorkTile<T>& work,
                                      int consumer_index)
      : smem(shared),
        call(arguments),
        index(consumer_index),
        head(work.head),
        first_query(work.first_query + 64 * consumer_index),
        kv_tiles(work.kv_tiles),
        Q_scale(load_Q_scale(arguments, head, first_query)) {
    O.fill(0);
    prefetch_scales(kv_tiles - 1);
  }

  /// Waits until the next tile of K, or of V, has been loaded.
  __device__ __forceinline__ void wait_K() { mbarrier_wait_parity(smem.K_full[K_position.stage], K_position.parity); }
  __device__ __forceinline__ void wait_V() { mbarrier_wait_parity(smem.V_full[V_position.stage], V_position.parity); }
  /// Releases the stage: this warp has finished reading the tile. One lane arrives for its warp.
  __device__ __forceinline__ void release_K() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.K_empty[K_position.stage]);
    K_position.advance();
  }
  __device__ __forceinline__ void release_V() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.V_empty[V_position.stage]);
    V_position.advance();
  }
  /// Loads the scales of tile j, one tile ahead. In the issue window the latency would delay the other consumers too.
  __device__ __forceinline__ void prefetch_scales(int j) {
    prefetched_K_scale = load_K_scale(call, head, j);
    prefetched_V_scale = call.V_scales[std::int64_t(head) * call.key_blocks + j];
  }
  /// Issues S of tile j, and selects its scales.
  __device__ __forceinline__ void start_S(int j) {
    start_QK<T>(S, smem.Q[index], smem.K[K_position.stage]);
    S_scale = Q_scale * prefetched_K_scale;
    next_V_scale = prefetched_V_scale;
    prefetch_scales(max(j - 1, 0));
  }
  __device__ __forceinline__ void start_part() { start_PV<T>(part, P, smem.V[V_position.stage]); }
  /// Replaces S of tile j by P·2^8 in fp32, and updates m, l and rescale, which includes the change to the units of V
  /// tile j. Masks S if some row does not see all keys of the tile. Without a mask, online_softmax scales S as part of
  /// S·scale - m, which needs scale > 0. For other scales, scale_and_mask scales S first.
  __device__ __forceinline__ void softmax(int j) {
    const int keys = call.Nk - j * T::Bc,
              visible = call.causal ? first_query + 1 + call.Nk - call.Nq - j * T::Bc : keys;
    const bool masked = min(keys, visible) < T::Bc, scaled = masked || S_scale <= 0;
    if (masked) workbook::cuda::note("masked tile", j);
    if (scaled) scale_and_mask(S, S_scale, keys, visible);
    online_softmax<T::exp2_by_fma>(S, m, l, rescale, scaled ? 1 : S_scale);
    change_units(rescale, V_scale, next_V_scale);
  }
};

/// Ping-pong schedule, as in chapter 11: a consumer issues its matmuls in an issue window, from ping_pong_wait to
/// ping_pong_pass. ping_pong_start opens the first window of consumer 0.
template <class T>
__device__ __forceinline__ void ping_pong_wait(int consumer) {
  barrier_sync(1 + consumer, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_pass(int consumer) {
  barrier_arrive(1 + (consumer + 1) % T::consumers, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_start(int consumer) {
  if (consumer == T::consumers - 1) ping_pong_pass<T>(consumer);
}

/// Algorithm 2 (intra-warpgroup pipelining): S of the next tile is issued before P V of the current tile. The softmax
/// of the next tile overlaps with P V.
template <class T>
__device__ __forceinline__ void consume(Consumer<T>& consumer) {
  // TODO(12.7) The loop of 11.7, which always waits for the next K before it waits for P V. New: no matmul adds to O.
  // The part of tile j + 1 is added when it is complete, with the factor that softmax(j + 1) has left in
  // consumer.rescale. By then softmax(j) has overwritten consumer.rescale (about 28 lines).
  // BEGIN 12.7
  WORKBOOK_TODO(12.7);
  // END 12.7
}

/// A thread block has a producer warpgroup, of which one thread is active, and the consumer warpgroups. The grid has
/// one block per Q tile of a head.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    attention_kernel(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
                     const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap O,
                     const __grid_constant__ Call call) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  if (threadIdx.x == 0) make_barriers<T>(smem);
  __syncthreads();  // the barriers are initialised
  const WorkTile<T> work(call);
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // warp-uniform for the compiler
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    if (threadIdx.x == 0) produce<T>(smem, Q, K, V, work);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> consumer(smem, call, work, group - 1);
    mbarrier_wait_parity(smem.Q_full, 0);
    ping_pong_start<T>(consumer.index);
    consume(consumer);
    write_output<T>(smem.O[consumer.index], O, call, consumer.O, consumer.m, consumer.l, consumer.V_scale,
                    consumer.head, consumer.first_query, consumer.index);
  }
}

__global__ void exponentials_kernel(const float* __restrict__ x, float* __restrict__ y, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) y[i] = exp2_by_fma(x[i]);
}

/// The tensor map of codes (heads, rows, columns), with swizzled boxes (1, box_rows, box_columns). Rows past the last
/// one are filled with zeros, not with the next head.
template <int box_rows, int box_columns>
TensorMap make_tensor_map(const E4m3* codes, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  return tensor_map(codes, {std::uint64_t(columns), std::uint64_t(rows), std::uint64_t(heads)},
                    {std::uint64_t(columns), std::uint64_t(rows * columns)}, {box_columns, box_rows, 1},
                    swizzle_for<box_columns>);
}
/// The tensor map of O, as in chapter 11.
template <int d>
TensorMap make_O_tensor_map(const half* tensor, std::int64_t heads, std::int64_t N) {
  return tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads)},
                    {2 * d, 2 * 64, std::uint64_t(N) * d * 2}, {64, 64, d / 64, 1}, Swizzle::bytes_128);
}

template <class T>
void start(const ForwardCall<half>& call, const Rounded& Q, const Rounded& K, const Rounded& V, bool rotated) {
  constexpr int d = T::d;
  const std::int64_t heads = call.shape.B * call.shape.H, Nq = call.shape.Nq, Nk = call.shape.Nk;
  const std::int64_t q_tiles = (Nq + T::Br - 1) / T::Br, query_blocks = block_count(Nq), key_blocks = block_count(Nk);
  const dim3 grid = workbook::cuda::grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉");
  // Rotated scores are d times as large. The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  const float scale = call.scale * log2_e / (rotated ? d : 1);
  const Call arguments{call.lse,   Q.scales,     K.scales,          V.scales,        int(Nq), int(Nk),
                       int(heads), int(q_tiles), int(query_blocks), int(key_blocks), scale,   call.causal()};
  workbook::cuda::launch(attention_kernel<T>, grid, dim3(T::threads), sizeof(typename T::Shared),
                         make_tensor_map<64, d>(Q.codes, heads, Nq, d),
                         make_tensor_map<T::Bc, d>(K.codes, heads, Nk, d),
                         make_tensor_map<d, T::Bc>(V.codes, heads, d, key_blocks * block_rows),
                         make_O_tensor_map<d>(call.O, heads, Nq), arguments);
}

/// Calls work with the Kernel for these sizes, and returns its result.
template <int exp2_by_fma = 0, class Do>
auto with_kernel(std::int64_t head_dim, const Tiles& tiles, Do work) {
  return workbook::cuda::with_sizes<built>(head_dim, tiles, [&](auto d, auto t) {
    if constexpr (is_built(d, {t.Br, t.Bc, t.warps}, exp2_by_fma)) return work(Kernel<d, t.Br / 64, exp2_by_fma>());
    return decltype(work(Kernel<64, 2, exp2_by_fma>()))();
  });
}

}  // namespace

void attention(const ForwardCall<half>& call, const Tiles& tiles, const Rounded& Q, const Rounded& K, const Rounded& V,
               const Options& options) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  if (!is_built(d, tiles, options.exp2_by_fma))
    throw std::invalid_argument("d = " + std::to_string(d) + " with these tiles and options is not built");
  round_rows(call.Q, Q, B * H, Nq, d, options.rotated);
  round_rows(call.K, K, B * H, Nk, d, options.rotated);
  round_and_transpose(call.V, V, B * H, Nk, d);
  const auto run = [&](auto kernel) { start<decltype(kernel)>(call, Q, K, V, options.rotated); };
  if (options.exp2_by_fma == 16) return with_kernel<16>(d, tiles, run);
  if (options.exp2_by_fma == 4) return with_kernel<4>(d, tiles, run);
  with_kernel(d, tiles, run);
}
void exponentials(const float* x, float* y, int count) {
  workbook::cuda::launch(exponentials_kernel, dim3(1), dim3(128), 0, x, y, count);
}
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return with_kernel(d, tiles, [](auto kernel) { return sizeof(typename decltype(kernel)::Shared); });
}

}  // namespace ch12
