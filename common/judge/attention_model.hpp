// One attention, plain and right, whose every step can be made to deviate: what a wrong kernel would have given is what
// this gives with one change. It computes in float, as the stages do, so that an exp that overflows there overflows
// here. It knows no mistake: a chapter declares its own (mistakes.hpp).
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

/// A float as it is stored somewhere.
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
/// The format that has this unit roundoff: 2^-11 is fp16's, 2^-8 bf16's, 2^-4 e4m3's.
Rounding rounding_of(double roundoff);

Index round_down(Index value, Index step);
Index round_up(Index value, Index step);

/// A stage whose lanes own a row of Q each, 32 neighbours in a warp: chapter 4's and later ones.
struct LaneRows {
  Index step = 0;           ///< so many keys of a tile enter m, l and O at once; 0: lanes own no rows
  float slack = 0;          ///< m moves only if a score exceeds it by more (natural units)
  bool last_first = false;  ///< the last keys come first
};

/// How a stage goes about it: tile sizes (0: untiled), how many warps split the keys of a tile in equal runs (0: none
/// do), and how lanes go through their rows.
struct Tiling {
  Index Br = 0, Bc = 0, key_warps = 0;
  LaneRows lane_rows = {};
};

struct Range {
  Index from = 0, to = std::numeric_limits<Index>::max();
  bool contains(Index i) const { return from <= i && i < to; }
};

/// One head as it was read.
struct Head {
  Index b, h;
  std::vector<float> Q, K, V;  ///< (Nq, d), (Nk, d), (Nk, d)
};

/// One query on its way through the keys.
struct Row {
  const Head* head;
  Index query;
  float m = -infinity, l = 0;
  std::vector<float> O = {};
  // The step that it is at. S, P and weights have an element for each key.
  Index number = 0;   ///< of the step
  Index first = 0;    ///< key of the step
  Index keys = 0;     ///< of the step, those that exist
  bool last = false;  ///< step
  std::vector<float> S = {}, P = {}, weights = {};
  float m_tile = 0;  ///< maximum of S
  float m_old = 0;
  float subtracted = 0;  ///< P = exp(S - subtracted)
  float l_factor = 0, O_factor = 0;
  float sum = 0;  ///< of P
};

/// A named point of the algorithm. What is done there, in the order in which it was added, may change the row.
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

/// Which element of a tensor is taken for, or written to, (b, h, row, column). -1: none, it counts as 0.
using Place = std::function<Index(const Tensor<float>&, Index b, Index h, Index row, Index column)>;

class AttentionModel {
 public:
  AttentionModel(const Problem& problem, const Tiling& tiling, const Precision& precision);
  /// Of given scores (1, 1, Nq, Nk), in blocks of Bc keys (0: all at once); there is no V then, and no O.
  explicit AttentionModel(const Tensor<float>& S, Index Bc = 0);

  std::shared_ptr<const Problem> problem;
  std::shared_ptr<const Tensor<float>> given_S;
  Tiling tiling;
  Index step;                                                        ///< keys that enter m, l and O at once
  std::map<std::string, std::string> words{{"{tile}", "K/V tile"}};  ///< what stands for them in a sentence

  Rounding round_P, round_O;  ///< P before PV, and O as it is written

  // Which numbers enter.
  Place Q, K, V, written;
  std::function<void(std::vector<float>& rows, bool of_queries)> rotated;  ///< of Q or K, as they are read; or nothing
  std::function<Index(Index h)> kv_head;                                   ///< head of Q -> its head of K and V
  Range keys;                                                              ///< that the stage loops over
  std::function<Index(Index)> goes_to;  ///< query -> key up to whose tile its loop goes; empty: through all keys
  std::function<Range(Index)> sees;     ///< query -> keys that the mask leaves it, from the first to the last
  std::function<bool(Index query, Index key)> counts;  ///< which of them it does; empty: all
  /// What becomes of a scaled score.
  std::function<float(const Head&, Index query, Index key, float score)> changed;
  std::function<float(const Head&)> sink;  ///< a logit that l has beside the keys; empty: none
  float padding_score = -infinity;         ///< of keys that fill up the last tile
  float scale;
  Range features;  ///< columns of Q and K that enter
  // The softmax.
  float first_m = -infinity;
  bool safe_m = true;  ///< 0 is subtracted in place of a maximum of -inf
  float (*exponential)(float);
  int divisions = 1;          ///< how often O is divided by l, after the last tile
  bool safe_division = true;  ///< a row with l = 0 gives 0
  std::function<float(float m, float l)> lse;
  // What is written.
  Range rows;
  Index heads_written;
  std::function<float(const Head&, Index query, Index key)> kept;  ///< what P is multiplied with before PV; empty: 1
  float unwritten = unwritten_value;                               ///< what the rest holds

  // The points, as a step reaches them.
  Point after_scores;
  Point after_maximum;        ///< m_tile, m and subtracted are set
  Point after_probabilities;  ///< P is
  Point after_factors;        ///< l_factor and O_factor are
  Point after_sum;            ///< of P; l has not taken it yet
  Point after_weights;        ///< P, rounded as PV takes it; untiled stages have divided it by l
  Point after_step;
  Point after_last;  ///< step, and the division by l

  bool causal() const { return problem->causal(); }
  bool unmasked() const { return problem->mask.kind == Mask::none; }
  bool tiled() const { return tiling.Bc > 0; }
  bool several_tiles() const { return tiled() && Nk() > step; }
  bool rounds_P() const { return round_P != unrounded; }
  bool lanes_own_rows() const { return tiling.lane_rows.step > 0; }
  Index Nq() const { return problem->shape.Nq; }
  Index Nk() const { return problem->shape.Nk; }
  Index d() const { return problem->shape.d; }
  /// Keys that a query sees by the right mask; any number is a query.
  Index visible(Index query) const { return visible_keys(query, Nq(), Nk(), causal()); }
  /// The last query of the Q tile of `query`.
  Index last_of_tile(Index query) const;
  /// The warp that computes with key j of a step.
  Index warp_of(Index j) const { return tiling.key_warps > 0 ? j / (tiling.Bc / tiling.key_warps) : 0; }

  Head read(Index b, Index h) const;
  /// scale·Q_i·K_j of the features that enter; 0 where there is no such query or key.
  float score(const Head& head, Index query, Index key) const;
  /// Sets m, m_tile and subtracted for a step whose largest score is `largest`.
  void raise(Row& row, float largest) const;
  float safe(float m) const { return m == -infinity && safe_m ? 0 : m; }
  float divided(float value, float l) const { return l == 0 && safe_division ? 0 : value / l; }
  /// A query through all its keys; `look` sees it after each step.
  Row attend(const Head& head, Index query, const std::function<void(const Row&)>& look = {}) const;

  Tensor<double> O() const { return attend_all().first; }
  Tensor<double> LSE() const { return attend_all().second; }
  /// S and P (B, H, Nq, Nk) of an untiled stage. What is not visited stays unwritten.
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
