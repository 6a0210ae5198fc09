// Chapter 22's attention as a function of the host.
#pragma once

#include "common/attention/problem.hpp"

namespace rings {

struct Output {
  workbook::Tensor<float> O, lse;
};
/// Q, K and V must be rounded to fp16.
Output ring_attention(const workbook::Problem& problem, int Br, int Bc, int warps, int ranks);

struct Gradients {
  workbook::Tensor<float> dQ, dK, dV;
};
/// O and dO must be rounded to fp16 as well.
Gradients ring_backward(const workbook::Problem& problem, const workbook::Tensor<float>& O,
                        const workbook::Tensor<float>& lse, const workbook::Tensor<float>& dO, int ranks);

}  // namespace rings
