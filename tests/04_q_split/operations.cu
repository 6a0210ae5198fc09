// Chapter 4's lab as an operation that tests and trace call by name.
#include <stdexcept>

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/operations.hpp"
#include "lab.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;

// Q, K, V, codes of fp16, d = 64 -> O, codes, and lse
void lab(const Arguments& call) {
  const workbook::Shape shape = call.shape();
  if (shape.d != 64 || call.integer("causal", 0) != 0)
    throw std::invalid_argument("the lab's kernel takes d = 64 and no causal mask");
  workbook::cuda::AttentionTensors<half> t(call);
  ch04::lab({shape, float(call.number("scale")), false, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.lse.data()});
  t.download(call);
}

const Operations operations{{"lab", lab}};

}  // namespace
