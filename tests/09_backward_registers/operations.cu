// Chapter 9's kernels with a gradient of the LSE, as an operation that the tests call by name.
#include <cstdint>
#include <span>

#include "backward_registers.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "dQ_sum.hpp"

namespace {

using workbook::Shape;
using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// As the operation "backward"; the numbers Bc, Br and warps must be given, deterministic may be. With the
/// array dlse (B, H, Nq) the loss depends on the LSE too.
void backward(const Arguments& call) {
  workbook::cuda::GradientTensors<half, half> t(call);
  const Shape shape = call.shape();
  DeviceArray<float2> row_stats("row_stats", ch09::padded_rows(shape), Role::scratch);
  DeviceArray<float> dQ_sum("dQ_sum", ch09::dQ_sum_size(shape), Role::scratch);
  const bool deterministic = call.integer("deterministic", 0) != 0;
  DeviceArray<int> semaphores("semaphores", deterministic ? ch09::semaphore_count(shape) : 0, Role::scratch);
  DeviceArray<float> dlse("dlse", call.input("dlse"));
  ch09::backward(ch09::BackwardCall<half>{call.setting(), t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.dO.data(),
                                          t.lse.data(), t.dQ.data(), t.dK.data(), t.dV.data()},
                 dlse.data(),
                 ch09::Scratch{row_stats.data(), dQ_sum.data(), deterministic ? semaphores.data() : nullptr},
                 {int(call.integer("Bc")), int(call.integer("Br")), int(call.integer("warps"))});
  t.download(call);
}

/// Two blocks of two warps each. A warp of block 0 has rank 1 of its counter. The warp of block 1 has rank 0: it adds 1
/// in every lane after the warp of block 0 has begun to wait.
__global__ void ordered_additions_kernel(int* counters, int* begun, int* sums, int* got) {
  const int thread = threadIdx.x, warp = thread / 32;
  const ch09::Semaphore<true> semaphore{counters + warp, 1 - int(blockIdx.x)};
  if (blockIdx.x == 0) {
    const int seen = ch09::read_counter(semaphore);
    if (thread % 32 == 0) atomicAdd(begun + warp, 1);
    ch09::wait_for(semaphore, seen);
    got[thread] = atomicAdd(sums + thread, 0);
  } else {
    while (atomicAdd(begun + warp, 0) == 0) {
    }
    for (int i = 0; i < 2000; ++i) __syncwarp();
    ch09::wait_for(semaphore, ch09::read_counter(semaphore));
    atomicAdd(sums + thread, 1);
    ch09::release(semaphore);
  }
}

__global__ void release_kernel(int* counter) {
  ch09::release(ch09::Semaphore<true>{counter, 0});
}
// -> counter (1), int32: its value after one warp has released the semaphore
void release(const Arguments& call) {
  const std::int32_t zero[1] = {};
  DeviceArray<std::int32_t> counter("counter", std::span<const std::int32_t>(zero));
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(release_kernel, dim3(1), dim3(32), 0, counter.data());
  counter.download(call.array<std::int32_t>("counter"));
}

// -> got (64), int32: the sum that each lane of block 0 reads after wait_for
void ordered_additions(const Arguments& call) {
  const std::int32_t zeros[64] = {};
  DeviceArray<std::int32_t> counters("counters", std::span<const std::int32_t>(zeros, 2)),
      begun("begun", std::span<const std::int32_t>(zeros, 2)), sums("sums", std::span<const std::int32_t>(zeros));
  DeviceArray<std::int32_t> got("got", 64, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(ordered_additions_kernel, dim3(2), dim3(64), 0, counters.data(), begun.data(), sums.data(),
                         got.data());
  got.download(call.array<std::int32_t>("got"));
}

const Operations operations{
    {"release", release}, {"ordered_additions", ordered_additions}, {"backward_dlse", backward}};

}  // namespace
