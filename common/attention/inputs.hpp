// Test inputs: named generators, each designed to expose one family of mistakes, and seeded random numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/attention/problem.hpp"

namespace workbook {

/// The options of every generator. d is any positive number; scale = 0 means 1/√d.
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
/// All generators by name: "normal" (unit normal Q, K, V), "value mean" (V has mean 3, which exposes a wrongly scaled
/// output), "rising maximum" (row maxima grow with the key index, so that every later tile raises m; the largest in the
/// last tile), "falling maximum" (the first key is the largest), "large logits" (scaled scores reach about ±100), "one
/// hot" (one key takes almost all weight), "uniform" (Q = 0: P = 1/n), "late spike" (one key in the last, partial tile
/// dominates some rows), "negative logits" (all scores below -100, which exposes a maximum that starts at 0).
const std::vector<InputKind>& input_kinds();

/// Generates the problem. Deterministic in (kind, options) on every platform: it uses its own generator instead of
/// std::normal_distribution. For an unknown kind, an InputError lists the kinds.
Problem make_input(const std::string& kind, const InputOptions& options);

/// The seed of a grading, to which the tests' seeds are added, so that no answer can have a table of their inputs: the
/// environment's WORKBOOK_SEED. 0 elsewhere.
std::uint64_t grading_seed();

/// `count` numbers from a seeded unit normal distribution (with grading_seed() added; the same on every platform).
std::vector<float> normal_values(std::size_t count, std::uint64_t seed);

}  // namespace workbook
