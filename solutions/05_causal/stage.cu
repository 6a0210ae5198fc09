// Chapter 5's kernel as a stage, given: the sizes that are compiled, and the launch.
#include <numbers>

#include "causal.hpp"
#include "common/cuda/stage.hpp"

namespace ch05 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = shared_bytes<half>,
    .rows_per_warp = 32,
    .keys_per_step = keys_per_step<half>,
    .slack = slack * std::numbers::ln2_v<float>,
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { causal(call, tiles); },
};

}  // namespace
}  // namespace ch05
