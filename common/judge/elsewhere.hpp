// Values that are right but stored at a wrong position.
#pragma once

#include <string>

#include "common/judge/compare.hpp"

namespace workbook::judge {

/// "row 16 holds what belongs in row 0, row 17 what belongs in row 1": at least half of the wrong elements hold the
/// expected values of exactly one other position. If many elements are wrong, a sample is checked. Empty if the values
/// are not those of another position.
std::string belongs_elsewhere(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                              const Layout& layout);

}  // namespace workbook::judge
