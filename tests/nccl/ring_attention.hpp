// Chapter 22's attention as a function of the host.
#pragma once

#include "common/attention/problem.hpp"

namespace rings {

struct Output {
  workbook::Tensor<float> O, lse;
};
/// Q, K and V must be rounded to fp16.
Output ring_attention(const workbook::Problem& problem, int Br, int Bc, int warps, int ranks);

}  // namespace rings
