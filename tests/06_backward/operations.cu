// Chapter 6's preparation of the rows, alone, and its lab as operations that tests and trace call by name.
#include <cstdint>
#include <span>
#include <stdexcept>

#include "backward.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "lab.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

// O, dO (B, H, Nq, d) as 16-bit codes, lse (B, H, Nq) -> rows (B, H, Nq, 2), floats
void prepare_rows(const Arguments& call) {
  const DeviceArray<half> O("O", call.codes("O")), dO("dO", call.codes("dO"));
  const DeviceArray<float> lse("lse", call.input("lse"));
  DeviceArray<float2> rows("rows", lse.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch06::BackwardCall<half> device{};
  device.shape = call.shape();
  device.O = O.data(), device.dO = dO.data(), device.lse = lse.data();
  ch06::prepare_rows(device, rows.data());
  rows.download(call.array<double>("rows"));  // pairs of floats as 8 bytes
}

// Q, K, V, O, dO, codes of fp16, d = 64, lse -> dQ, dK, dV, codes
void lab(const Arguments& call) {
  const workbook::Setting setting = call.setting();
  if (setting.shape.d != 64 || setting.causal())
    throw std::invalid_argument("the lab's kernels take d = 64 and no causal mask");
  workbook::cuda::GradientTensors<half, half> t(call);
  ch06::lab({setting, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.dO.data(), t.lse.data(), t.dQ.data(),
             t.dK.data(), t.dV.data()});
  t.download(call);
}

const Operations operations{{"prepare_rows", prepare_rows}, {"lab", lab}};

}  // namespace
