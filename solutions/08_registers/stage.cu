// Chapter 8's kernel as stages, given: the sizes that it is built for, and its launch. The first stage is the
// chapter's; the second is the same for bf16, and its operation is "forward_bfloat16".
#include "common/cuda/stage.hpp"

#include "registers.hpp"

namespace ch08 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

template <class Element>
ForwardStage<Element> stage_for() {
  return {
      .head_dims = {32, 64, 128},
      .tiles = built,
      .shared_bytes = shared_bytes<Element>,
      .compute = 80,  // mma.m16n8k16 and cp.async
      .rows_per_warp = 32,
      .launch = [](const ForwardCall<Element>& call, const Tiles& tiles,
                   const ExtraMemory&) { registers(call, tiles); },
  };
}

const Stage stage = stage_for<half>(), bf16_stage = stage_for<__nv_bfloat16>();

}  // namespace
}  // namespace ch08
