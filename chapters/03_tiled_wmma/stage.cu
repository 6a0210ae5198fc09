// Chapter 3's kernel as a stage, given: what it is built for, and how to start it.
#include "common/cuda/stage.hpp"

#include "tiled_wmma.hpp"

namespace ch03 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = shared_bytes,
    .warps_split_keys = true,
    .causal = false,
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { tiled_wmma(call, tiles); },
};

}  // namespace
}  // namespace ch03
