// Chapter 10's warm-ups as operations that the tests call by name.
#include <cstdint>

#include "common/cuda/backend.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "copy_engine.hpp"
#include "ring.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray, workbook::cuda::Role;

/// The warm-ups need the compute capability of the chapter's stage.
void begin() {
  if (workbook::cuda::compute_capability() < 90)
    throw workbook::cuda::Unavailable("these kernels need compute capability 9.0");
  workbook::cuda::begin_chapter();
}

// from (rounds, 32), floats -> to, likewise
void hand_over(const Arguments& call) {
  const DeviceArray<float> from("from", call.input("from"));
  DeviceArray<float> to("to", from.size(), Role::output);
  begin();
  ch10::hand_over(from.data(), to.data(), int(from.size() / 32));
  to.download(call.output("to"));
}

// tensor (heads, N, d) as 16-bit codes, first_row, head -> memory (32·d) and tile (32, d), codes
void one_tile(const Arguments& call) {
  const int d = int(call.integer("d"));
  const DeviceArray<half> tensor("tensor", call.codes("tensor"));
  DeviceArray<half> memory("memory", 32 * d, Role::output), tile("tile", 32 * d, Role::output);
  begin();
  const auto number = [&](const char* name) { return int(call.integer(name)); };
  ch10::one_tile(tensor.data(), number("heads"), number("N"), d, number("first_row"), number("head"), memory.data(),
                 tile.data());
  memory.download(call.array<std::uint16_t>("memory"));
  tile.download(call.array<std::uint16_t>("tile"));
}

// tensor (N, 64) as 16-bit codes -> sums (64), floats
void sum_columns(const Arguments& call) {
  const DeviceArray<half> tensor("tensor", call.codes("tensor"));
  DeviceArray<float> sums("sums", 64, Role::output);
  begin();
  ch10::sum_columns(tensor.data(), int(tensor.size() / 64), sums.data());
  sums.download(call.output("sums"));
}

/// Two consumers sum the first rows of the tiles of two heads, which alternate. They release each stage, and read the
/// next one only when the released stage has been filled again. So its load must start as soon as both have released
/// it.
__global__ void refill_kernel(const __grid_constant__ ch10::TensorMap tensor, int tiles,
                              float* __restrict__ sums) {  // (64)
  auto& smem = workbook::cuda::dynamic_shared<ch10::Shared<half, 64, 16, 2>>();
  ch10::make_barriers(smem);
  ch10::Position position;
  if (threadIdx.x / 32 == 2) {
    for (int j = 0; threadIdx.x % 32 == 0 && j < tiles; ++j) ch10::fill(smem, position, tensor, 16 * (j / 2), j % 2);
    return;
  }
  const int column = threadIdx.x;
  float sum = 0;
  for (int j = 0; j < tiles; ++j) {
    ch10::wait_until_full(smem, position);
    sum += __half2float(ch10::swizzled(smem.ring[position.stage], 0, column / 8)[column % 8]);
    const ch10::Position released = position;
    ch10::release(smem, position);
    if (j + ch10::stages < tiles)  // the next round's phase
      ch10::mbarrier_wait_parity(smem.full[released.stage], released.parity ^ 1);
  }
  sums[column] = sum;
}

// tensor (2, N, 64) as 16-bit codes -> sums (64), floats
void refill(const Arguments& call) {
  const DeviceArray<half> tensor("tensor", call.codes("tensor"));
  DeviceArray<float> sums("sums", 64, Role::output);
  begin();
  const int N = int(tensor.size() / 128);
  workbook::cuda::launch(refill_kernel, dim3(1), dim3(96), sizeof(ch10::Shared<half, 64, 16, 2>),
                         ch10::tile_map<half, 16, 64>(tensor.data(), 2, N), 2 * N / 16, sums.data());
  sums.download(call.output("sums"));
}

const Operations operations{
    {"hand_over", hand_over}, {"one_tile", one_tile}, {"sum_columns", sum_columns}, {"refill", refill}};

}  // namespace
