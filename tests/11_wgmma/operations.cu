// Chapter 11's warm-up as operations that the tests call by name.
#include <cstdint>

#include "common/cuda/backend.hpp"
#include "common/cuda/description.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "wgmma.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray, workbook::cuda::Role;

// Number d; A (64, d) or (64, 64), B (64, d) as 16-bit codes -> C (64, 64) or (64, d), floats
template <auto& product>
void multiply(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  const DeviceArray<half> A("A", call.codes("A")), B("B", call.codes("B"));
  DeviceArray<float> C("C", call.output("C").size(), Role::output);
  workbook::cuda::begin_chapter();
  product(A.data(), B.data(), C.data(), int(call.integer("d")));
  C.download(call.output("C"));
}

// -> rows, columns (128, 32), int32: for each thread of a group, of 32 elements of D
void accumulator_layout(const Arguments& call) {
  DeviceArray<std::int32_t> rows("rows", 128 * 32, Role::output), columns("columns", 128 * 32, Role::output);
  workbook::cuda::begin_chapter();
  ch11::accumulator_layout(rows.data(), columns.data());
  rows.download(call.array<std::int32_t>("rows"));
  columns.download(call.array<std::int32_t>("columns"));
}

const Operations operations{{"multiply_K_major", multiply<ch11::multiply_K_major>},
                            {"multiply_MN_major", multiply<ch11::multiply_MN_major>},
                            {"accumulator_layout", accumulator_layout}};

}  // namespace
