// Chapter 12's kernels as a stage, given: the sizes that it is built for, the memory that it needs, and its launch. The
// option rotate = 1 rotates Q and K first: ./workbook trace 12 --set rotate=1. With fma = 16 or 4, multiply-adds
// compute one in 16 or 4 exponentials.
#include "common/cuda/stage.hpp"

#include "fp8.hpp"

namespace ch12 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::scratch, workbook::cuda::Stage;

/// The rows of V's transposed codes are padded to whole blocks of keys.
std::size_t transposed_size(const Shape& shape) {
  return std::size_t(shape.B * shape.Hkv * shape.d * block_count(shape.Nk) * block_rows);
}

template <Options options>
ForwardStage<half> stage_for() {
  return {
      .element = workbook::Element::float8,
      .head_dims = {64, 128},
      .tiles = std::span(built).subspan(options.exp2_by_fma == 0 ? 0 : 1),
      .shared_bytes = shared_bytes,
      .compute = 90,         // TMA,
      .compute_only = true,  // wgmma and setmaxnreg
      .rows_per_warp = 16,
      .extra = {scratch<E4m3>("Q codes", [](const Shape& s) { return std::size_t(s.q_size()); }),
                scratch<E4m3>("K codes", [](const Shape& s) { return std::size_t(s.kv_size()); }),
                scratch<E4m3>("V codes", transposed_size),
                scratch<float>("Q scales", [](const Shape& s) { return std::size_t(s.B * s.H * block_count(s.Nq)); }),
                scratch<float>("K scales", [](const Shape& s) { return std::size_t(s.B * s.Hkv * block_count(s.Nk)); }),
                scratch<float>("V scales",
                               [](const Shape& s) { return std::size_t(s.B * s.Hkv * block_count(s.Nk)); })},
      .launch =
          [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory& extra) {
            const Rounded Q{extra.array<E4m3>("Q codes"), extra.array<float>("Q scales")};
            const Rounded K{extra.array<E4m3>("K codes"), extra.array<float>("K scales")};
            const Rounded V{extra.array<E4m3>("V codes"), extra.array<float>("V scales")};
            attention(call, tiles, Q, K, V, options);
          },
  };
}

ForwardStage<half> with_options() {
  ForwardStage<half> stage = stage_for<Options{}>();
  stage.variants = {{"rotate", 1, stage_for<Options{.rotated = true}>()},
                    {"fma", 16, stage_for<Options{.exp2_by_fma = 16}>()},
                    {"fma", 4, stage_for<Options{.exp2_by_fma = 4}>()}};
  return stage;
}

const Stage stage = with_options();

}  // namespace
}  // namespace ch12
