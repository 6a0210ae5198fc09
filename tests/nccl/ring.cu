#include "tests/nccl/ring.hpp"

#include <cstdint>

#include "common/cuda/kernel.hpp"
#include "common/cuda/memory.hpp"
#include "common/nccl/ranks.hpp"
#include "common/simt/simulator.hpp"

namespace rings {
namespace {

using workbook::cuda::DeviceArray;
using workbook::cuda::launch;
using workbook::cuda::OnStream;
using workbook::cuda::Role;

__global__ void add(float* sum, const float* shard, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) sum[i] += shard[i];
}
__global__ void change(float* shard, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) shard[i] = -1;
}

struct Streams {
  cudaStream_t compute, copies;
  cudaEvent_t arrived[2], used[2];
  Streams() {
    cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
    for (int b = 0; b < 2; ++b) {
      cudaEventCreateWithFlags(&arrived[b], cudaEventDisableTiming);
      cudaEventCreateWithFlags(&used[b], cudaEventDisableTiming);
    }
  }
  ~Streams() {
    cudaStreamDestroy(compute), cudaStreamDestroy(copies);
    for (int b = 0; b < 2; ++b) cudaEventDestroy(arrived[b]), cudaEventDestroy(used[b]);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
};

std::vector<float> shard_of(int rank, int n) {
  std::vector<float> shard(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) shard[std::size_t(i)] = float(1000 * rank + i);
  return shard;
}
std::vector<float> zeros(int n) {
  return std::vector<float>(static_cast<std::size_t>(n));
}

float* memory_of_rank_0 = nullptr;

void ring(int rank, int ranks, int n, Bug bug, ncclComm_t communicator, std::vector<float>& sums) {
  const std::vector<float> mine = shard_of(rank, n);
  DeviceArray<float> shards[] = {{"shard 0", std::size_t(n), Role::scratch},
                                 {"shard 1", std::size_t(n), Role::scratch}};
  DeviceArray<float> sum("sum", std::size_t(n), Role::scratch);
  shards[0].upload(std::span<const float>(mine));
  sum.upload(std::span<const float>(zeros(n)));
  if (rank == 0) memory_of_rank_0 = shards[0].data();
  Streams streams;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const bool is_last = rank == ranks - 1;
  const dim3 grid((n + 63) / 64), block(64);
  for (int step = 0; step < ranks; ++step) {
    if (bug == Bug::one_step_less && is_last && step == ranks - 2) break;
    const int now = step % 2, other = 1 - now;
    if (step + 1 < ranks || bug == Bug::one_step_more) {
      if (bug != Bug::no_wait_for_use) cudaStreamWaitEvent(streams.copies, streams.used[other]);
      const int to = bug == Bug::one_buffer ? now : other;
      const int from_rank = bug == Bug::wrong_neighbour ? next : previous;
      const std::size_t received = bug == Bug::wrong_count && is_last ? std::size_t(n) / 2 : std::size_t(n);
      const ncclDataType_t type = bug == Bug::wrong_type && is_last ? ncclInt32 : ncclFloat;
      if (bug != Bug::no_group) ncclGroupStart();
      ncclSend(shards[now].data(), std::size_t(n), ncclFloat, next, communicator, streams.copies);  // send
      ncclRecv(shards[to].data(), received, type, from_rank, communicator, streams.copies);         // receive
      if (bug != Bug::no_group) ncclGroupEnd();
      cudaEventRecord(streams.arrived[other], streams.copies);
    }
    const OnStream on(streams.compute);
    if (step > 0 && bug != Bug::no_wait_for_arrival) cudaStreamWaitEvent(streams.compute, streams.arrived[now]);
    const float* shard = bug == Bug::memory_of_a_neighbour && rank == 1 ? memory_of_rank_0 : shards[now].data();
    launch(add, grid, block, 0, sum.data(), shard, n);                                                    // add
    if (bug == Bug::written_in_flight && is_last) launch(change, grid, block, 0, shards[now].data(), n);  // change
    if (bug == Bug::uploaded_in_flight && is_last) shards[now].upload(std::span<const float>(mine));      // upload
    cudaEventRecord(streams.used[now], streams.compute);
  }
  if (bug == Bug::surplus_send && rank == 1)
    ncclSend(shards[0].data(), std::size_t(n), ncclFloat, next, communicator, streams.copies);
  if (bug == Bug::open_group) ncclGroupStart();
  sums.resize(std::size_t(n));
  sum.download(std::span<float>(sums));
}

void collective(int rank, int ranks, int n, Collective which, ncclComm_t communicator, std::vector<float>& result) {
  const auto size = std::size_t(n), all = size * std::size_t(ranks);
  const bool gathers = which == Collective::all_gather || which == Collective::in_place ||
                       which == Collective::different || which == Collective::different_counts ||
                       which == Collective::late_event;
  const bool scatters = which == Collective::reduce_scatter;
  DeviceArray<float> given("given", scatters ? all : size, Role::scratch);
  DeviceArray<float> to("result", gathers ? all : size, Role::scratch);
  given.upload(std::span<const float>(shard_of(rank, scatters ? int(all) : n)));
  Streams streams;
  if (which == Collective::in_place) {
    std::vector<float> own(all, -1);
    const std::vector<float> mine = shard_of(rank, n);
    std::copy(mine.begin(), mine.end(), own.begin() + rank * n);
    to.upload(std::span<const float>(own));
    ncclAllGather(to.data() + rank * n, to.data(), size, ncclFloat, communicator, streams.copies);
  } else if (which == Collective::different && rank == 1) {
    ncclAllReduce(given.data(), given.data(), size, ncclFloat, ncclSum, communicator, streams.copies);  // differs
  } else if (gathers) {
    const std::size_t count = which == Collective::different_counts && rank == 1 ? size / 2 : size;
    ncclAllGather(given.data(), to.data(), count, ncclFloat, communicator, streams.copies);  // gather
  } else if (scatters) {
    ncclReduceScatter(given.data(), to.data(), size, ncclFloat, ncclSum, communicator, streams.copies);
  } else {
    ncclAllReduce(given.data(), to.data(), size, ncclFloat, ncclSum, communicator, streams.copies);
  }
  if (which == Collective::late_event) {
    const OnStream on(streams.compute);
    launch(add, dim3(1), dim3(64), 0, given.data(), to.data(), std::min(n, 64));  // add gathered
  }
  result.resize(to.size());
  to.download(std::span<float>(result));
}

}  // namespace

std::vector<std::vector<float>> add_in_a_ring(int ranks, int n, Bug bug) {
  simt::clear_launches();
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(ranks));
  workbook::nccl::run_ranks(ranks, [&](int rank, ncclComm_t communicator) {
    ring(rank, ranks, n, bug, communicator, sums[std::size_t(rank)]);
  });
  return sums;
}
void send_too_much(int n) {
  workbook::nccl::run_ranks(2, [&](int rank, ncclComm_t communicator) {
    DeviceArray<float> part("part", std::size_t(n + rank), Role::scratch);
    if (rank == 0) {
      part.upload(std::span<const float>(zeros(n)));
      ncclSend(part.data(), std::size_t(n + 1), ncclFloat, 1, communicator, nullptr);  // too much
    } else {
      ncclRecv(part.data(), std::size_t(n + 1), ncclFloat, 0, communicator, nullptr);
    }
  });
}
std::vector<std::vector<float>> collect(int ranks, int n, Collective which) {
  simt::clear_launches();
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
  workbook::nccl::run_ranks(ranks, [&](int rank, ncclComm_t communicator) {
    collective(rank, ranks, n, which, communicator, results[std::size_t(rank)]);
  });
  return results;
}

}  // namespace rings
