// Chapter 16's kernels as stages, given: what they are built for, and how to launch them. The first stage is the
// chapter's; the second is the same for bf16, and its operation is "forward_bfloat16". The last two are the backward
// pass, which adds to dQ in a fixed order if the number deterministic is 1.
#include "common/cuda/stage.hpp"

#include "any_pair.hpp"
#include "any_pair_backward.hpp"

namespace ch16 {
namespace {

using workbook::Mask;
using workbook::cuda::BackwardStage, workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage;
using workbook::cuda::scratch, workbook::cuda::ScratchArray, workbook::cuda::Served, workbook::cuda::Stage;

Served all_masks() {
  return {.masks = {Mask::none, Mask::causal, Mask::documents, Mask::prefix, Mask::strided}, .shared_heads = true};
}
std::vector<ScratchArray> lists() {
  return {scratch<BlockClass>("classes", scratch_blocks),
          scratch<int>("partial_count", scratch_lines),
          scratch<int>("partial_blocks", scratch_blocks),
          scratch<int>("full_count", scratch_lines),
          scratch<int>("full_blocks", scratch_blocks),
          scratch<int>("documents", [](const workbook::Shape& shape) { return std::size_t(shape.Nk); })};
}
Scratch lists_in(const ExtraMemory& extra) {
  return {extra.array<BlockClass>("classes"),
          {extra.array<int>("partial_count"), extra.array<int>("partial_blocks"), extra.array<int>("full_count"),
           extra.array<int>("full_blocks")},
          extra.array<int>("documents")};
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
      .extra = lists(),
      .launch = [](const ForwardCall<Element>& call, const Tiles& tiles,
                   const ExtraMemory& extra) { any_pair(call, lists_in(extra), tiles); },
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
      .extra = lists(),
      .launch =
          [](const BackwardCall<Element>& call, const GradientTiles& tiles, const ExtraMemory& extra) {
            Sums sums{extra.array<float2>("row_stats"), extra.array<float>("dQ_sum"), nullptr, nullptr};
            if (deterministic) sums.semaphores = extra.array<int>("semaphores"), sums.ranks = extra.array<int>("ranks");
            any_pair_backward(call, lists_in(extra), sums, tiles);
          },
  };
  stage.extra.push_back(scratch<float2>("row_stats", padded_rows));
  stage.extra.push_back(scratch<float>("dQ_sum", dQ_sum_size));
  if (deterministic) {
    stage.tiles = built_deterministic;
    stage.extra.push_back(scratch<int>("semaphores", semaphore_count));
    stage.extra.push_back(scratch<int>("ranks", scratch_blocks));
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
}  // namespace ch16
