// The bf16 kernels of chapters 5 and 6 as stages (given): their configurations and launches.

#include "05_causal/causal.hpp"
#include "06_backward/backward.hpp"
#include "common/cuda/stage.hpp"

namespace ch07 {
namespace {

using namespace workbook::cuda;

const Stage forward_stage = ForwardStage<__nv_bfloat16>{
    .head_dims = {32, 64, 128},
    .tiles = ch05::built,
    .shared_bytes = ch05::shared_bytes<__nv_bfloat16>,
    .compute = 80,  // older GPUs have no bf16
    .rows_per_warp = 32,
    .launch = [](const ForwardCall<__nv_bfloat16>& call, const Tiles& tiles,
                 const ExtraMemory&) { ch05::causal(call, tiles); },
};

const Stage backward_stage = BackwardStage<__nv_bfloat16>{
    .head_dims = {32, 64, 128},
    .tiles = ch06::built,
    .shared_bytes = ch06::shared_bytes<__nv_bfloat16>,
    .compute = 80,
    .extra = {scratch<float2>("rows", [](const workbook::Shape& shape) { return std::size_t(shape.lse_size()); })},
    .launch = [](const BackwardCall<__nv_bfloat16>& call, const GradientTiles& tiles,
                 const ExtraMemory& extra) { ch06::backward(call, extra.array<float2>("rows"), tiles); },
};

}  // namespace
}  // namespace ch07
