// Compares the output of a stage with the oracle and reports where it is wrong and by how much.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "common/attention/tolerance.hpp"
#include "common/judge/observation.hpp"

namespace workbook::judge {

/// The names of a tensor's four axes in a message, and how its rows are divided into tiles and warps.
struct Layout {
  std::string tensor;                                        ///< "O", "lse", "S"
  std::string axes[4] = {"batch", "head", "row", "column"};  ///< an axis with an empty name is omitted from messages
  /// 0: not tiled. Br divides axis 2 into Q tiles; without Br, Bc divides it into K/V tiles (dK, dV). Each warp of a
  /// tile has rows_per_warp consecutive rows.
  std::int64_t Br = 0, Bc = 0, rows_per_warp = 0;
  /// The parts of a tensor that holds several tensors side by side, such as m and l. Each part ends at the first column
  /// of the next one. Empty: a single tensor.
  struct Part {
    std::string name;
    std::int64_t first_column = 0;
  };
  std::vector<Part> parts = {};
};

/// The NaN with which outputs are initialised before a call: all bits set, or the same in 16-bit codes widened to
/// floats. Computations produce a different NaN.
bool is_unwritten(double value);
inline constexpr float unwritten_value = std::bit_cast<float>(0xffffffffu);

struct Comparison {
  bool close = true;
  std::int64_t elements = 0, off = 0;  ///< the number of elements, and of those that exceed their bound
  /// Error and bound of the element with the largest ratio of the two. The error is infinite for NaN or a wrong
  /// infinity.
  double max_error = 0, bound = 0;
  double rms_error = 0, rms_bound = 0;  ///< without NaN and wrong infinities
  /// Empty if close. Otherwise the counts, the worst element, the pattern, the first five elements and the origin of
  /// the bound. Lines are indented by at least two spaces; no newline follows the last one.
  std::string text;
  std::vector<TensorFinding> findings;  ///< one, or one per part of the layout
};

/// An element is wrong ("off") if |got - expected| exceeds its bound, if got is NaN where expected is not, or if got
/// lacks an expected infinity. Sizes must agree (std::logic_error).
Comparison compare(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                   const Layout& layout);

/// The same for outputs of attention, whose references and bounds must be finite, apart from an LSE of −∞: an element
/// whose reference or bound is not finite is never close, even if the output is the same NaN.
Comparison compare_finite(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                          const Layout& layout);

}  // namespace workbook::judge
