// Chapter 2 as a stage, given, with its default tile sizes.
#include "common/cuda/cpu_stage.hpp"
#include "online_softmax.hpp"

namespace ch02 {
namespace {

const workbook::cuda::CpuStage stage = workbook::cuda::CpuForwardStage{
    .tiles = {.Br = 64, .Bc = 64},
    .serves = {.shared_heads = true},
    .compute = [](const workbook::AttentionCall& call,
                  const workbook::cuda::Tiles& tiles) { tiled_attention(call, tiles.Br, tiles.Bc); },
};

}  // namespace
}  // namespace ch02
