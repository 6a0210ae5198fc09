// Chapter 3's warm-ups, its plain kernel and its lab as operations that the tests call by name.
#include <cstdint>

#include "common/cuda/forward_operation.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "lab.hpp"
#include "plain_fused.hpp"
#include "warmups.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray, workbook::cuda::Role;

// from (n) -> to (n), as 16-bit codes
void copy(const Arguments& call) {
  const DeviceArray<half> from("from", call.codes("from"));
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
  const DeviceArray<half> A("A", call.codes("A")), B("B", call.codes("B"));
  DeviceArray<float> C("C", call.output("C").size(), Role::output);
  workbook::cuda::begin_chapter();
  ch03::multiply_transposed(A.data(), B.data(), C.data());
  C.download(call.output("C"));
}

// depth; A, B (64, depth) as 16-bit codes -> C (64, 64), floats
void multiply_tiles(const Arguments& call) {
  const DeviceArray<half> A("A", call.codes("A")), B("B", call.codes("B"));
  DeviceArray<float> C("C", call.output("C").size(), Role::output);
  workbook::cuda::begin_chapter();
  ch03::multiply_tiles(A.data(), B.data(), C.data(), call.integer("depth"));
  C.download(call.output("C"));
}

// Q, K, V, codes of fp16, d = 64 -> O, codes, and lse
void plain(const Arguments& call) {
  workbook::cuda::run_forward<half>(call, 64, /*causal=*/false, ch03::plain_fused);
}
void lab(const Arguments& call) {
  workbook::cuda::run_forward<half>(call, 64, /*causal=*/false, ch03::lab);
}

const Operations warmups{
    {"copy", copy},
    {"transpose", transpose},
    {"multiply_transposed", multiply_transposed},
    {"multiply_tiles", multiply_tiles},
    {"plain", plain},
    {"lab", lab},
};

}  // namespace
