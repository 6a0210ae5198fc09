// Chapter 6's preparation of the rows as an operation that the tests call by name, alone.
#include <cstdint>
#include <span>

#include "backward.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

// O, dO (B, H, Nq, d) as 16-bit codes, lse (B, H, Nq) -> rows (B, H, Nq, 2), floats
void prepare_rows(const Arguments& call) {
  const DeviceArray<half> O("O", std::span<const std::uint16_t>(call.array<std::uint16_t>("O"))),
      dO("dO", std::span<const std::uint16_t>(call.array<std::uint16_t>("dO")));
  const DeviceArray<float> lse("lse", call.input("lse"));
  DeviceArray<float2> rows("rows", lse.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch06::BackwardCall<half> device{};
  device.shape = call.shape();
  device.O = O.data(), device.dO = dO.data(), device.lse = lse.data();
  ch06::prepare_rows(device, rows.data());
  rows.download(call.array<double>("rows"));  // pairs of floats as 8 bytes
}

const Operations exercises{{"prepare_rows", prepare_rows}};

}  // namespace
