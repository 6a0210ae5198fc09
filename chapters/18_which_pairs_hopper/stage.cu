// Chapter 18's kernel as stages, given: the sizes that it is built for, and its launch. The first stage is the
// chapter's kernel; the second is the kernel for bf16, and its operation is "forward_bfloat16".
#include "common/cuda/stage.hpp"

#include "which_pairs_hopper.hpp"

namespace ch18 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::scratch, workbook::cuda::Served;
using workbook::cuda::Stage;

/// All parts of a mask, and heads that share K and V.
Served all_masks() {
  Served served{.shared_heads = true};
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
      .compute = 90,         // TMA,
      .compute_only = true,  // wgmma and setmaxnreg
      .rows_per_warp = 16,
      .serves = all_masks(),
      .extra = {scratch<int>("tile_counter", [](const workbook::Shape&) { return std::size_t(1); })},
      .launch =
          [](const ForwardCall<Element>& call, const Tiles& tiles, const ExtraMemory& extra) {
            int* const tile_counter = extra.array<int>("tile_counter");
            workbook::cuda::clear(tile_counter, sizeof *tile_counter);
            which_pairs(call, tiles, tile_counter, workbook::cuda::multiprocessors());
          },
  };
}

const Stage stage = stage_for<half>(), bf16_stage = stage_for<__nv_bfloat16>();

}  // namespace
}  // namespace ch18
