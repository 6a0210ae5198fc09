// What of attention's backward pass is lost in fp16, by the length of the sequence and the loss scale. Computed on the
// CPU: the float64 oracle beside the same pass with fp16's roundings.
#pragma once

#include <cstdint>
#include <vector>

namespace workbook::training {

struct UnderflowOptions {
  std::vector<std::int64_t> lengths{256, 1024, 4096};  ///< N: Nq = Nk, one head, no mask
  std::vector<int> scale_exponents{0, 8, 16, 24};      ///< log2 of the loss scale
  std::int64_t d = 64;
  /// The loss is the mean over so many tokens: 16 sequences of 1024.
  std::int64_t tokens = std::int64_t{1} << 14;
  /// Root mean square of the gradient of one token's own loss with respect to an element of its row of O; dO is that,
  /// normal, divided by `tokens`. 0.2 is about what the model of `./workbook train` has (notes/training.md).
  double gradient = 0.2;
  std::uint64_t seed = 1;
};

struct UnderflowRow {
  std::int64_t N = 0;
  int scale_exponent = 0;
  double zero_dO = 0, zero_dP = 0, zero_dS = 0;  ///< share of elements that become 0 in fp16
  double infinite = 0;                           ///< share of the elements of dO, dP and dS that become infinite
  /// ‖got - exact‖ / ‖exact‖ over all elements; not finite if a gradient is infinite or NaN.
  double error_dQ = 0, error_dK = 0, error_dV = 0;
};

/// One row for every length and scale. Q, K, V: unit normal, rounded to fp16. The pass rounds where chapter 6 does in
/// fp16: dO·scale on its way in, P, dS, and the gradients on their way out; S, dP, D and all sums stay float. The share
/// of dP is what a pass that stores it would lose. Takes about 10·N²·d multiply-adds for each row, and
/// O(N·d) memory.
std::vector<UnderflowRow> underflow_table(const UnderflowOptions& options = {});

}  // namespace workbook::training
