// Chapter 5's kernel as a stage, given: the sizes that are compiled, and the launch.

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
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { causal(call, tiles); },
};

}  // namespace
}  // namespace ch05
