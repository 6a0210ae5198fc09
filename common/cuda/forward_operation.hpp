// A forward pass as an additional operation of a chapter: a kernel for one head dimension and one mask.
#pragma once

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/calls.hpp"
#include "common/cuda/operations.hpp"

namespace workbook::cuda {

/// Q, K, V, 16-bit codes -> O, codes, and lse, by `start`. std::invalid_argument for another head dimension or mask.
template <class Element>
void run_forward(const Arguments& call, int d, const Mask& mask, void (*start)(const ForwardCall<Element>&)) {
  const Setting setting = call.setting();
  if (setting.shape.d != d || setting.mask != mask) refuse_setting(setting, d, mask);
  AttentionTensors<Element> t(call);
  start({setting, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.lse.data()});
  t.download(call);
}

}  // namespace workbook::cuda
