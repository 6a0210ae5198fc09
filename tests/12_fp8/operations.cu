// Chapter 12's rounding as operations that the tests call by name.
#include <cstdint>
#include <span>

#include "common/cuda/backend.hpp"
#include "common/cuda/description.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "fp8.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray, workbook::cuda::Role;

// Numbers heads, N, d, rotated, transposed; x (heads, N, d), codes of fp16 -> codes (heads, N, d) or, transposed,
// (heads, d, 128·blocks), of e4m3; scales (heads, blocks)
void rounded(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  const std::int64_t heads = call.integer("heads"), N = call.integer("N");
  const int d = int(call.integer("d"));
  const std::span<const std::uint16_t> given = call.array<std::uint16_t>("x");
  DeviceArray<half> x("x", given);
  const std::span<std::uint8_t> codes = call.array<std::uint8_t>("codes");
  DeviceArray<ch12::E4m3> on_device("codes", codes.size(), Role::output);
  DeviceArray<float> scales("scales", call.output("scales").size(), Role::output);
  workbook::cuda::begin_chapter();
  const ch12::Rounded to{on_device.data(), scales.data()};
  if (call.flag("transposed"))
    ch12::round_and_transpose(x.data(), to, heads, N, d);
  else
    ch12::round_rows(x.data(), to, heads, N, d, call.flag("rotated"));
  on_device.download(codes);
  scales.download(call.output("scales"));
}

// -> keys (128), int32
void key_order(const Arguments& call) {
  DeviceArray<std::int32_t> keys("keys", ch12::block_rows, Role::output);
  workbook::cuda::begin_chapter();
  ch12::key_order(keys.data());
  keys.download(call.array<std::int32_t>("keys"));
}

const Operations operations{{"rounded", rounded}, {"key_order", key_order}};

}  // namespace
