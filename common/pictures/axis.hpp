// An axis on which powers are equally far apart.
#pragma once

#include <cmath>

namespace workbook::pictures {

struct LogAxis {
  double low, high;  ///< values at its ends
  double from, to;   ///< pixels
  double operator()(double value) const { return from + (to - from) * std::log(value / low) / std::log(high / low); }
};

}  // namespace workbook::pictures
