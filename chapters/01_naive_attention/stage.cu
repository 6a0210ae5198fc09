// Chapter 1's given kernels as a stage: the sizes that are compiled, the extra memory, and the launch.
#include "common/cuda/stage.hpp"

#include "naive_attention_gpu.hpp"

namespace ch01 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardCall, workbook::cuda::ForwardStage, workbook::cuda::Stage,
    workbook::cuda::Tiles;

/// The number of elements of S, and of P.
std::size_t elements(const workbook::Shape& shape) {
  return std::size_t(shape.lse_size() * score_stride(shape.Nk));
}

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .rows_per_warp = 16,
    .extra = {workbook::cuda::scratch<float>("S", elements), workbook::cuda::scratch<half>("P", elements)},
    .launch = [](const ForwardCall<half>& call, const Tiles&,
                 const ExtraMemory& extra) { naive_attention(call, extra.array<float>("S"), extra.array<half>("P")); },
};

}  // namespace
}  // namespace ch01
