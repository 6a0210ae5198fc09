// Chapter 5's kernel as operations that the tests call by name.
#include <algorithm>
#include <cstdint>
#include <span>

#include "causal.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/bench.hpp"
#include "common/cuda/unobserved.hpp"
#include "common/worker/operations.hpp"

#if !defined(__CUDACC__)
#include "common/cuda/trace_record.hpp"
#include "common/simt/simulator.hpp"
#endif

namespace {

using workbook::cuda::AttentionTensors;
using workbook::worker::Arguments, workbook::worker::Operation;

/// Br, Bc and warps of a call; the warps follow from Br.
ch05::Tiles tiles_of(const Arguments& call) {
  const ch05::Tiles usual;
  const int Br = int(call.integer("Br", usual.Br));
  return {Br, int(call.integer("Bc", usual.Bc)), int(call.integer("warps", Br / 32))};
}

template <class Tensors>
void attend(const Arguments& call, Tensors& t) {
  ch05::causal(ch05::DeviceCall<half>{call.shape(), float(call.number("scale")), call.flag("causal"), t.Q.data(),
                                      t.K.data(), t.V.data(), t.O.data(), t.lse.data()},
               tiles_of(call));
}

// The numbers of Arguments::shape(), scale, causal; Br, Bc and warps; unobserved. Q, K, V as 16-bit codes, which may go
// on behind the last row -> O as codes, lse.
void forward(const Arguments& call) {
  const workbook::cuda::Unobserved unobserved(call.integer("unobserved", 0) != 0);
  AttentionTensors<half> tensors(call);
  tensors.count_tiles(call.shape(), tiles_of(call).Br, tiles_of(call).Bc);
  attend(call, tensors);
  tensors.download(call);
}

#if !defined(__CUDACC__)

/// Into `sets`, for each block: bit j if it read tile j of its head of the tensor. At most 64 tiles.
void note_tiles(const char* name, std::int64_t rows, std::int64_t d, std::int64_t tile, std::span<std::int64_t> sets) {
  std::fill(sets.begin(), sets.end(), 0);
  const simt::TensorTraffic* tensor = simt::last_launch().tensor(name);
  if (tensor == nullptr) return;
  const auto row_bytes = std::size_t(d) * sizeof(half);
  const std::size_t unit = workbook::cuda::unit_bytes({1, std::size_t(rows), row_bytes, std::size_t(tile)});
  for (const auto& [block, units] : tensor->tiles_of_block)
    for (const std::uint32_t each : units) {
      const auto row = std::int64_t(each * (unit / row_bytes));
      sets[block] |= std::int64_t(1) << (row % rows / tile);
    }
}

// As forward; then what each block did -> first_row (the row of Q that it read first, all heads counted on; -1: none),
// K_tiles, V_tiles, masked_tiles (sets of tiles of its head, tile j as bit j).
void blocks(const Arguments& call) {
  forward(call);
  const auto [B, H, Hkv, Nq, Nk, d] = call.shape();
  const ch05::Tiles tiles = tiles_of(call);
  note_tiles("K", Nk, d, tiles.Bc, call.array<std::int64_t>("K_tiles"));
  note_tiles("V", Nk, d, tiles.Bc, call.array<std::int64_t>("V_tiles"));
  const auto first_row = call.array<std::int64_t>("first_row");
  std::fill(first_row.begin(), first_row.end(), -1);
  const auto row_bytes = std::size_t(d) * sizeof(half);
  const std::size_t unit = workbook::cuda::unit_bytes({1, std::size_t(Nq), row_bytes, std::size_t(tiles.Br)});
  if (const simt::TensorTraffic* Q = simt::last_launch().tensor("Q"))
    for (const auto& [block, units] : Q->tiles_of_block)
      if (!units.empty()) first_row[block] = std::int64_t(units[0] * (unit / row_bytes));
  const auto masked = call.array<std::int64_t>("masked_tiles");
  std::fill(masked.begin(), masked.end(), 0);
  for (const simt::Note& note : simt::last_launch().notes)
    if (note.label == "masked tile") masked[note.block] |= std::int64_t(1) << note.value;
}

#endif

// See common/cuda/bench.hpp.
void bench(const Arguments& call) {
  workbook::cuda::StageTimer<workbook::cuda::ForwardTensors<half>> timer(call);
  timer.time([&](auto& tensors) { attend(call, tensors); });
}

constexpr Operation table[] = {
    {"forward", forward},
    {"bench", bench},
#if !defined(__CUDACC__)
    {"blocks", blocks},
#endif
};

}  // namespace

std::span<const Operation> workbook::worker::operations() {
  return table;
}
