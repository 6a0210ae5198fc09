// Realistic input without a download: the bytes of a text are tokens, and a small seeded embedding and projections
// compute Q, K and V, so that the rows are correlated like a model's.
#pragma once

#include <cstdint>
#include <string>

#include "common/attention/problem.hpp"

namespace workbook {

/// Q, K, V from the first `shape.Nk` bytes of `text`: byte embeddings and sinusoidal positions of width H·d,
/// RMS-normalised, times three seeded projections. Q (1, H, Nq, d) is computed from the last Nq bytes; K and V (1, Hkv,
/// Nk, d) have one of the H heads per group. scale 0 means 1/√d. InputError if the text has fewer bytes than Nk, B is
/// not 1 or Nq exceeds Nk.
Problem embed_text(const std::string& text, const Shape& shape, const Mask& mask, float scale, std::uint64_t seed);

}  // namespace workbook
