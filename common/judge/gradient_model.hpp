// A simple and correct backward pass in which every part can be changed, as in attention_model.hpp. P and dS are
// computed in float and rounded as in the stage; sums are in float64.
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
  /// `gradient`: "dQ", "dK" or "dV". `owned`: rows that a block owns. `passing`: rows of a tile over which it loops.
  /// Both are 0 for an untiled stage.
  GradientModel(const std::string& gradient, const worker::BackwardProblem& inputs, Index owned, Index passing,
                const Precision& precision);

  std::shared_ptr<const worker::BackwardProblem> inputs;
  bool of_queries, of_values;  ///< dQ's rows are queries; dV takes P, the others dS
  Index owned, passing;
  Rounding rounded;  ///< rounding to the stage's element
  bool rounds_P;     ///< whether P and dS are rounded
  bool rounds_gradients;
  std::map<std::string, std::string> words;  ///< replacements for {gradient}, {element} and {P} in a sentence

  // The parts. (i, j): a query and a key of a head.
  /// The sources of a head of Q, counted through the batch: the heads from which K and V, Q and dO, and LSE and D are
  /// read. `to`: the head of the gradient to which the result is added, -1 for none. `sees` overrides the model's mask.
  struct Heads {
    Index of_keys, of_queries, of_rows, to;
    std::function<bool(Index i, Index j)> sees = {};
  };
  std::function<Heads(Index head)> heads;
  std::function<double(Index head, Index i)> D;    ///< rowsum(dO∘O)
  std::function<double(Index head, Index i)> lse;  ///< natural logarithm
  std::function<bool(Index i, Index j)> sees;
  bool masks_P = true;  ///< P is 0 for masked pairs; false: only dS is
  float unseen = 0;     ///< value of P and dS of masked pairs
  float score_scale;
  /// The score modification of a pair and its derivative; empty: the identity and 1.
  std::function<double(Index head, Index i, Index j, double score)> changed;
  std::function<double(double score)> derivative;
  /// P from a scaled score, the row's LSE and its largest unmasked score.
  std::function<float(double score, double lse, double maximum)> P;
  bool dP_of_K = false;  ///< dP = dO·Kᵀ
  /// The position from which the element at (row, column) is read when S and dP are computed: for Q and dO, and for K
  /// and V. Positions outside the tensor read as 0. Empty: the position itself.
  struct Place {
    Index row, column;
  };
  using Places = std::function<Place(Index row, Index column)>;
  static constexpr Place nowhere{-1, -1};
  Places of_queries_in_scores, of_keys_in_scores;
  Places of_queries_in_dP, of_keys_in_dP;              ///< positions of dO and V in dP, if they differ
  std::function<float(Index column)> times_in_scores;  ///< weight of a column in S and dP; empty: 1
  std::function<float(float P, double dP, double D)> dS;
  bool dS_of_product = false;                         ///< dS = (Q·Kᵀ)∘(dP - D)
  std::function<Index(Index i, Index j)> query_of;    ///< the query whose LSE and D the pair uses
  std::function<Index(Index i, Index j)> query_of_D;  ///< the query whose D is used; empty: query_of
  // The matmul for the gradient: scale·(dS or P)·(K, Q or dO).
  bool left_is_P;
  bool left_is_transposed = false;  ///< P or dS is transposed by mistake
  /// The positions from which the matmul reads its operands: P or dS at (i, j), and the right operand at (other,
  /// column). `half` is 1 for columns of the gradient from d / 2 on, which may read P or dS from other positions.
  std::function<Place(Index i, Index j, int half)> in_left;
  Places in_right;
  bool other_right = false;  ///< the right operand is the other tensor with the same rows: V, dO, Q instead of K, Q, dO
  std::function<Index(Index other)> right_row;  ///< row of the right operand for `other`
  std::function<bool(Index row, Index other)> counts;
  std::function<double(Index head, Index row)> added;  ///< added to each element of a row; empty: nothing
  std::function<void(Index row, std::vector<double>& sums)> sums_to;  ///< modifies a row's sums; empty: no change
  double factor;
  std::function<void(std::vector<float>& rows, bool of_queries)> rotated;  ///< RoPE of a head of Q or K; empty: none
  std::function<void(Tensor<double>& sums)> rotated_back;    ///< inverse RoPE of dQ or dK, before `moved`; empty: none
  std::function<double(Index head, Index i, Index j)> kept;  ///< dropout factor of dP; empty: 1
  std::function<double(Index head, Index i, Index j)> kept_P;  ///< dropout factor of P in dV; empty: 1
  bool kept_dS = false;                                        ///< dS of a dropped pair is 0
  std::function<void(Tensor<double>& sums)> moved;             ///< modifies all sums, times `factor`; empty: no change

  Index Nq() const { return inputs->problem.shape.Nq; }
  Index Nk() const { return inputs->problem.shape.Nk; }
  Index d() const { return inputs->problem.shape.d; }
  bool causal() const { return inputs->problem.causal(); }
  bool tiled() const { return owned > 0 && passing > 0; }
  Index offset() const { return Nk() - Nq(); }  ///< query i sees the keys j <= i + offset
  /// exp(score - LSE) of a query as in the stage: kernels treat an LSE of -inf as +inf.
  float probability(Index head, Index i, double score, double maximum) const;

  /// The gradient, (B, H, Nq, d) or (B, Hkv, Nk, d).
  Tensor<double> compute() const;
  /// The number of multiply-adds of compute().
  double cost() const;

 private:
  struct Weights {
    std::vector<float> P, dS;  ///< (Nq, Nk)
  };
  Weights weights_of(const Heads& taken) const;
  void add_head(Index head, Tensor<double>& result) const;
};

}  // namespace workbook::judge
