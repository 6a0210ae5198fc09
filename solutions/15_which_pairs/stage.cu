// Chapter 15's kernels as stages, given: what they are built for, and how to launch them. The first stage is the
// chapter's; the second is the same for bf16, and its operation is "forward_bfloat16". The last two are the backward
// pass, which adds to dQ in a fixed order if the number deterministic is 1.
#include "common/cuda/stage.hpp"

#include "which_pairs.hpp"
#include "which_pairs_backward.hpp"

namespace ch15 {
namespace {

using workbook::cuda::BackwardStage, workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage;
using workbook::cuda::scratch, workbook::cuda::Served, workbook::cuda::Stage;

/// All parts of a mask, and heads that share K and V.
Served all_masks() {
  Served served{.shared_heads = true, .lse_gradient = true};
  for (const char* part : {"window", "softcap", "alibi", "sink", "packed"})
    served.masks.push_back(workbook::part_named(part).value());
  return served;
}

template <class Element>
ForwardStage<Element> stage_for() {
  return {
      .head_dims = {64, 128},
      .tiles = built,
      .shared_bytes = shared_bytes<Element>,
      .compute = 80,  // mma.m16n8k16 and cp.async
      .rows_per_warp = 32,
      .serves = all_masks(),
      .launch = [](const ForwardCall<Element>& call, const Tiles& tiles,
                   const ExtraMemory&) { which_pairs(call, tiles); },
  };
}

template <class Element, bool deterministic = false>
BackwardStage<Element> backward_stage_for() {
  BackwardStage<Element> stage{
      .head_dims = {64, 128},
      .tiles = built_backward,
      .shared_bytes = backward_shared_bytes<Element>,
      .compute = 80,  // mma.m16n8k16 and cp.async
      .serves = all_masks(),
      .extra = {scratch<float2>("row_stats", padded_rows), scratch<float>("dQ_sum", dQ_sum_size)},
      .launch =
          [](const BackwardCall<Element>& call, const GradientTiles& tiles, const ExtraMemory& extra) {
            int* semaphores = deterministic ? extra.array<int>("semaphores") : nullptr;
            which_pairs_backward(call, {extra.array<float2>("row_stats"), extra.array<float>("dQ_sum"), semaphores},
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
BackwardStage<Element> backward_with_variant() {
  BackwardStage<Element> stage = backward_stage_for<Element>();
  stage.variants = {{"deterministic", 1, backward_stage_for<Element, true>()}};
  return stage;
}

const Stage stage = stage_for<half>(), bf16_stage = stage_for<__nv_bfloat16>();
const Stage backward_stage = backward_with_variant<half>(),
            bf16_backward_stage = backward_with_variant<__nv_bfloat16>();

}  // namespace
}  // namespace ch15
