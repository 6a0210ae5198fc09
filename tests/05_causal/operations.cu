// Chapter 5's lab as an operation that tests and trace call by name.
#include "common/cuda/forward_operation.hpp"
#include "common/cuda/operations.hpp"
#include "lab.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;

// Q, K, V, codes of fp16, d = 64 -> O, codes, and lse
void lab(const Arguments& call) {
  workbook::cuda::run_forward<half>(call, 64, /*causal=*/true, ch05::lab);
}

const Operations operations{{"lab", lab}};

}  // namespace
