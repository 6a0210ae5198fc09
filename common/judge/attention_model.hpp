// A simple and correct attention in which every step can be changed. With one change it computes the output of a wrong
// kernel. It computes in float, as the stages do, so that exp overflows in the same cases. Chapters declare their
// mistakes (mistakes.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/attention/tolerance.hpp"
#include "common/judge/compare.hpp"

namespace workbook::judge {

using Index = std::int64_t;
inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr float log2_e = 1.44269504088896340736F, ln_2 = 0.693147180559945309417F;

/// The rounding of a float to a storage format.
using Rounding = float (*)(float);
float unrounded(float x);
float to_fp16(float x);
float to_bf16(float x);
float to_e4m3_with_offset(float x);  ///< x·2^8 as e4m3, over 2^8
struct Format {
  const char* name;
  Rounding rounded;
};
inline constexpr Format formats[] = {{"bf16", to_bf16}, {"fp16", to_fp16}};
/// The rounding to the format with this unit roundoff: 2^-11 for fp16, 2^-8 for bf16, 2^-4 for e4m3.
Rounding rounding_of(double roundoff);

Index round_down(Index value, Index step);
Index round_up(Index value, Index step);

/// A stage in which each lane owns one row of Q and a warp has 32 adjacent rows, as in chapter 4 and later.
struct LaneRows {
  Index step = 0;           ///< the number of keys that enter m, l and O in one step; 0: lanes own no rows
  float slack = 0;          ///< m changes only if a score exceeds it by more than this (natural units)
  bool last_first = false;  ///< the keys are processed in descending order of steps
};

/// The tiling of a stage: tile sizes (0: untiled), the number of warps that divide the keys of a tile evenly (0: none),
/// and the steps of lanes through their rows.
struct Tiling {
  Index Br = 0, Bc = 0, key_warps = 0;
  LaneRows lane_rows = {};
};

struct Range {
  Index from = 0, to = std::numeric_limits<Index>::max();
  bool contains(Index i) const { return from <= i && i < to; }
};

/// The inputs of one head as the stage reads them.
struct Head {
  Index b, h;
  std::vector<float> Q, K, V;  ///< (Nq, d), (Nk, d), (Nk, d)
};

/// The state of one query in the loop over the keys.
struct Row {
  const Head* head;
  Index query;
  float m = -infinity, l = 0;
  std::vector<float> O = {};
  // The current step. S, P and weights have one element per key.
  Index number = 0;   ///< index of the step
  Index first = 0;    ///< first key of the step
  Index keys = 0;     ///< number of existing keys in the step
  bool last = false;  ///< whether this is the last step
  std::vector<float> S = {}, P = {}, weights = {};
  float m_tile = 0;  ///< maximum of S
  float m_old = 0;
  float subtracted = 0;  ///< P = exp(S - subtracted)
  float l_factor = 0, O_factor = 0;
  float sum = 0;  ///< of P
};

/// A named point of the algorithm. The functions added there run in order and may change the row.
class Point {
 public:
  using Change = std::function<void(Row&)>;
  void operator()(Change change) { changes_.push_back(std::move(change)); }
  void reach(Row& row) const {
    for (const Change& change : changes_) change(row);
  }

 private:
  std::vector<Change> changes_;
};

/// The element of a tensor that is read or written for (b, h, row, column). -1: none, which reads as 0.
using Place = std::function<Index(const Tensor<float>&, Index b, Index h, Index row, Index column)>;

class AttentionModel {
 public:
  AttentionModel(const Problem& problem, const Tiling& tiling, const Precision& precision);
  /// A model of given scores (1, 1, Nq, Nk), in blocks of Bc keys (0: all at once), without V and O.
  explicit AttentionModel(const Tensor<float>& S, Index Bc = 0);

  std::shared_ptr<const Problem> problem;
  std::shared_ptr<const Tensor<float>> given_S;
  Tiling tiling;
  Index step;                                                        ///< keys that enter m, l and O at once
  std::map<std::string, std::string> words{{"{tile}", "K/V tile"}};  ///< replacements for placeholders in a sentence

  Rounding round_P, round_O;  ///< of P before the PV matmul, and of the stored O

