// Chapter 13, given: the kernels as stages, with the sizes they are built for, their additional memory and their
// launch. The first stage is the chapter's kernel. Its variants are the earlier versions (./workbook trace 13 --set
// step=1) and deterministic=1, which adds to dQ in a fixed order. The last stage is the kernel for bf16; its operation
// is "backward_bfloat16".
#include "common/cuda/stage.hpp"

#include "backward_wgmma.hpp"

namespace ch13 {
namespace {

using workbook::cuda::BackwardStage, workbook::cuda::ExtraMemory, workbook::cuda::scratch, workbook::cuda::Stage;

template <class Element, int step = last_step, bool deterministic = false>
BackwardStage<Element> stage_for() {
  BackwardStage<Element> stage{
      .head_dims = {64, 128},
      .tiles = built,
      .shared_bytes = [](int d, const GradientTiles& tiles) { return shared_bytes<Element>(d, tiles, step); },
      .compute = 90,         // TMA,
      .compute_only = true,  // wgmma and setmaxnreg
      .serves = {.lse_gradient = true},
      .extra = {scratch<float>("lse_log2", padded_rows), scratch<float>("D", padded_rows),
                scratch<float>("dQ_sum", dQ_sum_size)},
      .launch =
          [](const BackwardCall<Element>& call, const GradientTiles& tiles, const ExtraMemory& extra) {
            int* semaphores = deterministic ? extra.array<int>("semaphores") : nullptr;
            backward(
                call, call.dlse,
                {extra.array<float>("lse_log2"), extra.array<float>("D"), extra.array<float>("dQ_sum"), semaphores},
                tiles, step);
          },
  };
  if (deterministic) stage.extra.push_back(scratch<int>("semaphores", semaphore_count));
  return stage;
}

template <class Element>
BackwardStage<Element> deterministic() {
  return stage_for<Element, last_step, true>();
}

BackwardStage<half> with_variants() {
  BackwardStage<half> stage = stage_for<half>();
  stage.variants = {{"step", 1, stage_for<half, 1>()},
                    {"step", 2, stage_for<half, 2>()},
                    {"step", 3, stage_for<half, 3>()},
                    {"deterministic", 1, deterministic<half>()}};
  return stage;
}

BackwardStage<__nv_bfloat16> with_deterministic() {
  BackwardStage<__nv_bfloat16> stage = stage_for<__nv_bfloat16>();
  stage.variants = {{"deterministic", 1, deterministic<__nv_bfloat16>()}};
  return stage;
}

const Stage stage = with_variants(), bf16_stage = with_deterministic();

}  // namespace
}  // namespace ch13
