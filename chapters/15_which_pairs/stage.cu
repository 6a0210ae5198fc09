// Chapter 15's kernel as stages, given: what it is built for, and how to start it. The first one is the chapter's; the
// second is the same for bf16, and its operation is "forward_bfloat16".
#include "common/cuda/stage.hpp"

#include "which_pairs.hpp"

namespace ch15 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

template <class Element>
ForwardStage<Element> stage_for() {
  ForwardStage<Element> stage = {
      .head_dims = {64, 128},
      .tiles = built,
      .shared_bytes = shared_bytes<Element>,
      .compute = 80,  // mma.m16n8k16 and cp.async
      .rows_per_warp = 32,
      .keys_per_step = [](int, const Tiles& tiles) { return tiles.Bc; },
      .slack = slack * 0.6931471805599453f,
      .launch = [](const ForwardCall<Element>& call, const Tiles& tiles,
                   const ExtraMemory&) { which_pairs(call, tiles); },
  };
  for (const char* part : {"window", "softcap", "alibi", "sink", "packed"})
    stage.serves.masks.push_back(workbook::part_named(part).value());
  return stage;
}

const Stage stage = stage_for<half>(), bf16_stage = stage_for<__nv_bfloat16>();

}  // namespace
}  // namespace ch15