  // The inputs.
  Place Q, K, V, written;
  std::function<void(std::vector<float>& rows, bool of_queries)> rotated;  ///< RoPE of Q or K; empty: none
  std::function<Index(Index h)> kv_head;                                   ///< head of Q -> its head of K and V
  Range keys;                                                              ///< keys over which the stage loops
  std::function<Index(Index)> goes_to;  ///< query -> end of its loop, rounded up to a tile; empty: all keys
  std::function<Range(Index)> sees;     ///< query -> range from its first to its last unmasked key
  std::function<bool(Index query, Index key)> counts;  ///< which keys of the range are unmasked; empty: all
  /// The modification of a scaled score.
  std::function<float(const Head&, Index query, Index key, float score)> changed;
  std::function<float(const Head&)> sink;  ///< an additional logit (attention sink) in l; empty: none
  float padding_score = -infinity;         ///< score of keys that pad the last tile
  float scale;
  Range features;  ///< columns of Q and K that enter the scores
  // The softmax.
  float first_m = -infinity;
  bool safe_m = true;  ///< 0 is subtracted instead of a maximum of -inf
  float (*exponential)(float);
  int divisions = 1;          ///< number of divisions of O by l after the last tile
  bool safe_division = true;  ///< a row with l = 0 gives 0
  std::function<float(float m, float l)> lse;
  // The outputs.
  Range rows;
  Index heads_written;
  std::function<float(const Head&, Index query, Index key)> kept;  ///< dropout factor of P before PV; empty: 1
  float unwritten = unwritten_value;                               ///< value of elements that are not written

  // The points, in the order of a step.
  Point after_scores;
  Point after_maximum;        ///< m_tile, m and subtracted are set
  Point after_probabilities;  ///< P is set
  Point after_factors;        ///< l_factor and O_factor are set
  Point after_sum;            ///< the sum of P is set, but not yet added to l
  Point after_weights;        ///< P is rounded for the PV matmul; untiled stages have divided it by l
  Point after_step;
  Point after_last;  ///< after the last step and the division by l

  bool causal() const { return problem->causal(); }
  bool unmasked() const { return problem->mask.kind == Mask::none; }
  bool tiled() const { return tiling.Bc > 0; }
  bool several_tiles() const { return tiled() && Nk() > step; }
  bool rounds_P() const { return round_P != unrounded; }
  bool lanes_own_rows() const { return tiling.lane_rows.step > 0; }
  Index Nq() const { return problem->shape.Nq; }
  Index Nk() const { return problem->shape.Nk; }
  Index d() const { return problem->shape.d; }
  /// The number of unmasked keys of a query by the right mask; any integer is accepted as a query.
  Index visible(Index query) const { return visible_keys(query, Nq(), Nk(), causal()); }
  /// The last query of the Q tile of `query`.
  Index last_of_tile(Index query) const;
  /// The warp that computes with key j of a step.
  Index warp_of(Index j) const { return tiling.key_warps > 0 ? j / (tiling.Bc / tiling.key_warps) : 0; }

  Head read(Index b, Index h) const;
  /// scale·Q_i·K_j over `features`; 0 if the query or key does not exist.
  float score(const Head& head, Index query, Index key) const;
  /// Sets m, m_tile and subtracted for a step whose largest score is `largest`.
  void raise(Row& row, float largest) const;
  float safe(float m) const { return m == -infinity && safe_m ? 0 : m; }
  float divided(float value, float l) const { return l == 0 && safe_division ? 0 : value / l; }
  /// Processes all keys of a query; calls `look` after each step.
  Row attend(const Head& head, Index query, const std::function<void(const Row&)>& look = {}) const;

  Tensor<double> O() const { return attend_all().first; }
  Tensor<double> LSE() const { return attend_all().second; }
  /// S and P (B, H, Nq, Nk) of an untiled stage. Elements that are not visited stay unwritten.
  Tensor<double> S() const;
  Tensor<double> P() const;
  /// Multiply-adds of one pass.
  double cost() const;

 private:
  AttentionModel(std::shared_ptr<const Problem> problem, const Tiling& tiling, const Precision& precision);
  std::pair<Tensor<double>, Tensor<double>> attend_all() const;
  Tensor<double> scores_or_weights(std::vector<float> Row::*member) const;
};

}  // namespace workbook::judge
