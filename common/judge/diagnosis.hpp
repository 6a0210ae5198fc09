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

namespace workbook::judge {

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
/// honestly. Mistakes are tried in order until 2^32
/// multiply-adds are spent, about a second; one that would exceed that is passed over.
std::optional<Diagnosis> diagnose(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                                  const std::vector<Mistake>& mistakes);

/// One tensor of an answer that has several.
struct Answered {
  const Tensor<float>* got;
  const Tensor<double>* expected;
  const Bounds* bounds;
  const std::vector<Mistake>* mistakes;
  bool right;  ///< within the bounds
};
/// The mistake in the first of them that tells one. From a tensor that is nothing but NaN nothing is concluded, since
/// many mistakes end so; unless all others are right, and of the known mistakes only one does that.
std::optional<Diagnosis> diagnose(const std::vector<Answered>& answer);

// The mistakes keep a reference to nothing: the inputs are copied once into the table.

/// A stage whose lanes own a row of Q each, 32 neighbours in a warp: chapter 4's and later ones.
struct LaneRows {
  std::int64_t step = 0;  ///< so many keys of a tile enter m, l and O at once; 0: lanes own no rows
  float slack = 0;        ///< m moves only if a score exceeds it by more (natural units)
};

/// The known mistakes of the forward pass, as a stage of `precision` makes them. Br and Bc: tile sizes of the call, 0
/// for untiled stages (then mistakes that need tiles are left out). key_warps: how many warps split the keys of a tile
/// in equal runs, 0 where none do (then their mistakes are left out).
std::vector<Mistake> output_mistakes(const Problem& problem, std::int64_t Br, std::int64_t Bc,
                                     const Precision& precision = float32_precision(), std::int64_t key_warps = 0,
                                     const LaneRows& lane_rows = {});
std::vector<Mistake> lse_mistakes(const Problem& problem, std::int64_t Br, std::int64_t Bc,
                                  const Precision& precision = float32_precision(), std::int64_t key_warps = 0,
                                  const LaneRows& lane_rows = {});

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

/// Chapter 3's warm-ups. C (1, 1, 16, 16) = A·Bᵀ of two (1, 1, 16, 16) matrices.
std::vector<Mistake> transposed_product_mistakes(const Tensor<float>& A, const Tensor<float>& B);
/// The transpose (1, 1, columns, rows) of a matrix (1, 1, rows, columns), by tiles of side × side.
std::vector<Mistake> transpose_mistakes(const Tensor<float>& matrix, std::int64_t side);

/// The known mistakes of the backward pass in one of its gradients, "dQ", "dK" or "dV", as a stage of `precision` makes
/// them that is given O and the LSE as saved. `owned`: rows that a block owns, `passing`: rows of a tile that passes
/// by; 0 for an untiled stage (then mistakes that need tiles are left out).
std::vector<Mistake> gradient_mistakes(const std::string& gradient, const Problem& problem, const Tensor<double>& dO,
                                       const Saved& saved, std::int64_t owned, std::int64_t passing,
                                       const Precision& precision);
/// D = rowsum(dO∘O) alone, (B, H, Nq, 1), of an O (B, H, Nq, d); and the LSE in units of log2, as the kernels want it.
std::vector<Mistake> D_mistakes(const Tensor<double>& O, const Tensor<double>& dO);
std::vector<Mistake> log2_lse_mistakes(const Tensor<double>& lse);

}  // namespace workbook::judge
