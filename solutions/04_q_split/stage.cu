// Chapter 4's kernels as a stage, given: the sizes that are compiled, and the launch. Kernel 3 is the chapter's kernel;
// kernels 1 and 2 are variants of the stage: ./workbook trace 4 --set kernel=1

#include "common/cuda/stage.hpp"
#include "q_split.hpp"

namespace ch04 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

const ForwardStage<half> plain_split_stage{
    .head_dims = {32, 64, 128},
    .tiles = built_for_1_and_2,
    .shared_bytes = plain_split_bytes,
    .rows_per_warp = 32,
    .serves = {.masks = {workbook::Mask::none}},
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { plain_split(call, tiles); },
};

const ForwardStage<half> prefetch_stage{
    .head_dims = {32, 64, 128},
    .tiles = built_for_1_and_2,
    .shared_bytes = prefetch_bytes,
    .rows_per_warp = 32,
    .serves = {.masks = {workbook::Mask::none}},
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { prefetch(call, tiles); },
};

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = q_split_bytes,
    .rows_per_warp = 32,
    .serves = {.masks = {workbook::Mask::none}},
    .variants = {{"kernel", 1, plain_split_stage}, {"kernel", 2, prefetch_stage}},
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { q_split(call, tiles); },
};

}  // namespace
}  // namespace ch04
