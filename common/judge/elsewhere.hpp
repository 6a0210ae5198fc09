// Numbers that are right, but stand in another place than their own.
#pragma once

#include <string>

#include "common/judge/compare.hpp"

namespace workbook::judge {

/// "row 16 holds what belongs in row 0, row 17 what belongs in row 1": of what is off, half and more is what is
/// expected in one other place, and in no third one. Of many that are off some are asked. Empty where that is not so.
std::string belongs_elsewhere(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                              const Layout& layout);

}  // namespace workbook::judge
