// Chapter 9's kernels for bf16, and with a gradient of the LSE, as operations that the tests call by name.
#include <cstdint>
#include <optional>

#include "backward_registers.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"

namespace {

using workbook::Shape;
using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// As the operation "backward"; the numbers owned, passing and warps must be given, deterministic may be. With the
/// array dlse (B, H, Nq) the loss depends on the LSE too; with the array turns it gets what the turns come to.
template <class Element>
void backward(const Arguments& call) {
  workbook::cuda::GradientTensors<Element, Element> t(call);
  const Shape shape = call.shape();
  DeviceArray<float2> rows("rows", ch09::padded_rows(shape), Role::scratch);
  DeviceArray<float> dQ_sum("dQ_sum", ch09::dQ_sum_size(shape), Role::scratch);
  const bool in_turns = call.integer("deterministic", 0) != 0, with_dlse = call.integer("with_dlse", 0) != 0;
  DeviceArray<int> turns("turns", in_turns ? ch09::turn_count(shape) : 0, Role::scratch);
  std::optional<DeviceArray<float>> dlse;
  if (with_dlse) dlse.emplace("dlse", call.input("dlse"));
  ch09::backward(ch09::BackwardCall<Element>{shape, float(call.number("scale")), call.flag("causal"), t.Q.data(),
                                             t.K.data(), t.V.data(), t.O.data(), t.dO.data(), t.lse.data(), t.dQ.data(),
                                             t.dK.data(), t.dV.data()},
                 with_dlse ? dlse->data() : nullptr,
                 ch09::Scratch{rows.data(), dQ_sum.data(), in_turns ? turns.data() : nullptr},
                 {int(call.integer("owned")), int(call.integer("passing")), int(call.integer("warps"))});
  t.download(call);
}

const Operations operations{{"backward_bf16", backward<__nv_bfloat16>}, {"backward_dlse", backward<half>}};

}  // namespace
