// Chapter 20's kernels as stages, given: what they are built for, and how to launch them. The number splits sets the
// thread blocks per head of K and V; by default cut_of() chooses them. The second stage is the same for bf16, and its
// operation is "forward_bfloat16".
#include <algorithm>
#include <cstdint>

#include "common/cuda/stage.hpp"

#include "cut.hpp"
#include "split_kv.hpp"

namespace ch20 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::scratch, workbook::cuda::Stage,
    workbook::cuda::zeroed;

/// The rows of all partial results: two results per thread block, with the tiles that give the most. One block per head
/// has none.
template <int splits>
std::size_t partial_rows(const workbook::Shape& shape) {
  std::int64_t rows = 0;
  for (const Tiles& tiles : built) {
    const Cut cut = cut_of(shape, tiles, splits, workbook::cuda::multiprocessors());
    if (cut.blocks != cut.heads) rows = std::max(rows, 2 * cut.blocks * tiles.Br);
  }
  return std::size_t(rows);
}
/// The heads of the cut, for any tiles.
std::size_t heads_of(const workbook::Shape& shape) {
  return std::size_t(cut_of(shape, built[0], 1, 1).heads);
}

template <class Element, int splits>
ForwardStage<Element> stage_for() {
  return {
      .head_dims = {64, 128},
      .tiles = built,
      .shared_bytes = shared_bytes<Element>,
      .compute = 80,  // mma.m16n8k16
      .warps_split_keys = true,
      .serves = {.shared_heads = true},
      .extra = {scratch<float>("partial_O",
                               [](const workbook::Shape& shape) { return partial_rows<splits>(shape) * shape.d; }),
                scratch<float>("partial_lse", partial_rows<splits>), zeroed<unsigned>("finished", heads_of)},
      .launch =
          [](const ForwardCall<Element>& call, const Tiles& tiles, const ExtraMemory& extra) {
            const Partial partial{extra.array<float>("partial_O"), extra.array<float>("partial_lse"),
                                  extra.array<unsigned>("finished")};
            split_kv(call, partial, tiles, splits, workbook::cuda::multiprocessors());
          },
  };
}

template <class Element>
ForwardStage<Element> with_splits() {
  ForwardStage<Element> stage = stage_for<Element, 0>();
  stage.variants = {{"splits", 1, stage_for<Element, 1>()},
                    {"splits", 2, stage_for<Element, 2>()},
                    {"splits", 3, stage_for<Element, 3>()},
                    {"splits", 8, stage_for<Element, 8>()},
                    {"splits", 128, stage_for<Element, 128>()}};
  return stage;
}

const Stage stage = with_splits<half>(), bf16_stage = with_splits<__nv_bfloat16>();

}  // namespace
}  // namespace ch20
