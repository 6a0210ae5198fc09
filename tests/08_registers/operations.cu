// Chapter 8's warm-up and lab as operations that the tests call by name.
#include <cstdint>

#include "common/cuda/forward_operation.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "lab.hpp"
#include "registers.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray, workbook::cuda::Role;

// A (16, 16), B (16, 8) as 16-bit codes -> C (16, 8), floats
void multiply(const Arguments& call) {
  const DeviceArray<half> A("A", call.codes("A")), B("B", call.codes("B"));
  DeviceArray<float> C("C", call.output("C").size(), Role::output);
  workbook::cuda::begin_chapter();
  ch08::multiply(A.data(), B.data(), C.data());
  C.download(call.output("C"));
}

// -> rows, columns (32, 16), int32: the positions of each lane's 8 elements of A, 4 of B and 4 of D
void fragment_layout(const Arguments& call) {
  DeviceArray<std::int32_t> rows("rows", 32 * 16, Role::output), columns("columns", 32 * 16, Role::output);
  workbook::cuda::begin_chapter();
  ch08::fragment_layout(rows.data(), columns.data());
  rows.download(call.array<std::int32_t>("rows"));
  columns.download(call.array<std::int32_t>("columns"));
}

// Q, K, V, codes of fp16, d = 64 -> O, codes, and lse
void lab(const Arguments& call) {
  workbook::cuda::run_forward<half>(call, 64, /*causal=*/false, ch08::lab);
}

const Operations operations{{"multiply", multiply}, {"fragment_layout", fragment_layout}, {"lab", lab}};

}  // namespace
