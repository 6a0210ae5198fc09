// Chapter 4's kernel as a stage, given: what it is built for, and how to start it. The rungs of the ladder are variants
// of it: ./workbook trace 4 --set rung=1
#include "common/cuda/stage.hpp"

#include "ladder.hpp"
#include "layout.hpp"
#include "q_split.hpp"

namespace ch04 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

constexpr Tiles ladder_tiles[] = {{64, 64, 4}};

template <Rung rung>
ForwardStage<half> ladder_stage() {
  return {
      .head_dims = {64},
      .tiles = ladder_tiles,
      .shared_bytes = [](int, const Tiles&) { return ladder_shared_bytes(); },
      .warps_split_keys = true,
      .causal = false,
      .launch = [](const ForwardCall<half>& call, const Tiles&, const ExtraMemory&) { ladder(call, rung); },
  };
}

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = shared_bytes,
    .rows_per_warp = 32,
    .keys_per_step = keys_per_step,
    .slack = slack * ln_2,
    .causal = false,
    .variants = {{"rung", 1, ladder_stage<Rung::combined_once>()}, {"rung", 2, ladder_stage<Rung::query_tile_grid>()}},
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { q_split(call, tiles); },
};

}  // namespace
}  // namespace ch04
