// Comparing what a stage gave with the oracle, and saying precisely where and by how much it is off.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "common/attention/tolerance.hpp"
#include "common/judge/trial.hpp"

namespace workbook::judge {

/// What the four axes of a tensor are called in a message, and how rows fall into tiles and warps.
struct Layout {
  std::string tensor;                                        ///< "O", "lse", "S"
  std::string axes[4] = {"batch", "head", "row", "column"};  ///< an empty name leaves the axis out of messages
  /// 0: not tiled. Br divides axis 2 into Q tiles; without Br, Bc divides it into K/V tiles (dK, dV). Each tile's rows
  /// are dealt to the warps in runs of rows_per_warp.
  std::int64_t Br = 0, Bc = 0, rows_per_warp = 0;
  /// What the columns hold where a tensor is several put side by side, such as m and l: each begins at a column and
  /// ends where the next begins. Empty: one tensor.
  struct Part {
    std::string name;
    std::int64_t first_column = 0;
  };
  std::vector<Part> parts = {};
};

/// The NaN that outputs hold before a call, all bits set, or that with its codes widened to floats; computing gives
/// another one.
bool is_unwritten(double value);
inline constexpr float unwritten_value = std::bit_cast<float>(0xffffffffu);

struct Comparison {
  bool close = true;
  std::int64_t elements = 0, off = 0;  ///< how many there are, how many exceed their bound
  /// Error and bound of the element that uses most of its bound; an infinite error for NaN or a wrong infinity.
  double max_error = 0, bound = 0;
  double rms_error = 0, rms_bound = 0;  ///< NaN and wrong infinities left out
  /// Empty if close. Else counts, worst, where they lie, first five, bound's origin: the lines after the header in
  /// style.md, indented by two spaces and more, without a line end after the last.
  std::string text;
  std::vector<TensorFinding> findings;  ///< one, or one for each part of the layout
};

/// An element is off if |got - expected| exceeds its bound, if got is NaN where expected is not, or if an infinity is
/// expected and not given. Sizes must agree (std::logic_error).
Comparison compare(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                   const Layout& layout);

}  // namespace workbook::judge
