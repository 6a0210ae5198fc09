// Chapter 22's ring as stages, given: the sizes that the kernels are built for, and the launch. The number ranks sets
// how many ranks share the sequence, by default 4.
#include "common/cuda/stage.hpp"

#include "ring.hpp"

namespace ch22 {
namespace {

using workbook::cuda::BackwardStage, workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

template <int ranks>
ForwardStage<half> stage_for() {
  return {
      .head_dims = {64, 128},
      .tiles = built,
      .shared_bytes = shared_bytes<half>,
      .compute = 80,  // mma.m16n8k16 and cp.async
      .rows_per_warp = 32,
      .serves = {.shared_heads = true},
      .launch = [](const ForwardCall<half>& call, const Tiles& tiles,
                   const ExtraMemory&) { ring_attention(call, tiles, ranks); },
  };
}
template <int ranks>
BackwardStage<half> backward_stage_for() {
  return {
      .head_dims = {64, 128},
      .tiles = built_backward,
      .shared_bytes = backward_shared_bytes,
      .compute = 80,
      .serves = {.shared_heads = true},
      .launch = [](const BackwardCall<half>& call, const GradientTiles& tiles,
                   const ExtraMemory&) { ring_backward(call, tiles, ranks); },
  };
}

template <class Stage>
Stage with_ranks(Stage four, Stage one, Stage two, Stage three, Stage eight) {
  four.variants = {{"ranks", 1, one}, {"ranks", 2, two}, {"ranks", 3, three}, {"ranks", 8, eight}};
  return four;
}

const Stage forward_stage = with_ranks(stage_for<4>(), stage_for<1>(), stage_for<2>(), stage_for<3>(), stage_for<8>());
const Stage backward_stage = with_ranks(backward_stage_for<4>(), backward_stage_for<1>(), backward_stage_for<2>(),
                                        backward_stage_for<3>(), backward_stage_for<8>());

}  // namespace
}  // namespace ch22
