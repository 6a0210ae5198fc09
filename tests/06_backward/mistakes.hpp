// The known mistakes of chapter 6 that other files name.
#pragma once

#include <vector>

#include "common/judge/mistakes.hpp"

namespace workbook::test::ch06 {

/// D = rowsum(dO∘O) alone, (B, H, Nq, 1), of an O (B, H, Nq, d); and the LSE in units of log2, as the kernels want it.
std::vector<judge::Mistake> D_mistakes(const Tensor<double>& O, const Tensor<double>& dO);
std::vector<judge::Mistake> log2_lse_mistakes(const Tensor<double>& lse);

}  // namespace workbook::test::ch06
