// The known mistakes of the backward pass.
//
// One small backward pass computes the right gradients, or wrong ones: every mistake is a setting of its switches. It
// forms P and dS in float and rounds them as the stage does, so that an exp that overflows there overflows here.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/attention/half.hpp"
#include "common/judge/diagnosis.hpp"

namespace workbook::judge {
namespace {

using Index = std::int64_t;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float log2_e = 1.44269504088896340736F, ln_2 = 0.693147180559945309417F;

enum class RowSum { right, none, added, of_dO, of_O, rounded, of_eight, of_warp, read_as_fp16 };
enum class Normalizer { right, none, maximum, base_2_scores, natural_lse, base_e };
enum class Mask {
  right,
  none,
  one_more,
  one_fewer,
  top_left,
  top_left_in_tiles,
  top_left_tiles,
  few_masked,
  open_tile
};
enum class Factor { right, difference_only, rounded_dP };
enum class Left { right, transposed, the_other, tile_before, first_tile };
enum class Tiles { all, last, first, but_first, but_last, first_half };

/// What a backward pass does otherwise than it should. As initialised: the right gradients.
struct Switches {
  RowSum D = RowSum::right;
  Normalizer lse = Normalizer::right;
  bool scaled_scores = true;
  Mask mask = Mask::right;
  bool masked_P = true;         ///< P is 0 where a query does not see a key; false: only dS is
  bool padding_counts = false;  ///< keys that fill up the last tile take part with a score of 0
  bool dP_of_K = false;         ///< dP is dO·Kᵀ
  bool row_of_key = false;      ///< a pair takes the LSE and the D of the query with its key's number in a fragment
  Factor dS = Factor::right;
  int scale_power = 1;       ///< how often the gradient is multiplied by the scale; for dV 0 is right
  Left left = Left::right;   ///< what stands on the left of the gradient's product
  Tiles tiles = Tiles::all;  ///< of those that pass by, which count
};

float as_half(float x) {
  return half_to_float(float_to_half(x));
}
float as_bfloat16(float x) {
  return bfloat16_to_float(float_to_bfloat16(x));
}

/// The inputs, kept once for all mistakes of a table.
struct Inputs {
  std::string gradient;
  Problem problem;
  Tensor<double> dO;
  Saved saved;
  Index owned, passing;
  float (*rounded)(float);  ///< to the stage's element
  bool tiled, rounds_P, rounds_gradients;
};

/// One head of one gradient.
class HeadGradient {
 public:
  HeadGradient(const Inputs& in, const Switches& s, Index head) : in_(in), s_(s), head_(head) {}

  /// Into `result`, the gradient of all heads.
  void write(Tensor<double>& result) {
    form();
    const bool of_queries = in_.gradient == "dQ";
    const Index rows = of_queries ? Nq() : Nk(), sums = of_queries ? Nk() : Nq();
    const double factor = std::pow(double(in_.problem.scale), s_.scale_power);
    for (Index row = 0; row < rows; ++row) {
      for (Index c = 0; c < d(); ++c) {
        double sum = 0;
        for (Index other = 0; other < sums; ++other) {
          if (counts(row, other)) sum += left(row, other) * right(other, c);
        }
        if (of_queries && s_.padding_counts && in_.tiled && Nk() % in_.passing != 0) sum += padding(row);
        const double value = factor * sum;
        result.values[std::size_t((head_ * rows + row) * d() + c)] =
            in_.rounds_gradients ? double(in_.rounded(float(value))) : value;
      }
    }
  }

 private:
  Index Nq() const { return in_.problem.shape.Nq; }
  Index Nk() const { return in_.problem.shape.Nk; }
  Index d() const { return in_.problem.shape.d; }
  float Q(Index i, Index c) const { return in_.problem.Q.values[std::size_t((head_ * Nq() + i) * d() + c)]; }
  float K(Index j, Index c) const { return in_.problem.K.values[std::size_t((head_ * Nk() + j) * d() + c)]; }
  float V(Index j, Index c) const { return in_.problem.V.values[std::size_t((head_ * Nk() + j) * d() + c)]; }
  double dO(Index i, Index c) const { return in_.dO.values[std::size_t((head_ * Nq() + i) * d() + c)]; }

