// The known mistakes of chapter 6 that other files name.
#pragma once

#include <functional>
#include <vector>

#include "common/judge/mistakes.hpp"

namespace workbook::test::ch06 {

/// D = rowsum(dO∘O) alone, (B, H, Nq, 1), of an O (B, H, Nq, d); and the LSE in units of log2, as the kernels want it.
std::vector<judge::Mistake> D_mistakes(const Tensor<double>& O, const Tensor<double>& dO);
std::vector<judge::Mistake> log2_lse_mistakes(const Tensor<double>& lse);

/// P of a pair that does not count is multiplied by 0, in blocks of pairs that are visited.
inline constexpr const char* pairs_multiplied =
    "P of a pair that does not count is multiplied by 0, and may be infinite by then, which makes it NaN: choose 0";
void multiply_uncounted(judge::GradientModel& m, const std::function<bool(judge::Index i, judge::Index j)>& visited);

}  // namespace workbook::test::ch06
