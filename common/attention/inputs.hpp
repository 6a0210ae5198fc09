// Inputs that bite: named generators, each made to expose one family of mistakes, and plain seeded random ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/attention/problem.hpp"

namespace workbook {

/// What every generator takes. d any positive number; the generator resolves scale = 0 to 1/√d.
struct InputOptions {
  Shape shape;
  Mask mask = Mask::none;
  float scale = 0;
  std::uint64_t seed = 1;
};

/// A named generator and the mistake it exposes.
struct InputKind {
  std::string name;     ///< "rising maximum"
  std::string exposes;  ///< "a running sum or output that is not rescaled when a later tile raises the maximum"
};
/// All generators by name: "normal" (unit normal Q, K, V), "value mean" (V with mean 3: an output scaled wrongly
/// shows), "rising maximum" (row maxima grow with the key index, so that every later tile raises m; the largest in the
/// last tile), "falling maximum" (the first key is the largest), "large logits" (scaled scores reach about ±100), "one
/// hot" (one key takes almost all weight), "uniform" (Q = 0: P = 1/n), "late spike" (one key in the last, ragged
/// positions dominates some rows), "negative logits" (all scores below -100: a maximum that starts at 0 shows).
const std::vector<InputKind>& input_kinds();

/// Makes the problem. Deterministic in (kind, options) on every platform: own generator, no std::normal_distribution.
/// InputError for an unknown kind, listing those that exist.
Problem make_input(const std::string& kind, const InputOptions& options);

/// `count` numbers from a seeded unit normal distribution (the same on every platform).
std::vector<float> normal_values(std::size_t count, std::uint64_t seed);

}  // namespace workbook