  double D(Index i) const {
    if (s_.D == RowSum::none) return 0;
    // Where rows of all heads are numbered in one go, a warp of 32 lanes has the queries [first, end).
    const Index row = head_ * Nq() + i, queries = 32 / std::max<Index>(1, d() / 8);
    const bool of_warp = s_.D == RowSum::of_warp && queries > 1;
    const Index first = of_warp ? row / queries * queries : row;
    const Index end = of_warp ? std::min(first + queries, in_.problem.shape.B * in_.problem.shape.H * Nq()) : row + 1;
    double sum = 0;
    for (Index query = first; query < end; ++query) {
      const Index columns = s_.D == RowSum::of_eight ? std::min<Index>(8, d()) : d();
      for (Index at = query * d(); at < query * d() + columns; ++at) {
        double O = in_.saved.O.values[std::size_t(at)], dO = in_.dO.values[std::size_t(at)];
        if (s_.D == RowSum::read_as_fp16)
          for (double* x : {&O, &dO}) *x = half_to_float(float_to_bfloat16(float(*x)));
        sum += (s_.D == RowSum::of_O ? O : dO) * (s_.D == RowSum::of_dO ? dO : O);
      }
    }
    if (s_.D == RowSum::added) return -sum;
    return s_.D == RowSum::rounded ? double(in_.rounded(float(sum))) : sum;
  }
  bool sees(Index i, Index j) const {
    const bool causal = in_.problem.causal;
    if (!causal || s_.mask == Mask::none) return true;
    switch (s_.mask) {
      case Mask::one_more:
        return j <= i + (Nk() - Nq()) + 1;
      case Mask::one_fewer:
        return j < i + (Nk() - Nq());
      case Mask::top_left:
        return j <= i;
      case Mask::top_left_in_tiles: {  // where the right tiles are visited, and the right ones masked
        const Index offset = Nk() - Nq(), tile = in_.passing;
        const Index first = (in_.gradient == "dQ" ? i : j) / in_.owned * in_.owned;
        if (in_.gradient == "dQ") {
          const Index from = j / tile * tile;
          if (from >= std::min(Nq(), first + in_.owned) + offset) return false;
          return from + tile <= first + 1 + offset || j <= i;
        }
        const Index from = i / tile * tile, last = std::min(Nk(), first + in_.owned) - 1;
        if (from + tile <= first - offset) return false;
        return from >= last - offset || j <= i;
      }
      case Mask::top_left_tiles:  // the other way round: the wrong tiles are visited and masked, each pair right
      case Mask::few_masked: {    // no mask where one query of the block, or one key, would do without
        const Index offset = Nk() - Nq(), shift = s_.mask == Mask::top_left_tiles ? 0 : offset, tile = in_.passing;
        const bool few = s_.mask == Mask::few_masked;
        if (in_.gradient == "dQ") {
          const Index first = i / in_.owned * in_.owned, end = std::min(Nq(), first + in_.owned) + shift;
          const Index from = j / tile * tile;
          return from < end && (from + tile <= (few ? end : first + 1 + shift) || j <= i + offset);
        }
        const Index first = j / in_.owned * in_.owned, last = std::min(Nk(), first + in_.owned) - 1;
        const Index begin = std::max<Index>(0, first - shift) / tile * tile, from = i / tile * tile;
        return i >= begin && (from >= (few ? first : last) - shift || j <= i + offset);
      }
      case Mask::open_tile: {  // a block sees all of what passes by
        if (!in_.tiled) return true;
        const Index offset = Nk() - Nq();
        if (in_.gradient == "dQ") return j < std::min(Nq(), (i / in_.owned + 1) * in_.owned) + offset;
        return i >= std::max<Index>(0, j / in_.owned * in_.owned - offset) / in_.passing * in_.passing;
      }
      default:
        return j < visible_keys(i, Nq(), Nk(), true);
    }
  }
  /// exp(score - LSE), as a stage forms it. A kernel reads the LSE of a row that sees nothing as +inf.
  float probability(Index i, double score) const {
    const double lse = in_.saved.lse.values[std::size_t(head_ * Nq() + i)];
    if (lse == -infinity && in_.tiled) return 0;
    switch (s_.lse) {
      case Normalizer::none:
        return float(std::exp(score));
      case Normalizer::maximum:
        return float(std::exp(score - maximum_[std::size_t(i)]));
      case Normalizer::base_2_scores:  // the scale does not hold log2(e)
        return float(std::exp2(score - lse * log2_e));
      case Normalizer::natural_lse:
        return float(std::exp2(score * log2_e - lse));
      case Normalizer::base_e:
        return float(std::exp((score - lse) * log2_e));
      default:
        return float(std::exp(score - lse));
    }
  }
  /// Whether the stage counts the pair, other than by visibility.
  bool counts(Index row, Index other) const {
    if (s_.tiles == Tiles::all || !in_.tiled) return true;
    const Index count = in_.gradient == "dQ" ? Nk() : Nq(), offset = Nk() - Nq();
    Index from = 0, until = count;
    if (in_.problem.causal) {
      const Index first = row / in_.owned * in_.owned;
      if (in_.gradient == "dQ")
        until = std::clamp<Index>(std::min(Nq(), first + in_.owned) + offset, 0, count);
      else
        from = std::max<Index>(0, first - offset);
    }
    const Index tile = other / in_.passing, first_tile = from / in_.passing, last_tile = (until - 1) / in_.passing;
    switch (s_.tiles) {
      case Tiles::last:
        return tile == last_tile;
      case Tiles::first:
        return tile == first_tile;
      case Tiles::but_first:
        return tile > first_tile;
      case Tiles::but_last:
        return tile < last_tile;
      default:  // only a warp's own half of a tile
        return other % in_.passing < in_.passing / 2;
    }
  }
  /// What a key that does not exist adds to any element of dQ: an infinite dS times a row of zeros.
  double padding(Index i) const {
    const float P = probability(i, 0), dS = P * float(0 - D(i));
    return double(in_.rounded(dS)) * 0.0;
  }

