// One forward pass as an operation beside a chapter's stage: a kernel that takes one head dimension, and the causal
// mask or none.
#pragma once

#include <stdexcept>
#include <string>

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/calls.hpp"
#include "common/cuda/operations.hpp"

namespace workbook::cuda {

/// Q, K, V, 16-bit codes -> O, codes, and lse, by `start`. std::invalid_argument for another head dimension or mask.
template <class Element>
void run_forward(const Arguments& call, int d, bool causal, void (*start)(const ForwardCall<Element>&)) {
  const Shape shape = call.shape();
  const bool given_causal = call.integer("causal", 0) != 0;
  if (shape.d != d || given_causal != causal)
    throw std::invalid_argument("d=" + std::to_string(shape.d) + ", causal=" + (given_causal ? "yes" : "no") +
                                ": this kernel takes d = " + std::to_string(d) + " and " +
                                (causal ? "the causal mask" : "no causal mask"));
  AttentionTensors<Element> t(call);
  start({shape, float(call.number("scale")), causal, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.lse.data()});
  t.download(call);
}

}  // namespace workbook::cuda
