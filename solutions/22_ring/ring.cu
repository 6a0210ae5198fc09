// Chapter 22, the ring: the steps of a rank, and the distribution of the tensors to the ranks.
//
// Source: Liu, Zaharia and Abbeel 2023 (Ring Attention), section 3.
#include "ring.hpp"

#include "common/cuda/dispatch.hpp"
#include "rank.hpp"
#include "step.hpp"

namespace ch22 {
namespace {

using Element = half;
using workbook::cuda::OnStream;

constexpr float log2_e = 1.4426950408889634f;

/// The parts of the tensors that a rank holds. A K/V buffer has K of all heads, then V, so that one message has both.
struct Held {
  Held(const workbook::Shape& shape, const Shards& shards, int rank)
      : Q("Q of a rank", std::size_t(shape.B * shape.H * shards.queries(rank) * shape.d), Role::scratch),
        O("O of a rank", Q.size(), Role::scratch),
        lse("lse of a rank", Q.size() / std::size_t(shape.d), Role::scratch),
        state_O("state O", Q.size(), Role::scratch),
        m("state m", lse.size(), Role::scratch),
        l("state l", lse.size(), Role::scratch) {
    for (DeviceArray<Element>& buffer : KV)
      buffer = {"K and V of a rank", std::size_t(2 * shape.B * shape.Hkv * 2 * shards.chunk_length() * shape.d),
                Role::scratch};
  }
  DeviceArray<Element> KV[2], Q, O;
  DeviceArray<float> lse, state_O, m, l;
};

template <int d, int Br, int Bc, int warps>
void start_step(const ForwardCall<Element>& call, const RankTensors<Element>& tensors, const Shards& shards, int rank,
                const Step& step, bool starts) {
  const std::int64_t queries = shards.queries(rank) - step.first_query, q_tiles = (queries + Br - 1) / Br;
  if (q_tiles == 0) return;
  const dim3 grid = workbook::cuda::grid_of(q_tiles * call.shape.B * call.shape.H, "B·H·⌈Nq/Br⌉");
  const Sizes sizes{int(shards.queries(rank)),
                    int(step.first_query),
                    int(step.finished),
                    int(shards.keys(step.source)),
                    int(step.keys),
                    int(call.shape.H / call.shape.Hkv),
                    step.causal,
                    starts};
  workbook::cuda::launch(attention_step<Element, d, Br, Bc, warps>, grid, dim3(32 * warps),
                         sizeof(Shared<Element, d, Bc, warps>), tensors, sizes, int(q_tiles), call.scale * log2_e);
}

/// All steps of a rank. held.KV[0] has the rank's own K and V.
void ring(const ForwardCall<Element>& call, const Tiles& tiles, const Shards& shards, int rank, ncclComm_t communicator,
          Held& held, Streams& streams) {
  const int ranks = shards.ranks, next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const std::int64_t row = call.shape.B * call.shape.Hkv * call.shape.d;  // elements of a key of all heads
  [[maybe_unused]] const auto shard = [&](int of) { return std::size_t(2 * row * shards.keys(of)); };
  [[maybe_unused]] const auto attend = [&](const Step& step, const Element* KV, bool starts) {
    const OnStream on(streams.compute);
    const RankTensors<Element> tensors{held.Q.data(),
                                       KV,
                                       KV + row * shards.keys(step.source),
                                       held.O.data(),
                                       held.lse.data(),
                                       {held.state_O.data(), held.m.data(), held.l.data()}};
    workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) {
      start_step<d, t.Br, t.Bc, t.warps>(call, tensors, shards, rank, step, starts);
    });
  };
  // TODO(22.3) For each step: send the shard of this step to the next rank, and receive the next one into the other
  // buffer, unless the step is the last; attend to the shard of this step. Events order the two streams: the receive
  // comes after the step that has used its buffer, and a step after the arrival of its shard (about 16 lines).
  // BEGIN 22.3
  for (int number = 0; number < ranks; ++number) {
    const Step step = step_of(shards, call.causal(), rank, number);
    const int now = number % 2, other = 1 - now;
    if (number + 1 < ranks) {
      cudaStreamWaitEvent(streams.copies, streams.used[other]);
      ncclGroupStart();
      ncclSend(held.KV[now].data(), shard(step.source), type_of<Element>, next, communicator, streams.copies);
      ncclRecv(held.KV[other].data(), shard((step.source + ranks - 1) % ranks), type_of<Element>, previous,
               communicator, streams.copies);
      ncclGroupEnd();
      cudaEventRecord(streams.arrived[other], streams.copies);
    }
    cudaStreamWaitEvent(streams.compute, streams.arrived[now]);
    attend(step, held.KV[now].data(), number == 0);
    cudaEventRecord(streams.used[now], streams.compute);
  }
  // END 22.3
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void ring_attention(const ForwardCall<E>& call, const Tiles& tiles, int ranks) {
  const auto [B, H, Hkv, Nq, Nk, d] = call.shape;
  const Shards shards{Nq, Nk, ranks};
  const std::size_t row_bytes = std::size_t(d) * sizeof(E);
  workbook::nccl::run_ranks(ranks, [&, B = B, H = H, Hkv = Hkv, Nq = Nq, Nk = Nk](int rank, ncclComm_t communicator) {
    const auto queries = [&](int chunk) { return shards.queries_of_chunk(chunk); };
    const auto keys = [&](int chunk) { return shards.keys_of_chunk(chunk); };
    Held held(call.shape, shards, rank);
    Streams streams;
    const auto copy = [&](const void* whole, const void* part, bool to_rank, std::int64_t heads, std::int64_t rows,
                          std::size_t bytes, auto part_of_chunk) {
      copy_chunks(whole, part, to_rank, heads, rows, bytes, rank, shards, part_of_chunk, streams.compute);
    };
    copy(call.Q, held.Q.data(), true, B * H, Nq, row_bytes, queries);
    copy(call.K, held.KV[0].data(), true, B * Hkv, Nk, row_bytes, keys);
    copy(call.V, held.KV[0].data() + B * Hkv * shards.keys(rank) * d, true, B * Hkv, Nk, row_bytes, keys);
    cudaStreamSynchronize(streams.compute);
    ring(call, tiles, shards, rank, communicator, held, streams);
    copy(call.O, held.O.data(), false, B * H, Nq, row_bytes, queries);
    copy(call.lse, held.lse.data(), false, B * H, Nq, sizeof(float), queries);
    cudaStreamSynchronize(streams.compute);
    cudaStreamSynchronize(streams.copies);
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<E, d, t.Bc, t.warps>); });
}
template void ring_attention(const ForwardCall<Element>&, const Tiles&, int);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch22