  void form() {
    const auto count = std::size_t(Nq() * Nk());
    P_.assign(count, 0), dS_.assign(count, 0);
    std::vector<double> scores(std::size_t(Nk()), 0);
    maximum_.assign(std::size_t(Nq()), -infinity);
    std::vector<double> D_of(std::size_t(Nq()), 0);
    for (Index i = 0; i < Nq(); ++i) D_of[std::size_t(i)] = D(i);
    for (Index i = 0; i < Nq(); ++i) {
      for (Index j = 0; j < Nk(); ++j) {
        double score = 0;
        for (Index c = 0; c < d(); ++c) score += double(Q(i, c)) * K(j, c);
        scores[std::size_t(j)] = s_.scaled_scores ? in_.problem.scale * score : score;
        if (sees(i, j)) maximum_[std::size_t(i)] = std::max(maximum_[std::size_t(i)], scores[std::size_t(j)]);
      }
      for (Index j = 0; j < Nk(); ++j) {
        const bool seen = sees(i, j);
        if (!seen && s_.masked_P) continue;
        double dP = 0;
        for (Index c = 0; c < d(); ++c) dP += dO(i, c) * (s_.dP_of_K ? K(j, c) : V(j, c));
        // A fragment is 16 x 16, and the mix-up goes by the place in it. Queries that do not exist have P = 0.
        const Index query = s_.row_of_key ? i / 16 * 16 + j % 16 : i;
        if (query >= Nq()) continue;
        const float P = probability(query, scores[std::size_t(j)]);
        if (s_.dS == Factor::rounded_dP) dP = in_.rounded(float(dP));
        double dS = P * (dP - D_of[std::size_t(query)]);
        if (s_.dS == Factor::difference_only) dS = dP - D_of[std::size_t(query)];
        const auto at = std::size_t(i * Nk() + j);
        P_[at] = in_.rounds_P ? in_.rounded(P) : P;
        dS_[at] = !seen ? 0 : in_.rounds_P ? in_.rounded(float(dS)) : float(dS);
      }
    }
  }

