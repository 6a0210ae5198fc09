// Chapter 14's kernel as stages, given: what it is built for, and how to start it. The first one is the chapter's; the
// second is the same for bf16, and its operation is "forward_bfloat16". With the number pack = 1 or 2 heads are packed
// never or always.
#include "common/cuda/stage.hpp"

#include "grouped.hpp"

namespace ch14 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage, workbook::cuda::Variant;

template <class Element, Packing packing>
void launch(const ForwardCall<Element>& call, const Tiles& tiles, const ExtraMemory&) {
  grouped(call, tiles, packing);
}

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
      .serves = {.shared_heads = true},
      .launch = launch<Element, Packing::when_it_pays>,
  };
  ForwardStage<Element> never = stage, always = stage;
  never.launch = launch<Element, Packing::never>, always.launch = launch<Element, Packing::always>;
  stage.variants = {{"pack", 1, never}, {"pack", 2, always}};
  return stage;
}

const Stage stage = stage_for<half>(), bf16_stage = stage_for<__nv_bfloat16>();

}  // namespace
}  // namespace ch14
