// Chapter 4's kernels as operations that the tests call by name.
#include <span>
#include <stdexcept>
#include <string>

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/bench.hpp"
#include "common/cuda/unobserved.hpp"
#include "common/worker/operations.hpp"
#include "ladder.hpp"
#include "q_split.hpp"

namespace {

using workbook::cuda::AttentionTensors;
using workbook::worker::Arguments, workbook::worker::Operation;

/// Br, Bc and warps of a call; the warps follow from Br.
ch04::Tiles tiles_of(const Arguments& call) {
  const ch04::Tiles usual;
  const int Br = int(call.integer("Br", usual.Br));
  return {Br, int(call.integer("Bc", usual.Bc)), int(call.integer("warps", Br / 32))};
}

/// The chapter's kernel, or with the number "rung" (1, 2) one of the ladder's on the way to it.
template <class Tensors>
void attend(const Arguments& call, Tensors& t) {
  const ch04::DeviceCall device_call{
      call.shape(), float(call.number("scale")), call.flag("causal"), t.Q.data(), t.K.data(), t.V.data(), t.O.data(),
      t.lse.data()};
  switch (call.integer("rung", 0)) {
    case 0:
      return ch04::q_split(device_call, tiles_of(call));
    case 1:
      return ch04::ladder(device_call, ch04::Rung::combined_once);
    case 2:
      return ch04::ladder(device_call, ch04::Rung::query_tile_grid);
    default:
      throw std::invalid_argument("rung = " + std::to_string(call.integer("rung")) +
                                  ": allowed are 0 (the chapter's kernel), 1 and 2");
  }
}

// The numbers of Arguments::shape(), scale, causal; Br, Bc and warps; rung; unobserved. Q, K, V as 16-bit codes, which
// may go on behind the last row -> O as codes, lse.
void forward(const Arguments& call) {
  const workbook::cuda::Unobserved unobserved(call.integer("unobserved", 0) != 0);
  AttentionTensors<half> tensors(call);
  if (call.integer("rung", 0) == 0)
    tensors.count_tiles(call.shape(), tiles_of(call).Br, tiles_of(call).Bc);
  else
    tensors.count_tiles(call.shape(), 64, 64);
  attend(call, tensors);
  tensors.download(call);
}

// See common/cuda/bench.hpp.
void bench(const Arguments& call) {
  workbook::cuda::StageTimer<workbook::cuda::ForwardTensors<half>> timer(call);
  timer.time([&](auto& tensors) { attend(call, tensors); });
}

constexpr Operation table[] = {
    {"forward", forward},
    {"bench", bench},
};

}  // namespace

std::span<const Operation> workbook::worker::operations() {
  return table;
}
