// Chapter 3's kernels as operations that the tests call by name.
#include <cstdint>
#include <span>

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/bench.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/unobserved.hpp"
#include "common/cuda/worker_device.hpp"
#include "common/worker/operations.hpp"
#include "tiled_wmma.hpp"
#include "warmups.hpp"

namespace {

using workbook::cuda::AttentionTensors, workbook::cuda::DeviceArray, workbook::cuda::Role, workbook::cuda::Unobserved;
using workbook::worker::Arguments, workbook::worker::Operation;

std::span<const std::uint16_t> codes(const Arguments& call, const char* name) {
  return call.array<std::uint16_t>(name);
}

// from (n) -> to (n), as 16-bit codes
void copy(const Arguments& call) {
  const DeviceArray<half> from("from", codes(call, "from"));
  DeviceArray<half> to("to", from.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch03::copy(from.data(), to.data(), std::int64_t(from.size()));
  to.download(call.array<std::uint16_t>("to"));
}

// rows, columns; from (rows, columns) -> to (columns, rows), floats
void transpose(const Arguments& call) {
  const DeviceArray<float> from("from", call.input("from"));
  DeviceArray<float> to("to", from.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch03::transpose(from.data(), to.data(), call.integer("rows"), call.integer("columns"));
  to.download(call.output("to"));
}

// A, B (16, 16) as 16-bit codes -> C (16, 16), floats
void multiply_transposed(const Arguments& call) {
  const DeviceArray<half> A("A", codes(call, "A")), B("B", codes(call, "B"));
  DeviceArray<float> C("C", call.output("C").size(), Role::output);
  workbook::cuda::begin_chapter();
  ch03::multiply_transposed(A.data(), B.data(), C.data());
  C.download(call.output("C"));
}

// The numbers of Arguments::shape(), scale, causal; Br, Bc and key_warps, which split the keys of a tile; unobserved.
// Q, K, V as 16-bit codes, which may go on behind the last row -> O as codes, lse.
void forward(const Arguments& call) {
  const Unobserved unobserved(call.integer("unobserved", 0) != 0);
  AttentionTensors<half> tensors(call);
  const ch03::Tiles tiles{int(call.integer("Br", 64)), int(call.integer("Bc", 64)), int(call.integer("key_warps", 4))};
  tensors.count_tiles(call.shape(), tiles.Br, tiles.Bc);
  ch03::tiled_wmma({call.shape(), float(call.number("scale")), call.flag("causal"), tensors.Q.data(), tensors.K.data(),
                    tensors.V.data(), tensors.O.data(), tensors.lse.data()},
                   tiles);
  tensors.download(call);
}

// See common/cuda/bench.hpp.
void bench(const Arguments& call) {
  workbook::cuda::StageTimer<workbook::cuda::ForwardTensors<half>> timer(call);
  timer.time([&](auto& t) {
    ch03::tiled_wmma({call.shape(), float(call.number("scale")), call.flag("causal"), t.Q.data(), t.K.data(),
                      t.V.data(), t.O.data(), t.lse.data()});
  });
}

constexpr Operation table[] = {
    {"copy", copy},       {"transpose", transpose}, {"multiply_transposed", multiply_transposed},
    {"forward", forward}, {"bench", bench},
};

}  // namespace

std::span<const Operation> workbook::worker::operations() {
  return table;
}
