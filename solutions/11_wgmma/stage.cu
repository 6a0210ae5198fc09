// Chapter 11's kernel as stages, given: the sizes that it is built for, and its launch. The first stage is the
// chapter's kernel, and its earlier versions are variants: ./workbook trace 11 --set step=1. The last stage is the
// kernel for bf16; its operation is "forward_bfloat16".
#include "common/cuda/stage.hpp"

#include "wgmma.hpp"

namespace ch11 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::scratch, workbook::cuda::Stage;

template <class Element, int step>
ForwardStage<Element> stage_for() {
  return {
      .head_dims = {64, 128},
      .tiles = built,
      .shared_bytes = [](int d, const Tiles& tiles) { return shared_bytes<Element>(d, tiles, step); },
      .compute = 90,         // TMA,
      .compute_only = true,  // wgmma and setmaxnreg
      .rows_per_warp = 16,
      .extra = {scratch<int>("tile_counter", [](const workbook::Shape&) { return std::size_t(1); })},
      .launch =
          [](const ForwardCall<Element>& call, const Tiles& tiles, const ExtraMemory& extra) {
            int* const tile_counter = extra.array<int>("tile_counter");
            if (step == last_step) workbook::cuda::clear(tile_counter, sizeof *tile_counter);
            attention(call, tiles, step, tile_counter, workbook::cuda::multiprocessors());
          },
  };
}

ForwardStage<half> with_steps() {
  ForwardStage<half> stage = stage_for<half, last_step>();
  stage.variants = {{"step", 1, stage_for<half, 1>()},
                    {"step", 2, stage_for<half, 2>()},
                    {"step", 3, stage_for<half, 3>()},
                    {"step", 4, stage_for<half, 4>()},
                    {"step", 5, stage_for<half, 5>()}};
  return stage;
}

const Stage stage = with_steps(), bf16_stage = stage_for<__nv_bfloat16, last_step>();

}  // namespace
}  // namespace ch11
