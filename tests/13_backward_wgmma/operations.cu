// Chapter 13's kernels with a gradient of the LSE, as an operation that the tests call by name.
#include <cstdint>
#include <span>

#include "backward_wgmma.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/backend.hpp"
#include "common/cuda/description.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"

namespace {

using workbook::Shape;
using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// As the operation "backward"; with the array dlse (B, H, Nq), of which the loss depends too; deterministic may be 1.
void backward(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  workbook::cuda::GradientTensors<half, half> t(call);
  const Shape shape = call.shape();
  const bool deterministic = call.integer("deterministic", 0) != 0;
  DeviceArray<float> lse("lse_log2", ch13::padded_rows(shape), Role::scratch),
      D("D", ch13::padded_rows(shape), Role::scratch), dQ_sum("dQ_sum", ch13::dQ_sum_size(shape), Role::scratch);
  DeviceArray<int> semaphores("semaphores", deterministic ? ch13::semaphore_count(shape) : 0, Role::scratch);
  DeviceArray<float> dlse("dlse", call.input("dlse"));
  ch13::backward(ch13::BackwardCall<half>{call.setting(), t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.dO.data(),
                                          t.lse.data(), t.dQ.data(), t.dK.data(), t.dV.data()},
                 dlse.data(),
                 ch13::Scratch{lse.data(), D.data(), dQ_sum.data(), deterministic ? semaphores.data() : nullptr},
                 ch13::built[shape.d == 64 ? 0 : 1], ch13::last_step);
  t.download(call);
}

const Operations operations{{"backward_dlse", backward}};

}  // namespace
