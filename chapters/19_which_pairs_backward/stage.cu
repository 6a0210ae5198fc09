// Chapter 19, given: the kernels as stages, with the sizes they are built for, their additional memory and their
// launch. The first stage is the chapter's kernel. Its variant is deterministic=1, which adds to dQ in a fixed order.
// The second stage is the kernel for bf16; its operation is "backward_bfloat16".
#include "common/cuda/stage.hpp"

#include "which_pairs_backward.hpp"

namespace ch19 {
namespace {

using workbook::cuda::BackwardStage, workbook::cuda::ExtraMemory, workbook::cuda::scratch, workbook::cuda::Served;
using workbook::cuda::Stage;

/// All parts of a mask, and heads that share K and V.
Served all_masks() {
  Served served{.shared_heads = true, .lse_gradient = true};
  for (const char* part : {"window", "softcap", "alibi", "sink", "packed"})
    served.masks.push_back(workbook::part_named(part).value());
  return served;
}

template <class Element, bool deterministic = false>
BackwardStage<Element> stage_for() {
  BackwardStage<Element> stage{
      .head_dims = {64, 128},
      .tiles = built,
      .shared_bytes = shared_bytes<Element>,
      .compute = 90,         // TMA,
      .compute_only = true,  // wgmma and setmaxnreg
      .serves = all_masks(),
      .extra = {scratch<float>("lse_log2", padded_rows), scratch<float>("D", padded_rows),
                scratch<float>("dQ_sum", dQ_sum_size)},
      .launch =
          [](const BackwardCall<Element>& call, const GradientTiles& tiles, const ExtraMemory& extra) {
            int* semaphores = deterministic ? extra.array<int>("semaphores") : nullptr;
            which_pairs_backward(
                call,
                {extra.array<float>("lse_log2"), extra.array<float>("D"), extra.array<float>("dQ_sum"), semaphores},
                tiles);
          },
  };
  if (deterministic) stage.extra.push_back(scratch<int>("semaphores", semaphore_count));
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
}  // namespace ch19
