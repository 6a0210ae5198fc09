// Chapter 9's kernels as a stage, given: what they are built for, the memory that they need, and how to start them; a
// variant, ./workbook trace 9 --set deterministic=1, in which the additions to dQ come by turns. Those for bf16 are
// started by tests/09_backward_registers/operations.cu.
#include "common/cuda/stage.hpp"

#include "backward_registers.hpp"

namespace ch09 {
namespace {

using workbook::cuda::BackwardStage, workbook::cuda::ExtraMemory, workbook::cuda::scratch, workbook::cuda::Stage;

Scratch scratch_of(const ExtraMemory& extra, bool turns) {
  return {extra.array<float2>("rows"), extra.array<float>("dQ_sum"), turns ? extra.array<int>("turns") : nullptr};
}

const BackwardStage<half> deterministic_stage{
    .head_dims = {32, 64, 128},
    .tiles = built_with_turns,
    .shared_bytes = shared_bytes<half>,
    .compute = 80,
    .extra = {scratch<float2>("rows", padded_rows), scratch<float>("dQ_sum", dQ_sum_size),
              scratch<int>("turns", turn_count)},
    .launch = [](const BackwardCall<half>& call, const GradientTiles& tiles,
                 const ExtraMemory& extra) { backward(call, nullptr, scratch_of(extra, true), tiles); },
};

const Stage stage = BackwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = shared_bytes<half>,
    .compute = 80,  // mma.m16n8k16 and cp.async
    .extra = {scratch<float2>("rows", padded_rows), scratch<float>("dQ_sum", dQ_sum_size)},
    .variants = {{"deterministic", 1, deterministic_stage}},
    .launch = [](const BackwardCall<half>& call, const GradientTiles& tiles,
                 const ExtraMemory& extra) { backward(call, nullptr, scratch_of(extra, false), tiles); },
};

}  // namespace
}  // namespace ch09
