// Chapter 3's kernel as a stage, given: the sizes it is built for, and its launch.
#include "common/cuda/stage.hpp"

#include "common/cuda/dispatch.hpp"
#include "layout.hpp"
#include "tiled_wmma.hpp"

namespace ch03 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

/// Bytes of shared memory per thread block; 0 if there is no kernel of these sizes.
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) {
    return fits<d, t.Br, t.Bc, t.warps> ? sizeof(Shared<d, t.Br, t.Bc, t.warps>) : 0;
  });
}

const Stage stage = ForwardStage<Element>{
    .head_dims = {32, 64, 128},
    .tiles = built,  // the first that fits the device's shared memory is the default
    .shared_bytes = shared_bytes,
    .warps_split_keys = true,
    .serves = {.masks = {workbook::Mask::none}},
    .launch = [](const ForwardCall<Element>& call, const Tiles& tiles, const ExtraMemory&) { tiled_wmma(call, tiles); },
};

}  // namespace
}  // namespace ch03
