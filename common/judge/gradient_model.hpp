// One backward pass, plain and right, whose every part can be made to deviate, as attention_model.hpp's. P and dS are
// formed in float and rounded as the stage does; sums are in float64.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/judge/attention_model.hpp"
#include "common/worker/calls.hpp"

namespace workbook::judge {

class GradientModel {
 public:
  /// `gradient`: "dQ", "dK" or "dV". `owned`: rows that a block owns, `passing`: rows of a tile that passes by; 0 for
  /// an untiled stage.
  GradientModel(const std::string& gradient, const worker::BackwardProblem& inputs, Index owned, Index passing,
                const Precision& precision);

  std::shared_ptr<const worker::BackwardProblem> inputs;
  bool of_queries, of_values;  ///< dQ's rows are queries; dV takes P, the others dS
  Index owned, passing;
  Rounding rounded;  ///< to the stage's element
  bool rounds_P;     ///< P and dS are
  bool rounds_gradients;
  std::map<std::string, std::string> words;  ///< {gradient}, {element}, {P}: what stands for them in a sentence

  // The parts. (i, j): a query and a key of a head.
  /// Of a head of Q, counted through the batch: whose K and V, Q and dO, and LSE and D are taken for it, the head of
  /// the gradient that its part is added to, -1 for none, and which keys its queries see, if others than `sees` says.
  struct Heads {
    Index of_keys, of_queries, of_rows, to;
    std::function<bool(Index i, Index j)> sees = {};
  };
  std::function<Heads(Index head)> heads;
  std::function<double(Index head, Index i)> D;    ///< rowsum(dO∘O)
  std::function<double(Index head, Index i)> lse;  ///< a natural logarithm
  std::function<bool(Index i, Index j)> sees;
  bool masks_P = true;  ///< P is 0 where i does not see j; false: only dS is
  float unseen = 0;     ///< what P and dS are there
  float score_scale;
  /// Of a pair: what becomes of its scaled score, and the derivative of that; empty: the score, and 1.
  std::function<double(Index head, Index i, Index j, double score)> changed;
  std::function<double(double score)> derivative;
  /// From a scaled score, the row's LSE and the largest score that it sees.
  std::function<float(double score, double lse, double maximum)> P;
  bool dP_of_K = false;  ///< dP = dO·Kᵀ
  /// Where an element lies that is taken for the one at (row, column): of Q and dO, and of K and V, as S and dP are
  /// formed from them. 0 is taken for what no tensor has. Empty: its own place.
  struct Place {
    Index row, column;
  };
  using Places = std::function<Place(Index row, Index column)>;
  static constexpr Place nowhere{-1, -1};
  Places of_queries_in_scores, of_keys_in_scores;
  Places of_queries_in_dP, of_keys_in_dP;              ///< if others in dP: of dO and V
  std::function<float(Index column)> times_in_scores;  ///< how often a column has its part in S and dP; empty: once
  std::function<float(float P, double dP, double D)> dS;
  bool dS_of_product = false;                         ///< dS = (Q·Kᵀ)∘(dP - D)
  std::function<Index(Index i, Index j)> query_of;    ///< whose LSE and D the pair takes
  std::function<Index(Index i, Index j)> query_of_D;  ///< whose D, if another's; empty: query_of's
  // The product, of a row of the gradient with all others: scale·(dS or P)·(K, Q or dO).
  bool left_is_P;
  bool left_is_transposed = false;  ///< the wrong way round
  /// Of P or dS, (i, j), and of what it is multiplied with, (other, column): whose element is taken in the product. The
  /// former may be others for columns of the gradient from d / 2 on: then `half` is 1.
  std::function<Place(Index i, Index j, int half)> in_left;
  Places in_right;
  bool other_right = false;  ///< the other tensor of the same rows is taken: V, dO and Q for K, Q and dO
  std::function<Index(Index other)> right_row;  ///< that `other` is multiplied with
  std::function<bool(Index row, Index other)> counts;
  std::function<double(Index head, Index row)> added;                 ///< to each element of a row; empty: nothing
  std::function<void(Index row, std::vector<double>& sums)> sums_to;  ///< what becomes of a row's sums; empty: nothing
  double factor;
  std::function<void(std::vector<float>& rows, bool of_queries)> rotated;  ///< of a head of Q or K; empty: nothing
  std::function<void(Tensor<double>& sums)> rotated_back;                  ///< dQ or dK, before `moved`
  std::function<double(Index head, Index i, Index j)> kept;                ///< what dP is multiplied with; empty: 1
  std::function<double(Index head, Index i, Index j)> kept_P;              ///< and P in dV
  bool kept_dS = false;                                                    ///< of a pair that is dropped dS is 0
  std::function<void(Tensor<double>& sums)> moved;  ///< what becomes of all sums, times factor; empty: nothing

  Index Nq() const { return inputs->problem.shape.Nq; }
  Index Nk() const { return inputs->problem.shape.Nk; }
  Index d() const { return inputs->problem.shape.d; }
  bool causal() const { return inputs->problem.causal(); }
  bool tiled() const { return owned > 0 && passing > 0; }
  Index offset() const { return Nk() - Nq(); }  ///< query i sees the keys j <= i + offset
  /// exp(score - LSE) of a query, as the stage forms it: kernels take an LSE of -inf for +inf.
  float probability(Index head, Index i, double score, double maximum) const;

  /// The gradient, (B, H, Nq, d) or (B, Hkv, Nk, d).
  Tensor<double> compute() const;
  /// Multiply-adds that it takes.
  double cost() const;

 private:
  struct Weights {
    std::vector<float> P, dS;  ///< (Nq, Nk)
  };
  Weights weights_of(const Heads& taken) const;
  void add_head(Index head, Tensor<double>& result) const;
};

}  // namespace workbook::judge
