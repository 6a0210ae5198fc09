// Chapter 5's kernel as a stage, given: what it is built for, and how to start it.
#include "common/cuda/stage.hpp"

#include "causal.hpp"
#include "phases.hpp"

namespace ch05 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = shared_bytes<half>,
    .rows_per_warp = 32,
    .keys_per_step = keys_per_step<half>,
    .slack = slack * ln_2,
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { causal(call, tiles); },
};

}  // namespace
}  // namespace ch05
