// Chapter 6, given: the kernels as a stage, with their sizes, extra memory and launch functions. There are two
// variants: simple_backward.cu (./workbook trace 6 --set simple=1) and the one that adds to dQ by atomics (--set
// atomic=1). The naive backward is a stage on the CPU.
#include "common/cuda/stage.hpp"

#include "backward.hpp"
#include "common/cuda/cpu_stage.hpp"
#include "naive_backward.hpp"
#include "simple_backward.hpp"

namespace ch06 {
namespace {

using workbook::cuda::BackwardStage, workbook::cuda::CpuBackwardStage, workbook::cuda::CpuStage,
    workbook::cuda::ExtraMemory, workbook::cuda::scratch, workbook::cuda::Stage;

std::size_t queries(const workbook::Shape& shape) {
  return std::size_t(shape.lse_size());
}

void start(const BackwardCall<half>& call, const GradientTiles& tiles, const ExtraMemory& extra) {
  backward(call, extra.array<float2>("rows"), tiles);
}
void start_to_float(const BackwardCall<half, float>& call, const GradientTiles&, const ExtraMemory& extra) {
  backward_to_float(call, extra.array<float2>("rows"));
}
template <class Gradient>
void start_atomic(const BackwardCall<half, Gradient>& call, const GradientTiles&, const ExtraMemory& extra) {
  atomic_backward(call, extra.array<float2>("rows"), extra.array<float>("dQ_sum"));
}

/// The atomic variant's sizes are a subset of `built`: one warp per 16 columns.
std::size_t atomic_shared_bytes(int d, const GradientTiles& tiles) {
  return tiles.warps == d / 16 ? shared_bytes<half>(d, tiles) : 0;
}

const BackwardStage<half> simple_stage{
    .head_dims = {64},
    .tiles = simple_built,
    .shared_bytes = simple_shared_bytes,
    .extra = {scratch<float2>("rows", queries)},
    .launch = [](const BackwardCall<half>& call, const GradientTiles&,
                 const ExtraMemory& extra) { simple_backward(call, extra.array<float2>("rows")); },
};

const BackwardStage<half> atomic_stage{
    .head_dims = {32, 64, 128},
    .tiles = atomic_built,
    .shared_bytes = atomic_shared_bytes,
    .extra = {scratch<float2>("rows", queries), scratch<float>("dQ_sum", dQ_sum_size)},
    .launch = start_atomic<half>,
    .launch_to_float = start_atomic<float>,
};

const Stage stage = BackwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = shared_bytes<half>,
    .extra = {scratch<float2>("rows", queries)},
    .variants = {{"simple", 1, simple_stage}, {"atomic", 1, atomic_stage}},
    .launch = start,
    .launch_to_float = start_to_float,
};

const CpuStage naive_stage = CpuBackwardStage{.operation = "naive_backward", .compute = naive_backward};

}  // namespace
}  // namespace ch06
