// Chapter 22, the ring: the steps of a rank's backward pass.
//
// Source: Liu, Zaharia and Abbeel 2023 (Ring Attention), section 3.
#include <stdexcept>

#include "common/cuda/dispatch.hpp"
#include "gradient_step.hpp"
#include "rank.hpp"
#include "ring.hpp"

namespace ch22 {
namespace {

using Element = half;
using workbook::cuda::grid_of, workbook::cuda::launch, workbook::cuda::OnStream;

/// The parts of the tensors that a rank holds, and the sums. A buffer has K or dK of all heads, then V or dV.
struct HeldGradients {
  HeldGradients(const workbook::Shape& shape, const Shards& shards, int rank)
      : heads(shape.B * shape.H),
        queries(int(shards.queries(rank))),
        padded_rows(heads * ch09::padded(queries)),
        Q("Q of a rank", std::size_t(heads * queries * shape.d), Role::scratch),
        O("O of a rank", Q.size(), Role::scratch),
        dO("dO of a rank", Q.size(), Role::scratch),
        dQ("dQ of a rank", Q.size(), Role::scratch),
        lse("lse of a rank", std::size_t(heads * queries), Role::scratch),
        dQ_sum("dQ_sum", std::size_t(padded_rows * shape.d), Role::scratch),
        row_stats("row_stats", std::size_t(padded_rows), Role::scratch),
        rounded("dK and dV of a rank", std::size_t(2 * shape.B * shape.Hkv * shards.keys(rank) * shape.d),
                Role::scratch) {
    const auto most = std::size_t(2 * shape.B * shape.Hkv * 2 * shards.chunk_length() * shape.d);
    for (int b : {0, 1}) {
      KV[b] = {"K and V of a rank", most, Role::scratch};
      sums[b] = {"sums of dK and dV", most, Role::scratch};
    }
  }
  std::int64_t heads;
  int queries;
  std::int64_t padded_rows;
  DeviceArray<Element> Q, O, dO, dQ, KV[2];
  DeviceArray<float> lse, dQ_sum, sums[2];
  DeviceArray<float2> row_stats;
  DeviceArray<Element> rounded;
};

/// All steps of a rank with kernels of the sizes T. held.KV[0] has the rank's own K and V. Returns the buffer with the
/// complete sums of its own dK and dV.
template <class T>
int ring(const BackwardCall<Element>& call, const Shards& shards, int rank, ncclComm_t communicator,
         HeldGradients& held, Streams& streams) {
  const int ranks = shards.ranks, next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const std::int64_t kv_heads = call.shape.B * call.shape.Hkv, row = kv_heads * T::d;
  [[maybe_unused]] const auto shard = [&](int of) { return std::size_t(2 * row * shards.keys((of + ranks) % ranks)); };
  [[maybe_unused]] const auto attend = [&](const Step& step, const Element* KV, float* sums, bool starts) {
    const OnStream on(streams.compute);
    const std::int64_t keys = shards.keys(step.source), kv_tiles = (step.keys + T::Bc - 1) / T::Bc;
    if (kv_tiles == 0) return;
    const GradientTensors<Element> tensors{
        held.Q.data(),   held.dO.data(), held.row_stats.data(), held.dQ_sum.data(), KV,
        KV + row * keys, sums,           sums + row * keys};
    const GradientSizes sizes{
        held.queries, int(step.first_query), int(keys), int(step.keys), int(call.shape.H / call.shape.Hkv), step.causal,
        starts};
    launch(gradient_step<Element, T>, grid_of(kv_tiles * kv_heads, "B·Hkv·⌈Nk/Bc⌉"), dim3(T::threads),
           sizeof(ch09::Shared<T>), tensors, sizes, int(kv_tiles), call.scale);
  };
  // TODO(22.5) K and V travel as in the forward pass. After a step, the sums of its shard go to the next rank, where
  // they must have arrived before that rank's next step; after the last step they are home (about 21 lines).
  // BEGIN 22.5
  WORKBOOK_TODO(22.5);
  // END 22.5
}

template <class T>
void run_rank(const BackwardCall<Element>& call, const Shards& shards, int rank, ncclComm_t communicator) {
  const auto [B, H, Hkv, N, Nk, d] = call.shape;
  HeldGradients held(call.shape, shards, rank);
  Streams streams;
  const auto copy = [&](const void* whole, const void* part, bool to_rank, std::int64_t heads, std::size_t row_bytes) {
    copy_chunks(
        whole, part, to_rank, heads, Nk, row_bytes, rank, shards,
        [&](int chunk) { return shards.keys_of_chunk(chunk); }, streams.compute);
  };
  const std::int64_t keys = shards.keys(rank), V_at = B * Hkv * keys * d;
  const std::size_t row = std::size_t(d) * sizeof(Element);
  copy(call.Q, held.Q.data(), true, B * H, row), copy(call.O, held.O.data(), true, B * H, row);
  copy(call.dO, held.dO.data(), true, B * H, row), copy(call.lse, held.lse.data(), true, B * H, sizeof(float));
  copy(call.K, held.KV[0].data(), true, B * Hkv, row), copy(call.V, held.KV[0].data() + V_at, true, B * Hkv, row);
  cudaStreamSynchronize(streams.compute);
  const std::int64_t threads = held.padded_rows * (T::d / 8), parts = held.padded_rows / 16 * (T::d / 8);
  const auto on_rank = [&](auto... arguments) {
    const OnStream on(streams.compute);
    launch(arguments...);
  };
  if (held.queries > 0)
    on_rank(ch09::prepare_rows<T::d>, grid_of((threads + 127) / 128, "B·H·Nq·d"), dim3(128), 0, held.O.data(),
            held.dO.data(), held.lse.data(), nullptr, held.row_stats.data(), held.dQ_sum.data(), nullptr,
            held.padded_rows, held.queries);
  const int home = ring<T>(call, shards, rank, communicator, held, streams);
  cudaStreamWaitEvent(streams.compute, streams.arrived[home]);
  if (held.queries > 0) {
    on_rank(ch09::write_dQ<T::d>, grid_of((parts + 7) / 8, "B·H·Nq·d"), dim3(256), 0, held.dQ_sum.data(),
            held.dQ.data(), parts, held.queries, call.scale);
    on_rank(round_sums<Element>, grid_of((V_at + 255) / 256, "B·Hkv·Nk·d"), dim3(256), 0,
            reinterpret_cast<const float2*>(held.sums[home].data()),
            reinterpret_cast<std::uint32_t*>(held.rounded.data()), V_at);
  }
  copy(call.dQ, held.dQ.data(), false, B * H, row);
  copy(call.dK, held.rounded.data(), false, B * Hkv, row),
      copy(call.dV, held.rounded.data() + V_at, false, B * Hkv, row);
  cudaStreamSynchronize(streams.compute);
  cudaStreamSynchronize(streams.copies);
}

/// Calls work with the sizes of the kernels for d and these tiles; false if there are none.
template <class Work>
bool with_plan(std::int64_t d, const GradientTiles& tiles, Work work) {
  if (d == 64 && tiles == built_backward[0]) return work(ch09::Plan<64, 128, 64, 4>()), true;
  if (d == 128 && tiles == built_backward[1]) return work(ch09::Plan<128, 128, 64, 8>()), true;
  return false;
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void ring_backward(const BackwardCall<E>& call, const GradientTiles& tiles, int ranks) {
  const auto [B, H, Hkv, Nq, Nk, d] = call.shape;
  if (Nq != Nk)
    throw std::invalid_argument("Nq = " + std::to_string(Nq) + " and Nk = " + std::to_string(Nk) +
                                ": allowed in the ring's backward pass: Nq = Nk");
  const Shards shards{Nq, Nk, ranks};
  const bool built = with_plan(d, tiles, [&](auto plan) {
    workbook::nccl::run_ranks(
        ranks, [&](int rank, ncclComm_t communicator) { run_rank<decltype(plan)>(call, shards, rank, communicator); });
  });
  if (!built) throw std::invalid_argument("d = " + std::to_string(d) + " is not built with these tiles");
}
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles) {
  std::size_t bytes = 0;
  with_plan(d, tiles, [&](auto plan) { bytes = sizeof(ch09::Shared<decltype(plan)>); });
  return bytes;
}
template void ring_backward(const BackwardCall<Element>&, const GradientTiles&, int);

}  // namespace ch22
