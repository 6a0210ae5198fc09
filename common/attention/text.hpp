// Real input without any download: bytes of a text become tokens, a small seeded embedding and projections make Q, K
// and V of them, so that the rows are correlated as a model's are.
#pragma once

#include <cstdint>
#include <string>

#include "common/attention/problem.hpp"

namespace workbook {

/// Q, K, V (1, H, N, d) from the first `shape.Nq` bytes of `text` (Nq = Nk): byte embeddings and sinusoidal positions
/// of width H·d, RMS-normalised, times three seeded projections. scale 0 is 1/√d. InputError if the text has fewer
/// bytes than N, B is not 1 or Nq is not Nk.
Problem embed_text(const std::string& text, const Shape& shape, const Mask& mask, float scale, std::uint64_t seed);

}  // namespace workbook
