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

/// As the operation "backward"; the numbers owned, passing and warps must be given, deterministic may be. With the
/// array dlse (B, H, Nq) the loss depends on the LSE too; with the array semaphores it gets what the semaphores come
/// to.
void backward(const Arguments& call) {
  workbook::cuda::GradientTensors<half, half> t(call);
  const Shape shape = call.shape();
  DeviceArray<float2> rows("rows", ch09::padded_rows(shape), Role::scratch);
  DeviceArray<float> dQ_sum("dQ_sum", ch09::dQ_sum_size(shape), Role::scratch);
  const bool deterministic = call.integer("deterministic", 0) != 0;
  DeviceArray<int> semaphores("semaphores", deterministic ? ch09::semaphore_count(shape) : 0, Role::scratch);
  DeviceArray<float> dlse("dlse", call.input("dlse"));
  ch09::backward(ch09::BackwardCall<half>{call.setting(), t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.dO.data(),
                                          t.lse.data(), t.dQ.data(), t.dK.data(), t.dV.data()},
                 dlse.data(), ch09::Scratch{rows.data(), dQ_sum.data(), deterministic ? semaphores.data() : nullptr},
                 {int(call.integer("Bc")), int(call.integer("Br")), int(call.integer("warps"))});
  t.download(call);
}

/// Of two blocks with two warps each. A warp of block 0 has the second turn of its place, one of block 1 the first,
/// which adds 1 in every lane after the other has begun to wait.
__global__ void take_turns_kernel(int* numbers, int* begun, int* sums, int* got) {
  const int thread = threadIdx.x, warp = thread / 32;
  const ch09::Semaphore<true> semaphore{numbers + warp, 1 - int(blockIdx.x)};
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

__global__ void end_turn_kernel(int* number) {
  ch09::release(ch09::Semaphore<true>{number, 0});
}
// -> number (1), int32: what a turn's place holds when the first turn of a warp has ended
void release(const Arguments& call) {
  const std::int32_t zero[1] = {};
  DeviceArray<std::int32_t> number("number", std::span<const std::int32_t>(zero));
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(end_turn_kernel, dim3(1), dim3(32), 0, number.data());
  number.download(call.array<std::int32_t>("number"));
}

// -> got (64), int32: what each lane of block 0 finds
void take_turns(const Arguments& call) {
  const std::int32_t zeros[64] = {};
  DeviceArray<std::int32_t> numbers("numbers", std::span<const std::int32_t>(zeros, 2)),
      begun("begun", std::span<const std::int32_t>(zeros, 2)), sums("sums", std::span<const std::int32_t>(zeros));
  DeviceArray<std::int32_t> got("got", 64, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(take_turns_kernel, dim3(2), dim3(64), 0, numbers.data(), begun.data(), sums.data(),
                         got.data());
  got.download(call.array<std::int32_t>("got"));
}

const Operations operations{{"release", release}, {"take_turns", take_turns}, {"backward_dlse", backward}};

}  // namespace
