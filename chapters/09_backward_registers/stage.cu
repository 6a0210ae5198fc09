// Chapter 9's kernels as stages, given: the sizes that they are built for, the memory that they need, and their launch.
// The variant deterministic=1 (./workbook trace 9 --set deterministic=1) adds to dQ in a fixed order. The first stage
// is the chapter's; the second is the same for bf16, and its operation is "backward_bfloat16".
#include "common/cuda/stage.hpp"

#include "backward_registers.hpp"

namespace ch09 {
namespace {

using workbook::cuda::BackwardStage, workbook::cuda::ExtraMemory, workbook::cuda::scratch, workbook::cuda::Stage;

template <class Element, bool deterministic = false>
BackwardStage<Element> stage_for() {
  BackwardStage<Element> stage{
      .head_dims = {32, 64, 128},
      .tiles = built,
      .shared_bytes = shared_bytes<Element>,
      .compute = 80,  // mma.m16n8k16 and cp.async
      .serves = {.lse_gradient = true},
      .extra = {scratch<float2>("row_stats", padded_rows), scratch<float>("dQ_sum", dQ_sum_size)},
      .launch =
          [](const BackwardCall<Element>& call, const GradientTiles& tiles, const ExtraMemory& extra) {
            int* semaphores = deterministic ? extra.array<int>("semaphores") : nullptr;
            backward(call, call.dlse, {extra.array<float2>("row_stats"), extra.array<float>("dQ_sum"), semaphores},
                     tiles);
          },
  };
  if (deterministic) {
    stage.tiles = built_deterministic;
    stage.extra.push_back(scratch<int>("semaphores", semaphore_count));
  }
  return stage;
}

template <class Element>
BackwardStage<Element> with_variant() {
  BackwardStage<Element> stage = stage_for<Element>();
  stage.variants = {{"deterministic", 1, stage_for<Element, true>()}};
  return stage;
}

const Stage stage = with_variant<half>(), bf16_stage = with_variant<__nv_bfloat16>();

}  // namespace
}  // namespace ch09
