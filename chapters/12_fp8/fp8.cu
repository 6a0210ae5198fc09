// Chapter 12, FP8: a consumer, its loop, the kernel that multiplies, and the launches.
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

/// Consumer number `number` of a block: 64 rows of Q from first_query on, against the block's tiles of keys.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  int number, head, first_query, tiles;
  typename T::Scores S;
  typename T::Probabilities P;
  typename T::Output O, part;  // part: P V of one tile
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, rescale[2];
  float S_scale, V_scale = 1, V_next;  // of S that was started last; of O; of V's tile that goes with that S
  float Q_scale, K_ahead, V_ahead;     // of this consumer's queries; of the tile of K, and of V, that comes next
  Position<T::stages> at_K, at_V;

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& numbers, const Work<T>& work, int own)
      : smem(shared),
        call(numbers),
        number(own),
        head(work.head),
        first_query(work.first_query + 64 * own),
        tiles(work.tiles),
        Q_scale(scale_of_queries(numbers, head, first_query)) {
    O.fill(0);
    read_scales(tiles - 1);
  }

  /// Waits until the next tile of K, or of V, is there.
  __device__ __forceinline__ void wait_K() { mbarrier_wait_parity(smem.K_full[at_K.stage], at_K.parity); }
  __device__ __forceinline__ void wait_V() { mbarrier_wait_parity(smem.V_full[at_V.stage], at_V.parity); }
  /// This warp will not read that tile any more: one lane says so, for all that its warp has done.
  __device__ __forceinline__ void leave_K() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.K_empty[at_K.stage]);
    at_K.advance();
  }
  __device__ __forceinline__ void leave_V() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.V_empty[at_V.stage]);
    at_V.advance();
  }
  /// The scales of tile j. They are read a tile before they are needed: who waits for them in its turn holds up all.
  __device__ __forceinline__ void read_scales(int j) {
    K_ahead = scale_of_keys(call, head, j);
    V_ahead = call.V_scales[std::int64_t(head) * call.key_blocks + j];
  }
  /// Tile j's scores.
  __device__ __forceinline__ void start_S(int j) {
    start_QK<T>(S, smem.Q[number], smem.K[at_K.stage]);
    S_scale = Q_scale * K_ahead;
    V_next = V_ahead;
    read_scales(max(j - 1, 0));
  }
  __device__ __forceinline__ void start_part() { start_PV<T>(part, P, smem.V[at_V.stage]); }
  /// S of tile j becomes P·2^8 in fp32; m and l; rescale, with the change of units to V's tile j. It is masked where
  /// some row does not see all keys. A tile without a mask is scaled as part of S·scale - m, which wants a scale > 0:
  /// other scales take the way of the mask.
  __device__ __forceinline__ void softmax(int j) {
    const int keys = call.Nk - j * T::Bc,
              visible = call.causal ? first_query + 1 + call.Nk - call.Nq - j * T::Bc : keys;
    const bool masked = min(keys, visible) < T::Bc, scaled = masked || S_scale <= 0;
    if (masked) workbook::cuda::note("masked tile", j);
    if (scaled) scale_and_mask(S, S_scale, keys, visible);
    online_softmax<T::exp2_by_fma>(S, m, l, rescale, scaled ? 1 : S_scale);
    change_units(rescale, V_scale, V_next);
  }
};

/// Ping-pong: a consumer issues its products when it is its turn, and passes the turn on, as in chapter 11.
template <class T>
__device__ __forceinline__ void wait_turn(int number) {
  barrier_sync(1 + number, 256);
}
template <class T>
__device__ __forceinline__ void pass_turn(int number) {
  barrier_arrive(1 + (number + 1) % T::consumers, 256);
}

/// Algorithm 2: S of the next tile is issued before P V of this one, and the softmax runs beside that.
template <class T>
__device__ __forceinline__ void consume(Consumer<T>& own) {
  if (own.number == T::consumers - 1) pass_turn<T>(own.number);  // nobody else opens the turns
  // TODO(12.7) Chapter 11's loop (11.7), in which the wait for the next K always stands before the wait for P V. What
  // is new: no product adds to O. The part of tile j + 1 is added when its product is complete, with the factor that
  // softmax(j + 1) has left in own.rescale; and by then softmax(j) has written the next one there (about 28 lines).
  // BEGIN 12.7
  WORKBOOK_TODO(12.7);
  // END 12.7
}

/// One block per tile of queries and head: the producer's four warps, of which one thread works, and the consumers.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    attention_kernel(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
                     const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap O,
                     const __grid_constant__ Call call) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  if (threadIdx.x == 0) make_barriers<T>(smem);
  __syncthreads();  // the barriers are there
  const Work<T> work(call);
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // the compiler sees: the same for the warp
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    if (threadIdx.x == 0) produce<T>(smem, Q, K, V, work);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    const int number = group - 1;
    Consumer<T> own(smem, call, work, number);
    mbarrier_wait_parity(smem.Q_full, 0);
    consume(own);
    write_output<T>(smem.O[own.number], O, call, own.O, own.m, own.l, own.V_scale, own.head, own.first_query, number);
  }
}

__global__ void exponentials_kernel(const float* __restrict__ x, float* __restrict__ y, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) y[i] = exp2_by_fma(x[i]);
}

/// Codes (heads, rows, columns) for TMA, in boxes of so many rows and columns, whose rows are swizzled.
/// Beyond the last row there are zeros, not the next head.
template <int box_rows, int box_columns>
TensorMap map_of(const E4m3* codes, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  return tensor_map(codes, {std::uint64_t(columns), std::uint64_t(rows), std::uint64_t(heads)},
                    {std::uint64_t(columns), std::uint64_t(rows * columns)}, {box_columns, box_rows, 1},
                    swizzle_of<box_columns>);
}
/// O, as in chapter 11.
template <int d>
TensorMap map_of_O(const half* tensor, std::int64_t heads, std::int64_t N) {
  return tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads)},
                    {2 * d, 2 * 64, std::uint64_t(N) * d * 2}, {64, 64, d / 64, 1}, Swizzle::bytes_128);
}

template <class T>
void start(const ForwardCall<half>& call, const Rounded& Q, const Rounded& K, const Rounded& V, bool rotated) {
  constexpr int d = T::d;
  const std::int64_t heads = call.shape.B * call.shape.H, Nq = call.shape.Nq, Nk = call.shape.Nk;
  const std::int64_t q_tiles = (Nq + T::Br - 1) / T::Br, query_blocks = blocks_of(Nq), key_blocks = blocks_of(Nk);
  const dim3 grid = workbook::cuda::grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉");
  // Rotated scores are d times as large. The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  const float scale = call.scale * log2_e / (rotated ? d : 1);
  const Call numbers{call.lse,   Q.scales,         K.scales,          V.scales,        int(Nq), int(Nk),
                     int(heads), int(q_tiles), int(query_blocks), int(key_blocks), scale,   call.causal()};
  workbook::cuda::launch(attention_kernel<T>, grid, dim3(T::threads), sizeof(typename T::Shared),
                         map_of<64, d>(Q.codes, heads, Nq, d), map_of<T::Bc, d>(K.codes, heads, Nk, d),
                         map_of<d, T::Bc>(V.codes, heads, d, key_blocks * block_rows), map_of_O<d>(call.O, heads, Nq),
                         numbers);
}

/// Calls work with the Kernel for these sizes, and gives what it gives.
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
