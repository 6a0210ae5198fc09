// Naming the mistake: a wrong output is compared with what known mistakes would have given for the same inputs.
//
// diagnosis.cpp is the engine and knows no mistake; each table of mistakes has a file of its own (mistakes_*.cpp).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/attention/tolerance.hpp"

namespace workbook::book {

/// A known mistake, and the output that it gives (computed only when a test has failed).
struct Mistake {
  std::string id;        ///< "no-scale"; mutants name it. Two entries of a table may share it: two ways to make it
  std::string sentence;  ///< "the scores are not multiplied by the scale 1/√d"
  std::function<Tensor<double>()> output;
  double cost = 0;  ///< multiply-adds that output() takes, roughly
};

struct Diagnosis {
  std::string id, sentence;       ///< the sentence goes on with ", or …" where `also` is not empty
  double difference = 0;          ///< largest difference between the output and the mistake's
  std::vector<std::string> also;  ///< ids of other mistakes that give these same numbers for this input
};

/// The mistake whose output agrees with `got` within a small multiple of the bounds, NaN and infinities in the same
/// places, and is itself clearly different from `expected`; the closest if several agree, and the first in the table
/// of those that agree equally. Empty if none does, or if `got` is within the bounds: then the message says so
/// honestly. Mistakes are tried in order until 2^32 multiply-adds are spent, about a second;
/// one that would exceed that is passed over.
std::optional<Diagnosis> diagnose(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                                  const std::vector<Mistake>& mistakes);

// The mistakes keep a reference to nothing: the inputs are copied once into the table.

/// The known mistakes of the forward pass, as a stage of `precision` makes them. Br and Bc: tile sizes of the call, 0
/// for untiled stages (then mistakes that need tiles are left out).
std::vector<Mistake> output_mistakes(const Problem& problem, std::int64_t Br, std::int64_t Bc,
                                     const Precision& precision = float32_precision());
std::vector<Mistake> lse_mistakes(const Problem& problem, std::int64_t Br, std::int64_t Bc,
                                  const Precision& precision = float32_precision());

/// For the parts that chapters 1 and 2 test alone. Q: (1, 1, Nq, d), K: (1, 1, Nk, d), S: (1, 1, Nq, Nk). The scores
/// are masked where problem.causal says so; masked elements of S are -inf.
std::vector<Mistake> score_mistakes(const Problem& problem);
std::vector<Mistake> softmax_mistakes(const Tensor<float>& S);
std::vector<Mistake> row_lse_mistakes(const Tensor<float>& S);
std::vector<Mistake> product_mistakes(const Tensor<float>& P, const Tensor<float>& V);

/// The running state of a row x of scores, taken in blocks of `block`: m and l as a (1, 1, 1, 2) tensor.
std::vector<Mistake> state_mistakes(std::span<const float> x, std::int64_t block);
/// Merging two partial states: m[2], l[2] and the undivided O (2, d) into m, l, O: (1, 1, 1, 2 + d).
std::vector<Mistake> merge_mistakes(std::span<const float> m, std::span<const float> l, std::span<const float> O);

}  // namespace workbook::book