  /// The left factor at (row, other): of dQ dS, of dK dSᵀ, of dV Pᵀ.
  double left(Index row, Index other) const {
    const bool of_P = (in_.gradient == "dV") != (s_.left == Left::the_other);
    const std::vector<float>& from = of_P ? P_ : dS_;
    const auto value = [&](Index i, Index j) { return double(from[std::size_t(i * Nk() + j)]); };
    const bool of_queries = in_.gradient == "dQ";
    if (s_.left == Left::transposed) return of_queries ? value(other, row) : value(row, other);
    return of_queries ? value(row, other) : value(other, row);
  }
  /// The right factor: rows of K for dQ, of Q for dK, of dO for dV.
  double right(Index other, Index c) const {
    Index row = other;
    if (s_.left == Left::tile_before && in_.tiled) {  // its rows come from the tile that arrives next
      const Index count = in_.gradient == "dQ" ? Nk() : Nq();
      row = other + in_.passing;
      if (row >= count) return 0;
    }
    if (s_.left == Left::first_tile && in_.tiled) row = other % in_.passing;
    if (in_.gradient == "dQ") return K(row, c);
    return in_.gradient == "dK" ? Q(row, c) : dO(row, c);
  }

  const Inputs& in_;
  const Switches& s_;
  Index head_;
  std::vector<float> P_, dS_;  // (Nq, Nk)
  std::vector<double> maximum_;
};

}  // namespace

std::vector<Mistake> gradient_mistakes(const std::string& gradient, const Problem& problem, const Tensor<double>& dO,
                                       const Saved& saved, Index owned, Index passing, const Precision& precision) {
  const bool of_queries = gradient == "dQ", of_values = gradient == "dV", tiled = owned > 0 && passing > 0;
  const bool bf16 = precision.name == "bfloat16";
  const std::string element = bf16 ? "bf16" : "fp16";
  const auto in =
      std::make_shared<const Inputs>(Inputs{gradient, problem, dO, saved, owned, passing, bf16 ? as_bfloat16 : as_half,
                                            tiled, precision.probability > 0, precision.output > 1e-6});
  const Shape& shape = problem.shape;
  const double cost = 3.0 * double(shape.B * shape.H * shape.Nq) * double(shape.Nk) * double(shape.d);
  std::vector<Mistake> mistakes;
  const auto add = [&](std::string id, std::string sentence, auto change) {
    Switches switches;
    switches.scale_power = of_values ? 0 : 1;
    change(switches);
    mistakes.push_back({std::move(id), std::move(sentence),
                        [=] {
                          Tensor<double> result({in->problem.shape.B, in->problem.shape.H,
                                                 of_queries ? in->problem.shape.Nq : in->problem.shape.Nk,
                                                 in->problem.shape.d});
                          for (Index head = 0; head < in->problem.shape.B * in->problem.shape.H; ++head)
                            HeadGradient(*in, switches, head).write(result);
                          return result;
                        },
                        cost});
  };

  // First, since where scores are far below 0 this and a wrong LSE both give NaN, the latter in dK and dV as well.
  if (tiled && of_queries && shape.Nk % passing != 0)
    add("tail-not-masked",
        "keys behind the last one of a short tile are not masked: their score of 0 gives an infinite dS in fp16, and "
        "infinity times a row of zeros is NaN",
        [](Switches& s) { s.padding_counts = true; });
  if (!of_values) {
    add("D-missing", "D is not subtracted: dS is P∘(dP - D), and this is what P∘dP gives",
        [](Switches& s) { s.D = RowSum::none; });
    add("D-added", "D is added to dP, not subtracted", [](Switches& s) { s.D = RowSum::added; });
    add("D-of-dO", "D is rowsum(dO∘dO), not rowsum(dO∘O)", [](Switches& s) { s.D = RowSum::of_dO; });
    add("D-of-O", "D is rowsum(O∘O), not rowsum(dO∘O)", [](Switches& s) { s.D = RowSum::of_O; });
    add("D-of-eight", "D holds the first eight products of a row, those of one lane",
        [](Switches& s) { s.D = RowSum::of_eight; });
    add("D-of-warp", "D is the sum over all queries of a warp: the shuffles reach beyond the lanes of one query",
        [](Switches& s) { s.D = RowSum::of_warp; });
    if (bf16)
      add("D-read-as-fp16",
          "D is formed from O and dO read as fp16: exercise 6.2 must take them as Pair<Element>, not as half2",
          [](Switches& s) { s.D = RowSum::read_as_fp16; });
    add("no-scale", gradient + " is not multiplied by the scale: both factors of S = scale·QKᵀ get it",
        [](Switches& s) { s.scale_power = 0; });
    add("scale-twice", gradient + " is multiplied by the scale twice", [](Switches& s) { s.scale_power = 2; });
    add("no-P", "dS is dP - D: the factor P is missing", [](Switches& s) { s.dS = Factor::difference_only; });
    add("K-for-V", "dP is formed from K: dP = dO·Vᵀ", [](Switches& s) { s.dP_of_K = true; });
    add("P-for-dS", "the product is taken with P where dS belongs", [](Switches& s) { s.left = Left::the_other; });
  } else {
    add("scale-in-dV", "dV is multiplied by the scale: dV = PᵀdO has none", [](Switches& s) { s.scale_power = 1; });
    add("dS-for-P", "the product is taken with dS where P belongs", [](Switches& s) { s.left = Left::the_other; });
  }
  add("scores-not-scaled", "the scores are not multiplied by the scale before the exponential",
      [](Switches& s) { s.scaled_scores = false; });
  add("max-for-lse",
      "P is recomputed with the row's maximum in place of the LSE, so that it is never divided by its sum",
      [](Switches& s) { s.lse = Normalizer::maximum; });
  add("no-lse", "P is exp(S): the LSE is not subtracted", [](Switches& s) { s.lse = Normalizer::none; });
  add("base-2-scores", "the scores are taken as exponents of 2: the scale does not hold log2(e), the LSE does",
      [](Switches& s) { s.lse = Normalizer::base_2_scores; });
  add("natural-lse",
      "the LSE is subtracted as a natural logarithm, from scores in units of log2: it must be multiplied by log2(e)",
      [](Switches& s) { s.lse = Normalizer::natural_lse; });
  add("base-e", "scores and LSE are in units of log2, but the exponential is e's",
      [](Switches& s) { s.lse = Normalizer::base_e; });
  if (problem.causal) {
    add("no-mask", "no key is masked: queries see keys that come after them", [](Switches& s) { s.mask = Mask::none; });
    add("mask-one-more", "the causal mask is off by one: a query sees one key too many",
        [](Switches& s) { s.mask = Mask::one_more; });
    add("mask-one-fewer", "the causal mask is off by one: a query does not see its own key",
        [](Switches& s) { s.mask = Mask::one_fewer; });
    if (shape.Nq != shape.Nk)
      add("mask-top-left", "the causal mask is aligned top-left (j <= i), not bottom-right (j <= i + Nk - Nq)",
          [](Switches& s) { s.mask = Mask::top_left; });
    if (tiled && shape.Nq != shape.Nk)
      add("mask-top-left",
          "the causal mask within a tile is aligned top-left (j <= i), not bottom-right (j <= i + Nk - Nq)",
          [](Switches& s) { s.mask = Mask::top_left_in_tiles; });
    if (tiled && shape.Nq != shape.Nk)
      add("mask-top-left",
          "tiles are skipped and masked as if query i saw the keys j <= i; it sees those with j <= i + Nk - Nq",
          [](Switches& s) { s.mask = Mask::top_left_tiles; });
    if (tiled)
      add("open-tiles", "tiles on the diagonal are not masked: every pair of a tile that passes by counts",
          [](Switches& s) { s.mask = Mask::open_tile; });
    if (tiled)
      add("masked-too-little",
          of_queries
              ? "a tile that the diagonal crosses is not masked: it needs no mask only if the block's first query, "
                "which sees the fewest keys, sees all of it"
              : "a tile that the diagonal crosses is not masked: it needs no mask only if the block's last key, "
                "which the fewest queries see, is seen by all of it",
          [](Switches& s) { s.mask = Mask::few_masked; });
    if (of_values)
      add("P-not-masked", "dS is masked, P is not: dV gets a part from queries that do not see the key",
          [](Switches& s) { s.masked_P = false; });
  }
  if (tiled) {
    add("rows-mixed-up",
        "an element takes the LSE and the D of another query: of its row where the query is its column",
        [](Switches& s) { s.row_of_key = true; });
    add("last-tile-only", "only the last tile that passes by counts: the accumulators are cleared in each",
        [](Switches& s) { s.tiles = Tiles::last; });
    add("first-tile-only", "only the first tile that passes by counts", [](Switches& s) { s.tiles = Tiles::first; });
    add("first-tile-left-out", "the first tile that passes by is left out",
        [](Switches& s) { s.tiles = Tiles::but_first; });
    add("last-tile-left-out", "the last tile that passes by is left out",
        [](Switches& s) { s.tiles = Tiles::but_last; });
    add("half-tile", "only the first half of each tile counts: the part of the team's second warp is missing",
        [](Switches& s) { s.tiles = Tiles::first_half; });
    add("first-tile-again", "the product is taken with the first tile's rows, whichever tile P and dS are of",
        [](Switches& s) { s.left = Left::first_tile; });
    add("next-tile", "the product is taken with the tile that arrives next, not with the one that P and dS are of",
        [](Switches& s) { s.left = Left::tile_before; });
  }
  if (shape.Nq == shape.Nk)
    add("not-transposed",
        of_queries ? "dQ is scale·dSᵀK: dS is transposed where it must not be"
                   : gradient + " is formed from " + (of_values ? "P" : "dS") +
                         ", not from its transpose: a row of it is a key",
        [](Switches& s) { s.left = Left::transposed; });
  if (!of_values && precision.probability > 0) {
    add("D-half", "D is rounded to " + element + ": where dP and D are close, their difference is lost",
        [](Switches& s) { s.D = RowSum::rounded; });
    add("dP-half",
        "dP is rounded to " + element + " before D is subtracted: where the two are close, their difference is lost",
        [](Switches& s) { s.dS = Factor::rounded_dP; });
  }
  add("all-zeros", gradient + " is 0 everywhere", [](Switches& s) { s.tiles = Tiles::all, s.scale_power = -1; });
  mistakes.back().cost = 0;
  mistakes.back().output = [in, of_queries] {
    const Shape& s = in->problem.shape;
    return Tensor<double>({s.B, s.H, of_queries ? s.Nq : s.Nk, s.d});
  };
  return mistakes;
}

std::vector<Mistake> D_mistakes(const Tensor<double>& O, const Tensor<double>& dO) {
  const auto in = std::make_shared<const std::pair<Tensor<double>, Tensor<double>>>(O, dO);
  const Index columns = O.sizes[3];
  std::vector<Mistake> mistakes;
  const auto add = [&](std::string id, std::string sentence, std::function<double(std::size_t first)> of_row) {
    mistakes.push_back({std::move(id), std::move(sentence), [=, of_row = std::move(of_row)] {
                          Tensor<double> D({in->first.sizes[0], in->first.sizes[1], in->first.sizes[2], 1});
                          for (std::size_t row = 0; row < D.values.size(); ++row)
                            D.values[row] = of_row(row * std::size_t(columns));
                          return D;
                        }});
  };
  const auto sum = [in](const Tensor<double>& a, const Tensor<double>& b, std::size_t first, Index columns) {
    double result = 0;
    for (std::size_t c = first; c < first + std::size_t(columns); ++c) result += a.values[c] * b.values[c];
    return result;
  };
  add("D-of-dO", "D is rowsum(dO∘dO), not rowsum(dO∘O)",
      [=](std::size_t first) { return sum(in->second, in->second, first, columns); });
  add("D-of-O", "D is rowsum(O∘O), not rowsum(dO∘O)",
      [=](std::size_t first) { return sum(in->first, in->first, first, columns); });
  add("D-of-eight", "D holds the first eight products of a row: the lanes' sums are not added up",
      [=](std::size_t first) { return sum(in->first, in->second, first, 8); });
  add("D-of-half-a-row", "D holds the first half of a row's products: one step of the shuffles is missing",
      [=](std::size_t first) { return sum(in->first, in->second, first, columns / 2); });
  add("D-of-warp", "D is the sum over all queries of a warp: the shuffles reach beyond the lanes of one query",
      [=](std::size_t first) {
        const auto row = Index(first) / columns, queries = std::max<Index>(1, 32 / std::max<Index>(1, columns / 8));
        const Index from = row / queries * queries,
                    until = std::min(from + queries, Index(in->first.values.size()) / columns);
        return sum(in->first, in->second, std::size_t(from * columns), (until - from) * columns);
      });
  add("D-even-columns", "D holds the products of the even columns only: a half2 has two", [=](std::size_t first) {
    double result = 0;
    for (std::size_t c = first; c < first + std::size_t(columns); c += 2)
      result += in->first.values[c] * in->second.values[c];
    return result;
  });
  add("D-missing", "D is 0", [](std::size_t) { return 0.0; });
  add("D-half", "D is rounded to fp16: where dP and D are close, their difference is lost",
      [=](std::size_t first) { return double(as_half(float(sum(in->first, in->second, first, columns)))); });
  add("products-half", "the products are rounded to fp16 before they are added up", [=](std::size_t first) {
    double result = 0;
    for (std::size_t c = first; c < first + std::size_t(columns); ++c)
      result += as_half(float(in->first.values[c] * in->second.values[c]));
    return result;
  });
  return mistakes;
}

std::vector<Mistake> log2_lse_mistakes(const Tensor<double>& lse) {
  const auto in = std::make_shared<const Tensor<double>>(lse);
  std::vector<Mistake> mistakes;
  const auto add = [&](std::string id, std::string sentence, std::function<double(double)> of) {
    mistakes.push_back({std::move(id), std::move(sentence), [in, of = std::move(of)] {
                          Tensor<double> result = *in;
                          for (double& value : result.values) value = of(value);
                          return result;
                        }});
  };
  const auto open = [](double x) { return x == -infinity ? double(infinity) : x; };
  add("masked-lse-kept",
      "a fully masked row keeps its LSE of -inf: exp2(S - (-inf)) is infinite, and P must be 0. Read it as +inf",
      [](double x) { return x * log2_e; });
  add("natural-lse", "the LSE is left a natural logarithm: exp2 needs it multiplied by log2(e)", open);
  add("lse-divided", "the LSE is multiplied by ln 2, not by log2(e)", [=](double x) { return open(x * ln_2); });
  return mistakes;
}

}  // namespace workbook::judge
