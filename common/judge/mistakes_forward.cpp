// The known mistakes of the forward pass.
//
// One small simulator of tiled attention computes the right answer, or a wrong one: every mistake is a setting of its
// switches. It works in float, as the stages do, so that an exp that overflows there overflows here.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/attention/half.hpp"
#include "common/judge/compare.hpp"
#include "common/judge/diagnosis.hpp"

namespace workbook::judge {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float log2_e = 1.44269504088896340736F, ln_2 = 0.693147180559945309417F;

enum class Rounding { none, fp16, bf16 };

float rounded(float value, Rounding rounding) {
  if (rounding == Rounding::fp16) return half_to_float(float_to_half(value));
  if (rounding == Rounding::bf16) return bfloat16_to_float(float_to_bfloat16(value));
  return value;
}

/// The format that has this unit roundoff: 2^-11 is fp16's, 2^-8 bf16's.
Rounding rounding_of(double roundoff) {
  if (roundoff < 1e-6) return Rounding::none;
  return roundoff < 1e-3 ? Rounding::fp16 : Rounding::bf16;
}

enum class Heads { right, first_everywhere, first_KV, reversed_KV, no_batch, batch_innermost, interleaved };
enum class Read { right, transposed, fragments_transposed, first_tile, first_step, next_row };
enum class Keys { all, but_last, but_first, whole_tiles, first_tile, but_last_tile, but_first_tile, last_tile };
enum class Mask {
  right,
  none,
  one_more,
  one_fewer,
  top_left,
  reversed,
  per_tile,
  open_tile,
  closed_tile,
  last_tile_only,
  where_whole_warp_needs_it,
};
/// Of a stage that skips tiles: up to which key a Q tile goes through them.
enum class Visits { by_mask, right, top_left, one_key_short, rounded_down, of_first_query };
enum class Maximum { running, none, of_tile, of_tile_for_P, not_kept };
enum class Exponent { e, base_2, e_of_base_2, wrong_sign };
enum class Rescale { right, none, wrong_sign, wrong_sign_from_start, swapped, too_late, overwrite };
/// Lanes that own a row each, in warps of 32 rows: whose maximum, and whose factor for O, row i of a warp takes.
enum class Lanes { own, one_maximum, factors_of_first_half, second_half_not_rescaled, all_or_none };
enum class Division { right, none, every_tile, every_tile_and_end, by_last_tile, twice };
enum class Lse {
  right,
  without_max,
  max_only,
  not_log,
  sum_only,
  base_2,
  base_2_of_sum,
  base_2_of_max,
  e_of_base_2,
  minus_max,
  unscaled_max,
  negative,
  masked_zero,
  masked_plus_infinity,
};

struct Range {
  std::int64_t from, to;
  bool contains(std::int64_t i) const { return from <= i && i < to; }
};

constexpr Range everything{0, std::numeric_limits<std::int64_t>::max()};

/// What a stage does otherwise than it should. As initialised: attention, done right.
struct Switches {
  // Which numbers enter.
  Heads heads = Heads::right;
  Read Q = Read::right, K = Read::right, V = Read::right;
  Keys keys = Keys::all;
  bool padding_counts = false;  ///< keys that fill up the last tile take part with a score of 0
  // S = scale·QKᵀ
  float scale_factor = 1;       ///< times the scale
  Range features = everything;  ///< columns of Q and K that enter
  Mask mask = Mask::right;
  float masked_score = -infinity;
  bool mask_after_softmax = false;  ///< masked keys count in l
  bool skips_tiles = false;         ///< tiles that no row of the Q tile sees are not visited
  Visits visits = Visits::by_mask;
  float masked_tiles_factor = 1;    ///< of the scores in every step in which the warp masks anything
  bool resets_at_boundary = false;  ///< m and l begin anew with every step in which the warp masks anything
  Rounding S_rounding = Rounding::none;
  // P = exp(S - m)
  Maximum maximum = Maximum::running;
  float first_m = -infinity;
  bool safe_m = true;  ///< 0 is subtracted in place of a maximum of -inf
  Exponent exponent = Exponent::e;
  Rounding P_rounding = Rounding::none;
  bool round_before_division = false;  ///< untiled: P is rounded before it is divided by l
  // Stages whose warps split the keys of a tile: warps whose part counts
  Range warps_in_maximum = everything, warps_in_l = everything, warps_in_O = everything;
  bool own_maximum = false;  ///< each warp subtracts the maximum of its own keys; what is kept is warp 0's
  // l and O, tile after tile
  bool sums_rounded_P = false;  ///< l adds P as it is rounded for PV
  Rescale l = Rescale::right, O = Rescale::right;
  Rounding O_rounding = Rounding::none;
  Lanes lanes = Lanes::own;
  bool S_fragments_transposed = false;  ///< 16 × 16 pieces of S are stored with rows and columns exchanged
  bool PV_first_16 = false;             ///< only the first 16 keys of a step enter PV
  // The end
  Division division = Division::right;
  bool safe_division = true;  ///< a row with l = 0 gives 0
  Lse lse = Lse::right;
  bool only_first_head = false;    ///< the other heads are never written
  std::int64_t rows_written = -1;  ///< rows from this one on are never written; -1: all are
};

/// A stage: its tile sizes (0: untiled), how it rounds, how many warps split the keys of a tile (0: none do), and how
/// lanes go through their rows, where they own one each.
struct Stage {
  std::int64_t Br = 0, Bc = 0;
  Rounding output = Rounding::none;
  std::int64_t key_warps = 0;
  LaneRows lane_rows = {};

  /// The keys that enter m, l and O at once.
  std::int64_t step() const { return lane_rows.step > 0 ? lane_rows.step : Bc; }
  /// The warp that computes with key j of a tile.
  std::int64_t warp_of(std::int64_t j) const { return key_warps > 0 ? j / (Bc / key_warps) : 0; }
};

std::int64_t round_down(std::int64_t value, std::int64_t step) {
  return value / step * step;
}
std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Keys that the stage loops over.
Range keys_read(Keys keys, std::int64_t Nk, std::int64_t Bc) {
  const std::int64_t tile = Bc > 0 ? Bc : Nk;
  switch (keys) {
    case Keys::all:
      break;
    case Keys::but_last:
      return {0, Nk - 1};
    case Keys::but_first:
      return {1, Nk};
    case Keys::whole_tiles:
      return {0, round_down(Nk, tile)};
    case Keys::first_tile:
      return {0, std::min(Nk, tile)};
    case Keys::but_last_tile:
      return {0, round_down(Nk - 1, tile)};
    case Keys::but_first_tile:
      return {std::min(Nk, tile), Nk};
    case Keys::last_tile:
      return {round_down(Nk - 1, tile), Nk};
  }
  return {0, Nk};
}

/// Keys that query i is allowed to see.
Range keys_seen(Mask mask, const Problem& problem, const Stage& stage, std::int64_t i) {
  const std::int64_t Nq = problem.shape.Nq, Nk = problem.shape.Nk;
  if (!problem.causal || mask == Mask::none) return {0, Nk};
  const auto seen_by = [&](std::int64_t query) { return visible_keys(query, Nq, Nk, true); };
  switch (mask) {
    case Mask::right:
    case Mask::none:
      break;
    case Mask::one_more:
      return {0, seen_by(i + 1)};
    case Mask::one_fewer:
      return {0, seen_by(i - 1)};
    case Mask::top_left:
      return {0, std::min(i + 1, Nk)};
    case Mask::reversed:
      return {seen_by(i - 1), Nk};
    case Mask::per_tile:
      return {0, seen_by(i % stage.Br)};
    case Mask::open_tile:
      return {0, std::min(Nk, round_up(seen_by(std::min(Nq, round_down(i, stage.Br) + stage.Br) - 1), stage.Bc))};
    case Mask::closed_tile:
      return {0, round_down(seen_by(round_down(i, stage.Br)), stage.Bc)};
    case Mask::last_tile_only: {
      const std::int64_t seen_last = seen_by(std::min(Nq, round_down(i, stage.Br) + stage.Br) - 1);
      return {0, std::max(seen_by(i), round_down(seen_last - 1, stage.Bc))};
    }
    case Mask::where_whole_warp_needs_it:
      return {0, std::max(seen_by(i), round_down(seen_by(round_down(i, 32) + 31), stage.step()))};
  }
  return {0, seen_by(i)};
}

/// How many of the keys in `read` the loop over tiles visits for query i.
std::int64_t keys_visited(const Switches& switches, Range read, const Problem& problem, const Stage& stage,
                          std::int64_t i) {
  if (!switches.skips_tiles) return read.to - read.from;
  const std::int64_t Br = std::max<std::int64_t>(stage.Br, 1);
  const std::int64_t last_row = std::min(problem.shape.Nq, round_down(i, Br) + Br) - 1;
  const auto seen_by = [&](Mask mask, std::int64_t row) { return keys_seen(mask, problem, stage, row).to; };
  std::int64_t end = 0;
  switch (switches.visits) {
    case Visits::by_mask:
      end = seen_by(switches.mask, last_row);
      break;
    case Visits::right:
      end = seen_by(Mask::right, last_row);
      break;
    case Visits::top_left:
      end = seen_by(Mask::top_left, last_row);
      break;
    case Visits::one_key_short:
      end = seen_by(Mask::one_fewer, last_row);
      break;
    case Visits::rounded_down:
      end = round_down(seen_by(Mask::right, last_row), stage.Bc);
      break;
    case Visits::of_first_query:
      end = seen_by(Mask::right, round_down(i, Br));
      break;
  }
  end = round_up(end, stage.Bc);
  return std::clamp<std::int64_t>(end, read.from, read.to) - read.from;
}

/// Head (b, h) of a tensor, as the mistake reads it: (rows, d).
std::vector<float> read_head(const Tensor<float>& tensor, std::int64_t b, std::int64_t h, bool is_query, Heads heads,
                             Read read, std::int64_t tile, std::int64_t step) {
  const auto [B, H, rows, d] = tensor.sizes;
  std::int64_t head = b * H + h;
  if (heads == Heads::first_everywhere || (heads == Heads::first_KV && !is_query)) head = 0;
  if (heads == Heads::reversed_KV && !is_query) head = b * H + (H - 1 - h);
  if (heads == Heads::no_batch) head = h;
  if (heads == Heads::batch_innermost) head = h * B + b;
  std::vector<float> result(std::size_t(rows * d));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t from = row;
    if (read == Read::first_tile) from = row % tile;
    if (read == Read::first_step) from = round_down(row, tile) + row % tile % step;
    if (read == Read::next_row) from = (row + 1) % rows;
    for (std::int64_t c = 0; c < d; ++c) {
      std::int64_t element = (head * rows + from) * d + c;
      if (read == Read::transposed) element = head * rows * d + c * rows + row;
      if (read == Read::fragments_transposed) {
        const std::int64_t row_read = row / 16 * 16 + c % 16;
        if (row_read >= rows) continue;  // the tile is filled up with zeros
        element = (head * rows + row_read) * d + c / 16 * 16 + row % 16;
      }
      if (heads == Heads::interleaved) element = ((b * rows + from) * H + h) * d + c;
      result[std::size_t(row * d + c)] = tensor.values[std::size_t(element)];
    }
  }
  return result;
}

/// Σ_c a_c b_c in eight running sums, which the compiler can vectorise.
float dot(const float* a, const float* b, std::int64_t d) {
  float sums[8] = {};
  std::int64_t c = 0;
  for (; c + 8 <= d; c += 8)
    for (int k = 0; k < 8; ++k) sums[k] += a[c + k] * b[c + k];
  for (; c < d; ++c) sums[c % 8] += a[c] * b[c];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// The scores of one query with keys [first_key, first_key + S.size()), as they enter the softmax. From `first_masked`
/// on the query's warp masks some keys.
void score_row(const Problem& problem, const Switches& switches, const float* Q_i, const float* K,
               std::int64_t first_key, Range seen, std::vector<float>& S, std::int64_t first_masked = everything.to) {
  const std::int64_t d = problem.shape.d, first = switches.features.from, last = std::min(d, switches.features.to);
  const float scale = problem.scale * switches.scale_factor;
  for (std::int64_t k = 0; k < std::int64_t(S.size()); ++k) {
    const std::int64_t j = first_key + k;
    const bool visible = seen.contains(j) || switches.mask_after_softmax;
    S[std::size_t(k)] = visible
                            ? rounded(scale * dot(Q_i + first, K + j * d + first, last - first), switches.S_rounding)
                            : switches.masked_score;
    if (visible && j >= first_masked) S[std::size_t(k)] *= switches.masked_tiles_factor;
  }
}

/// S of row i, all keys, with rows and columns of each 16 × 16 piece exchanged. What does not exist is zero.
void exchange_in_fragments(const Problem& problem, const float* Q, const float* K, std::int64_t i,
                           std::vector<float>& S) {
  const auto& [B, H, Hkv, Nq, Nk, d] = problem.shape;
  for (std::int64_t j = 0; j < std::int64_t(S.size()); ++j) {
    if (S[std::size_t(j)] == -infinity) continue;
    const std::int64_t row = round_down(i, 16) + j % 16, key = round_down(j, 16) + i % 16;
    S[std::size_t(j)] = row < Nq && key < Nk ? problem.scale * dot(Q + row * d, K + key * d, d) : 0;
  }
}

/// What one row of the stage ends with.
struct Row {
  float m = 0, l = 0;
  std::vector<float> O;                       ///< (d,), divided by l
  std::vector<float> P;                       ///< of the last tile; untiled: of the row, divided by l
  std::vector<float> tile_maxima, O_factors;  ///< of each step
  const std::vector<float>*given_maxima = nullptr, *given_factors = nullptr;  ///< taken in place of the row's own
  std::int64_t reset_from = everything.to;  ///< m and l begin anew with each step from this key on
};

float exponential(float x, Exponent exponent) {
  if (exponent == Exponent::base_2) return std::exp2(x);
  if (exponent == Exponent::e_of_base_2) return std::exp(x * log2_e);
  return std::exp(exponent == Exponent::wrong_sign ? -x : x);
}

/// What the old l or O is multiplied by when a tile raises the maximum from m to m_new.
float rescale_factor(Rescale rescale, float m, float m_tile, float m_new, Exponent exponent) {
  if (exponent == Exponent::wrong_sign) exponent = Exponent::e;
  switch (rescale) {
    case Rescale::right:
    case Rescale::too_late:
      return exponential(m - m_new, exponent);
    case Rescale::none:
      return 1;
    case Rescale::wrong_sign:
      return m == -infinity ? 1 : exponential(m_new - m, exponent);
    case Rescale::wrong_sign_from_start:
      return exponential(m_new - m, exponent);
    case Rescale::swapped:
      return exponential(m_tile - m_new, exponent);
    case Rescale::overwrite:
      return 0;
  }
  return 1;
}

/// Softmax of one row of scores and its product with V (keys, d), tile after tile. `counted`: keys that enter PV, for
/// the mask that comes after the softmax; all others have their mask in S. V may be null: then only m, l and P.
void attend_row(const std::vector<float>& S, Range counted, const float* V, std::int64_t d, const Stage& stage,
                const Switches& switches, Row& row) {
  const auto keys = std::int64_t(S.size());
  const bool untiled = stage.Bc == 0;
  const std::int64_t tile = untiled ? std::max<std::int64_t>(keys, 1) : stage.step();
  const auto safe = [&](float m) { return m == -infinity && switches.safe_m ? 0.0F : m; };
  const auto divided = [&](float value, float l) { return l == 0 && switches.safe_division ? 0.0F : value / l; };

  row.m = switches.maximum == Maximum::none ? 0 : switches.first_m;
  row.l = 0;
  row.O.assign(std::size_t(V ? d : 0), 0.0F);
  row.tile_maxima.clear();
  row.O_factors.clear();
  float tile_sum = 0;
  std::vector<float> m_own(std::size_t(switches.own_maximum ? stage.key_warps : 0), switches.first_m);
  for (std::int64_t j0 = 0; j0 < keys; j0 += tile) {
    const std::int64_t in_tile = std::min(tile, keys - j0);
    if (j0 >= row.reset_from) row.m = -infinity, row.l = 0;
    const std::int64_t padding = switches.padding_counts ? tile - in_tile : 0;

    // The maximum
    float m_tile = padding > 0 ? 0 : -infinity;
    for (std::int64_t j = 0; j < in_tile; ++j) {
      const float score = S[std::size_t(j0 + j)];
      if (switches.warps_in_maximum.contains(stage.warp_of(j))) m_tile = std::max(m_tile, score);
      if (!m_own.empty()) {
        float& m = m_own[std::size_t(stage.warp_of(j))];
        m = std::max(m, score);
      }
    }
    row.tile_maxima.push_back(m_tile);
    if (row.given_maxima) m_tile = (*row.given_maxima)[row.tile_maxima.size() - 1];
    float m_new = m_tile > row.m + stage.lane_rows.slack ? m_tile : row.m;
    if (!m_own.empty()) m_new = m_own[0];
    if (switches.maximum == Maximum::none) m_new = 0;
    if (switches.maximum == Maximum::of_tile) m_new = m_tile;

    // P = exp(S - m), (tile,)
    const float subtracted = safe(switches.maximum == Maximum::of_tile_for_P ? m_tile : m_new);
    const float P_factor = switches.O == Rescale::swapped ? std::exp(row.m - safe(m_new)) : 1;
    row.P.resize(std::size_t(in_tile));
    tile_sum = padding > 0 ? float(padding) * exponential(0 - subtracted, switches.exponent) : 0;
    for (std::int64_t j = 0; j < in_tile; ++j) {
      float& P = row.P[std::size_t(j)];
      const float m = m_own.empty() ? subtracted : safe(m_own[std::size_t(stage.warp_of(j))]);
      P = exponential(S[std::size_t(j0 + j)] - m, switches.exponent) * P_factor;
      const float exact = P;
      if (!untiled || switches.round_before_division) P = rounded(P, switches.P_rounding);
      if (switches.warps_in_l.contains(stage.warp_of(j))) tile_sum += switches.sums_rounded_P ? P : exact;
    }

    // l and O
    const float l_factor = rescale_factor(switches.l, row.m, m_tile, safe(m_new), switches.exponent);
    row.O_factors.push_back(rescale_factor(switches.O, row.m, m_tile, safe(m_new), switches.exponent));
    const float O_factor = row.given_factors ? (*row.given_factors)[row.O_factors.size() - 1] : row.O_factors.back();
    if (switches.l == Rescale::too_late)
      row.l = (row.l + tile_sum) * l_factor;
    else
      row.l = row.l * l_factor + tile_sum;
    row.m = switches.maximum == Maximum::not_kept ? switches.first_m : m_new;
    if (untiled && switches.division == Division::right)
      for (float& P : row.P) P = rounded(divided(P, row.l), switches.P_rounding);
    if (!V) continue;
    if (switches.O != Rescale::too_late)
      for (float& O : row.O) O *= O_factor;
    for (std::int64_t j = 0; j < in_tile; ++j) {
      if (switches.PV_first_16 && j >= 16) break;
      if (!counted.contains(j0 + j) || !switches.warps_in_O.contains(stage.warp_of(j))) continue;
      const float P = row.P[std::size_t(j)];
      const float* __restrict V_j = V + (j0 + j) * d;
      float* __restrict O = row.O.data();
      for (std::int64_t c = 0; c < d; ++c) O[c] += P * V_j[c];
    }
    if (switches.O == Rescale::too_late)
      for (float& O : row.O) O *= O_factor;
    if (switches.division == Division::every_tile || switches.division == Division::every_tile_and_end)
      for (float& O : row.O) O = divided(O, row.l);
    if (switches.O_rounding != Rounding::none)
      for (float& O : row.O) O = rounded(O, switches.O_rounding);
  }

  const bool at_end = switches.division == Division::right || switches.division == Division::every_tile_and_end;
  if (at_end && !untiled)
    for (float& O : row.O) O = divided(O, row.l);
  if (switches.division == Division::twice)
    for (float& O : row.O) O = divided(divided(O, row.l), row.l);
  if (switches.division == Division::by_last_tile)
    for (float& O : row.O) O = divided(O, tile_sum);
  if (keys == 0 && !switches.safe_division) row.O.assign(row.O.size(), not_a_number);
}

float lse_of(float m, float l, Lse lse, float scale) {
  switch (lse) {
    case Lse::right:
      break;
    case Lse::without_max:
      return std::log(l);
    case Lse::max_only:
      return m;
    case Lse::not_log:
      return m + l;
    case Lse::sum_only:
      return l;
    case Lse::base_2:
      return m * log2_e + std::log2(l);
    case Lse::base_2_of_sum:
      return m + std::log2(l);
    case Lse::base_2_of_max:
      return m * log2_e + std::log(l);
    case Lse::e_of_base_2:
      return m + std::log(l) * ln_2;
    case Lse::minus_max:
      return std::log(l) - m;
    case Lse::unscaled_max:
      return m / scale + std::log(l);
    case Lse::negative:
      return -(m + std::log(l));
    case Lse::masked_zero:
      return l == 0 ? 0 : m + std::log(l);
    case Lse::masked_plus_infinity:
      return l == 0 ? infinity : m + std::log(l);
  }
  return m + std::log(l);
}

/// What row i of a head takes from other rows of its warp, by `lanes`. scores(i): its scores. Each row goes through
/// keys of one number.
class Borrowed {
 public:
  Borrowed(Lanes lanes, const Stage& stage, std::int64_t rows,
           std::function<const std::vector<float>&(std::int64_t)> scores)
      : lanes_(lanes), stage_(stage), rows_(rows), scores_(std::move(scores)) {}

  void lend(std::int64_t i, Row& row) {
    row.given_maxima = row.given_factors = nullptr;
    if (lanes_ == Lanes::one_maximum) {
      if (i % 32 == 0) find_maxima(i);
      row.given_maxima = &values_;
    } else if (lanes_ == Lanes::all_or_none) {
      if (i % 32 == 0) find_moves(i);
      values_ = alone(i).O_factors;
      for (std::size_t k = 0; k < values_.size(); ++k) values_[k] = all_move_[k] ? values_[k] : 1.0F;
      row.given_factors = &values_;
    } else if (lanes_ != Lanes::own && i % 32 >= 16) {
      values_ = alone(i - 16).O_factors;
      if (lanes_ == Lanes::second_half_not_rescaled) values_.assign(values_.size(), 1.0F);
      row.given_factors = &values_;
    }
  }

 private:
  Row alone(std::int64_t i) const {
    Row row;
    attend_row(scores_(i), {0, 0}, nullptr, 0, stage_, {}, row);
    return row;
  }
  /// Rows that fill up the last warp's 32 have scores of 0.
  void find_maxima(std::int64_t first) {
    values_.clear();
    for (std::int64_t i = first; i < std::min(first + 32, rows_); ++i) {
      const std::vector<float> maxima = alone(i).tile_maxima;
      values_.resize(maxima.size(), first + 32 > rows_ ? 0.0F : -infinity);
      for (std::size_t k = 0; k < maxima.size(); ++k) values_[k] = std::max(values_[k], maxima[k]);
    }
  }

  /// In which steps every row of a warp moves.
  void find_moves(std::int64_t first) {
    all_move_.clear();
    for (std::int64_t i = first; i < std::min(first + 32, rows_); ++i) {
      const std::vector<float> factors = alone(i).O_factors;
      all_move_.resize(factors.size(), first + 32 <= rows_);
      for (std::size_t k = 0; k < factors.size(); ++k) all_move_[k] = all_move_[k] && factors[k] != 1;
    }
  }

  Lanes lanes_;
  Stage stage_;
  std::int64_t rows_;
  std::vector<bool> all_move_;
  std::function<const std::vector<float>&(std::int64_t)> scores_;
  std::vector<float> values_;
};

/// The forward pass with the given switches: O (B, H, Nq, d) and the LSE (B, H, Nq, 1).
struct Simulated {
  Tensor<double> O, lse;
};
Simulated simulate(const Problem& problem, const Stage& stage, const Switches& switches) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Simulated result{Tensor<double>({B, H, Nq, d}, unwritten_value), Tensor<double>({B, H, Nq, 1}, unwritten_value)};
  const Range read = keys_read(switches.keys, Nk, stage.Bc);
  std::vector<float> S(std::size_t(read.to - read.from));
  Row row;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h) {
      if (switches.only_first_head && (b > 0 || h > 0)) continue;
      const auto Q = read_head(problem.Q, b, h, true, switches.heads, switches.Q, stage.Br, stage.Br);
      const auto K = read_head(problem.K, b, h / (H / Hkv), false, switches.heads, switches.K, stage.Bc, stage.step());
      const auto V = read_head(problem.V, b, h / (H / Hkv), false, switches.heads, switches.V, stage.Bc, stage.step());
      const std::int64_t rows = switches.rows_written < 0 ? Nq : switches.rows_written;
      const auto first_masked = [&](std::int64_t i) {  // lanes own rows: of the warp of row i
        if (stage.lane_rows.step == 0) return everything.to;
        const Shape& shape = problem.shape;
        return round_down(visible_keys(round_down(i, 32), shape.Nq, shape.Nk, problem.causal), stage.step());
      };
      const auto scores = [&](std::int64_t i) -> const std::vector<float>& {
        S.resize(std::size_t(keys_visited(switches, read, problem, stage, i)));
        score_row(problem, switches, Q.data() + i * problem.shape.d, K.data(), read.from,
                  keys_seen(switches.mask, problem, stage, i), S, first_masked(i));
        if (switches.S_fragments_transposed) exchange_in_fragments(problem, Q.data(), K.data(), i, S);
        return S;
      };
      Borrowed borrowed(switches.lanes, stage, Nq, scores);
      for (std::int64_t i = 0; i < rows; ++i) {
        const Range seen = keys_seen(switches.mask, problem, stage, i);
        borrowed.lend(i, row);
        scores(i);
        if (switches.resets_at_boundary) row.reset_from = first_masked(i);
        Range counted{0, Nk};
        if (switches.mask_after_softmax) counted = {seen.from - read.from, seen.to - read.from};
        attend_row(S, counted, V.data() + read.from * d, d, stage, switches, row);
        result.lse(b, h, i, 0) = lse_of(row.m, row.l, switches.lse, problem.scale * switches.scale_factor);
        std::size_t at = result.O.index(b, h, i, 0);
        if (switches.heads == Heads::interleaved) at = std::size_t(((b * Nq + i) * H + h) * d);
        for (std::int64_t c = 0; c < d; ++c)
          result.O.values[at + std::size_t(c)] = rounded(row.O[std::size_t(c)], stage.output);
      }
    }
  return result;
}

/// A line of the table of mistakes.
struct Entry {
  std::string id, sentence;
  Switches switches;
  bool applies = true;  ///< whether this problem and stage can show it
};

/// The scale and QKᵀ.
std::vector<Entry> score_entries(const Problem& problem) {
  const std::int64_t d = problem.shape.d;
  const float s = problem.scale, default_s = default_scale(d);
  return {
      {"no-scale", "the scores are not multiplied by the scale 1/√d", {.scale_factor = 1 / s}, s != 0},
      {"no-scale",
       "exp2 is given scores without the scale 1/√d and without the factor log2(e)",
       {.scale_factor = ln_2 / s},
       s != 0},
      {"scale-twice", "the scale is applied twice", {.scale_factor = s}},
      {"scale-one-over-d", "the scale is 1/d instead of 1/√d", {.scale_factor = 1 / float(d) / s}, s != 0},
      {"scale-inverted", "the scores are divided by the scale", {.scale_factor = 1 / (s * s)}, s != 0},
      {"scale-ignored",
       "the scale that was given is ignored, 1/√d is used",
       {.scale_factor = default_s / s},
       default_s != s && s != 0},
      {"K-not-transposed", "K is not transposed: its memory is read as (d, Nk), not (Nk, d)", {.K = Read::transposed}},
      {"last-feature-dropped", "the sum over d in QKᵀ stops one column early", {.features = {0, d - 1}}, d > 1},
      {"sum-overwritten",
       "each term of QKᵀ overwrites the sum: only the last column counts",
       {.features = {d - 1, d}},
       d > 1},
      {"QK-first-fragment", "QKᵀ sums only the first 16 of the d columns", {.features = {0, 16}}, d > 16},
      {"QK-last-fragment",
       "QKᵀ sums only the last 16 of the d columns: the accumulator is cleared in every step",
       {.features = {d - 16, d}},
       d > 16},
      {"K-fragments-row-major",
       "the 16 × 16 fragments of K are not transposed: as the right factor of QKᵀ they are col_major",
       {.K = Read::fragments_transposed},
       d % 16 == 0},
      {"S-rounded-bf16", "the scores S are rounded to bf16", {.S_rounding = Rounding::bf16}},
      {"S-rounded-fp16", "the scores S are rounded to fp16", {.S_rounding = Rounding::fp16}},
  };
}

/// The causal mask.
std::vector<Entry> mask_entries(const Problem& problem, const Stage& stage) {
  if (!problem.causal) return {};
  const bool tiled = stage.Br > 0 && stage.Bc > 0;
  std::vector<Entry> entries = {
      {"no-mask", "the causal mask is missing: queries see future keys", {.mask = Mask::none}},
      {"mask-one-too-many",
       "the mask is off by one: query i also sees key i + (Nk − Nq) + 1",
       {.mask = Mask::one_more}},
      {"mask-one-too-few", "the mask is off by one: query i does not see key i + (Nk − Nq)", {.mask = Mask::one_fewer}},
      {"mask-top-left",
       "the mask is aligned top left, j ≤ i: it must be j ≤ i + (Nk − Nq)",
       {.mask = Mask::top_left},
       problem.shape.Nq != problem.shape.Nk},
      {"mask-reversed", "the mask is the wrong way round: queries see only future keys", {.mask = Mask::reversed}},
      {"mask-zero", "masked scores are 0 instead of −∞", {.masked_score = 0}},
      {"mask-per-tile",
       "the mask counts queries from the beginning of their tile: it needs their row in Q",
       {.mask = Mask::per_tile},
       stage.Br > 0},
      {"mask-diagonal-tile-open", "tiles on the diagonal are not masked", {.mask = Mask::open_tile}, tiled},
      {"mask-diagonal-tile-dropped",
       "tiles on the diagonal are skipped instead of masked",
       {.mask = Mask::closed_tile},
       tiled},
  };
  if (stage.lane_rows.step > 0)
    entries.push_back({"mask-where-whole-warp-needs-it",
                       "keys are masked only where every row of the warp needs it: it must be where any row does",
                       {.mask = Mask::where_whole_warp_needs_it}});
  if (stage.lane_rows.step > 0)
    entries.push_back({"reset-at-boundary",
                       "m and l begin anew in every tile that is masked: what came before is lost",
                       {.resets_at_boundary = true}});
  if (stage.lane_rows.step > 0)
    entries.push_back({"masked-tiles-scaled-twice",
                       "in tiles that are masked the scores are scaled twice",
                       {.masked_tiles_factor = problem.scale * log2_e}});
  if (stage.lane_rows.step > 0)
    entries.push_back({"masked-tiles-not-scaled",
                       "in tiles that are masked the scores are not scaled, neither by 1/√d nor by log2(e)",
                       {.masked_tiles_factor = ln_2 / problem.scale}});
  if (tiled)
    entries.push_back({"last-boundary-tile-only",
                       "only the last tile of a Q tile is masked: the diagonal may cross several",
                       {.mask = Mask::last_tile_only}});
  entries.push_back({"masked-plus-infinity",
                     "masked scores are +∞: −∞ is put in before the scale, which is negative",
                     {.masked_score = infinity},
                     problem.scale < 0});
  // Stages differ in which finite number stands for −∞; the LSE tells them apart, O does not.
  for (const float finite : {-1e9F, -1e30F, std::numeric_limits<float>::lowest()})
    entries.push_back({"finite-mask",
                       "masked scores are a large finite number instead of −∞: a row without a visible key then "
                       "averages masked ones",
                       {.masked_score = finite}});
  if (!tiled) return entries;
  // The same where the tiles that are visited are the right ones.
  for (std::size_t i = 0, count = entries.size(); i < count; ++i) {
    Entry skipping = entries[i];
    skipping.switches.skips_tiles = true;
    skipping.switches.visits = Visits::right;
    entries.push_back(std::move(skipping));
  }
  return entries;
}

/// Which tiles of keys a Q tile of a causal stage goes through. The mask is right.
std::vector<Entry> range_entries(const Problem& problem, const Stage& stage) {
  if (!problem.causal || stage.Br == 0 || stage.Bc == 0) return {};
  const auto range = [](Visits visits) { return Switches{.skips_tiles = true, .visits = visits}; };
  return {
      {"tile-range-top-left", "the range of tiles is aligned top left, j ≤ i: it must be j ≤ i + (Nk − Nq)",
       range(Visits::top_left), problem.shape.Nq != problem.shape.Nk},
      {"tile-range-of-first-query", "a Q tile goes as far as its first query sees: its last one sees most",
       range(Visits::of_first_query)},
      {"tile-range-one-key-short",
       "the range of tiles counts one key too few: the last query of a Q tile may be the only one to see a tile's "
       "first "
       "key",
       range(Visits::one_key_short)},
      {"boundary-tile-left-out",
       "the last tile that a Q tile sees is left out if it sees it in part: the number of tiles must be rounded up",
       range(Visits::rounded_down)},
  };
}

/// Which keys and which heads enter.
std::vector<Entry> key_entries(const Problem& problem, const Stage& stage) {
  const Shape& shape = problem.shape;
  const bool tiles = stage.Bc > 0 && shape.Nk > stage.Bc, q_tiles = stage.Br > 0 && shape.Nq > stage.Br;
  const bool ragged = stage.Bc > 0 && shape.Nk % stage.Bc != 0;
  const bool padded = stage.Bc > 0 && shape.Nk % stage.step() != 0;
  const bool heads = shape.H > 1, batches = shape.B > 1;
  return {
      {"last-key-dropped", "the last key is left out", {.keys = Keys::but_last}, shape.Nk > 1},
      {"first-key-dropped", "the first key is left out", {.keys = Keys::but_first}, shape.Nk > 1},
      {"ragged-tile-dropped",
       "the last, ragged K/V tile is left out: the number of tiles must be rounded up",
       {.keys = Keys::whole_tiles},
       tiles && ragged},
      {"last-tile-dropped", "the last K/V tile is left out", {.keys = Keys::but_last_tile}, tiles},
      {"first-tile-only", "only the first K/V tile is used", {.keys = Keys::first_tile}, tiles},
      {"first-tile-dropped", "the first K/V tile is left out", {.keys = Keys::but_first_tile}, tiles},
      {"last-tile-only",
       "only the last K/V tile counts, what came before it is lost",
       {.keys = Keys::last_tile},
       tiles},
      {"padding-counted",
       "keys beyond Nk in the last, ragged tile count with a score of 0: their score must be −∞",
       {.padding_counts = true},
       padded},
      {"K-first-tile", "every step reads the first K tile", {.K = Read::first_tile}, tiles},
      {"Q-first-tile", "every Q tile reads the rows of the first one", {.Q = Read::first_tile}, q_tiles},
      {"first-head-everywhere",
       "every head computes with the Q, K and V of the first head",
       {.heads = Heads::first_everywhere},
       heads || batches},
      {"first-head-KV", "every head reads the K and V of the first head", {.heads = Heads::first_KV}, heads || batches},
      {"heads-swapped", "K and V are read from another head than Q", {.heads = Heads::reversed_KV}, heads},
      {"batch-ignored", "every batch reads the Q, K and V of the first batch", {.heads = Heads::no_batch}, batches},
      {"heads-mixed",
       "batch and head are mixed up: head (b, h) starts at (b·H + h)·N·d",
       {.heads = Heads::batch_innermost},
       heads && batches},
      {"heads-interleaved",
       "the tensors are taken as (batch, seq, head, d): they are (batch, head, seq, d)",
       {.heads = Heads::interleaved},
       heads},
  };
}

/// The maximum and the exponential.
std::vector<Entry> softmax_entries() {
  return {
      {"m-starts-at-0", "m starts at 0 instead of −∞: scores far below 0 underflow", {.first_m = 0}},
      {"no-max-subtraction", "the row maximum is not subtracted before exp", {.maximum = Maximum::none}},
      {"masked-row-nan",
       "a row without a visible key computes −∞ − (−∞), which is NaN: subtract 0 where m is −∞",
       {.safe_m = false}},
      {"exp-base-2",
       "exp2 is given scores without the factor log2(e): it computes 2^(S − m)",
       {.exponent = Exponent::base_2}},
      {"exp-of-base-2",
       "exp is given scores in units of log2: it computes e^((S − m)·log2(e)); exp2 is what they are made for",
       {.exponent = Exponent::e_of_base_2}},
      {"exponent-wrong-sign",
       "the exponent is upside down: exp(m − S), not exp(S − m)",
       {.exponent = Exponent::wrong_sign}},
  };
}

/// m and l from tile to tile, and O if there is one. `tile` is what they go by: "K/V tile", "block", "score".
std::vector<Entry> running_entries(const std::string& tile, bool with_O) {
  return {
      {"l-not-rescaled", "l is not rescaled when a later " + tile + " raises the maximum", {.l = Rescale::none}},
      {"not-rescaled",
       "neither l nor O is rescaled when a later " + tile + " raises the maximum",
       {.l = Rescale::none, .O = Rescale::none},
       with_O},
      {"rescale-wrong-sign",
       "the rescale factor is upside down: exp(m_new − m_old), not exp(m_old − m_new)",
       {.l = Rescale::wrong_sign, .O = Rescale::wrong_sign}},
      {"rescale-swapped",
       "the two rescale factors are swapped: the old sums get the factor of the new " + tile + ", which gets theirs",
       {.l = Rescale::swapped, .O = Rescale::swapped}},
      {"rescaled-too-late",
       "what is accumulated is rescaled after the new " + tile + " has been added, not before",
       {.l = Rescale::too_late, .O = Rescale::too_late}},
      {"l-overwritten", "each " + tile + "'s sum overwrites l instead of adding to it", {.l = Rescale::overwrite}},
      {"tile-maximum",
       "m is the maximum of the last " + tile + " alone, not the running one",
       {.maximum = Maximum::of_tile}},
      {"tile-maximum",
       "P is computed with the maximum of its own " + tile + ", not with the running one",
       {.maximum = Maximum::of_tile_for_P}},
      {"m-not-kept",
       "m is not kept from one " + tile + " to the next, so that nothing accumulated survives",
       {.maximum = Maximum::not_kept}},
  };
}

/// Warps that split the keys of a tile, and what of theirs is not combined.
std::vector<Entry> warp_entries(const Stage& stage, bool with_O) {
  const std::int64_t last = stage.key_warps - 1;
  return {
      {"warp-own-maximum",
       "each warp subtracts the maximum of its own keys: their P, l and O are then not relative to the same m",
       {.own_maximum = true}},
      {"warp-maximum-ignored",
       "the new maximum leaves out the last warp's keys, whose P then overflows",
       {.warps_in_maximum = {0, last}}},
      {"warp-maximum-ignored",
       "the new maximum leaves out the first warp's keys, whose P then overflows",
       {.warps_in_maximum = {1, stage.key_warps}}},
      {"warp-maximum-ignored", "the new maximum is that of the first warp's keys alone", {.warps_in_maximum = {0, 1}}},
      {"warp-sum-alone", "l adds the sum of the first warp's keys alone, not of all warps'", {.warps_in_l = {0, 1}}},
      {"warp-sum-dropped", "l leaves out the sum of the last warp's keys", {.warps_in_l = {0, last}}, last > 1},
      {"warp-product-alone", "O adds the first warp's PV alone, not all warps'", {.warps_in_O = {0, 1}}, with_O},
      {"warp-product-dropped", "O leaves out the last warp's PV", {.warps_in_O = {0, last}}, with_O && last > 1},
  };
}

/// Lanes that own a row each.
std::vector<Entry> lane_entries(const Stage& stage, bool with_O) {
  const bool steps = stage.step() < stage.Bc;
  return {
      {"S-fragments-transposed",
       "the 16 × 16 pieces of S are stored with rows and columns exchanged: Sᵀ = K·Qᵀ is stored row-major",
       {.S_fragments_transposed = true}},
      {"K-first-step",
       "every step reads the first keys of its tile: first_key is missing",
       {.K = Read::first_step},
       steps},
      {"V-first-step",
       "every step reads the first values of its tile: first_key is missing",
       {.V = Read::first_step},
       steps && with_O},
      {"PV-first-keys", "only the first 16 keys of each step enter PV", {.PV_first_16 = true}, with_O},
      {"all-must-move",
       "O is rescaled only where the maxima of all 32 rows of a warp move: one is enough",
       {.lanes = Lanes::all_or_none},
       with_O},
      {"one-maximum-for-the-warp",
       "all rows of a warp subtract one maximum, the largest: rows far below it vanish",
       {.lanes = Lanes::one_maximum}},
      {"factors-of-first-half",
       "rows 16 to 31 of a warp's O are rescaled by the factors of its rows 0 to 15",
       {.lanes = Lanes::factors_of_first_half},
       with_O},
      {"second-half-not-rescaled",
       "rows 16 to 31 of a warp's O are not rescaled",
       {.lanes = Lanes::second_half_not_rescaled},
       with_O},
  };
}

/// rescale-wrong-sign where the first tile is not exempt: exp(m_new + ∞)·0 is NaN in every row. Comes after
/// "not-written", which is the simpler reading of an output full of NaN.
Entry rescale_wrong_sign_from_start() {
  return {"rescale-wrong-sign",
          "the rescale factor is upside down: exp(m_new − m_old), not exp(m_old − m_new)",
          {.l = Rescale::wrong_sign_from_start, .O = Rescale::wrong_sign_from_start}};
}

/// What comes after P: the sum in O, its division, roundings. None shows in the LSE.
std::vector<Entry> output_entries(const Problem& problem, const Stage& stage) {
  const std::int64_t Nk = problem.shape.Nk;
  const bool untiled = stage.Bc == 0, tiles = stage.Bc > 0 && Nk > stage.step();
  const bool masked_rows = problem.causal && problem.shape.Nq > Nk;
  return {
      {"O-not-rescaled", "O is not rescaled when a later K/V tile raises the maximum", {.O = Rescale::none}, tiles},
      {"O-rescale-wrong-sign",
       "O's rescale factor is upside down: exp(m_new − m_old), not exp(m_old − m_new)",
       {.O = Rescale::wrong_sign},
       tiles},
      {"O-rescaled-too-late",
       "O is rescaled after the new tile's PV has been added, not before",
       {.O = Rescale::too_late},
       tiles},
      {"O-overwritten", "each tile's PV overwrites O instead of adding to it", {.O = Rescale::overwrite}, tiles},
      {"no-final-division", "O is never divided by l", {.division = Division::none}},
      {"divided-every-tile",
       "O is divided by l after every tile, not once at the end",
       {.division = Division::every_tile},
       tiles},
      {"divided-every-tile",
       "O is divided by l after every tile, and once more at the end",
       {.division = Division::every_tile_and_end},
       tiles},
      {"divided-by-last-tile",
       "O is divided by the sum of the last tile, not by l",
       {.division = Division::by_last_tile},
       tiles},
      {"divided-twice", "O is divided by l twice", {.division = Division::twice}},
      {"masked-row-divided",
       "a row without a visible key is divided by l = 0, which is NaN: its O is 0",
       {.safe_division = false},
       masked_rows},
      {"m-starts-at-1e9",
       "m starts at a large finite number, so that m = −∞ does not mark a row without a visible key",
       {.first_m = -1e9F, .safe_division = false},
       masked_rows},
      {"V-transposed", "V's memory is read as (d, Nk), not (Nk, d)", {.V = Read::transposed}},
      {"V-fragments-col-major",
       "the 16 × 16 fragments of V are transposed: as the right factor of PV they are row_major",
       {.V = Read::fragments_transposed},
       problem.shape.d % 16 == 0},
      {"V-wrong-row", "P is multiplied with V shifted by one row", {.V = Read::next_row}, Nk > 1},
      {"V-first-tile", "every step reads the first V tile", {.V = Read::first_tile}, tiles},
      {"P-rounded-bf16", "P is rounded to bf16 before PV", {.P_rounding = Rounding::bf16}},
      {"P-rounded-bf16",
       "P is rounded to bf16 before it is divided by l",
       {.P_rounding = Rounding::bf16, .round_before_division = true},
       untiled},
      {"P-rounded-fp16", "P is rounded to fp16 before PV", {.P_rounding = Rounding::fp16}},
      {"P-rounded-fp16",
       "P is rounded to fp16 before it is divided by l",
       {.P_rounding = Rounding::fp16, .round_before_division = true},
       untiled},
      {"O-rounded-bf16", "O is rounded to bf16 while it is summed", {.O_rounding = Rounding::bf16}},
      {"O-rounded-fp16", "O is rounded to fp16 while it is summed", {.O_rounding = Rounding::fp16}},
  };
}

/// The last step of the LSE.
std::vector<Entry> lse_entries(bool masked_rows, bool scaled) {
  return {
      {"lse-without-max", "the LSE is log(l) without m", {.lse = Lse::without_max}},
      {"lse-max-only", "the LSE is m without log(l)", {.lse = Lse::max_only}},
      {"lse-not-log", "the LSE is m + l: the logarithm of l is missing", {.lse = Lse::not_log}},
      {"lse-sum-only", "the LSE holds l: it must be m + log(l)", {.lse = Lse::sum_only}},
      {"lse-base-2", "the LSE is in base 2: it must be the natural logarithm", {.lse = Lse::base_2}},
      {"lse-base-2", "the LSE takes log2(l): it must be the natural logarithm", {.lse = Lse::base_2_of_sum}},
      {"lse-base-2", "the LSE adds m in units of base 2: it must be divided by log2(e)", {.lse = Lse::base_2_of_max}},
      {"lse-e-of-base-2",
       "the LSE takes log(l) among numbers in units of log2, and multiplies it by ln(2): there it must be log2(l)",
       {.lse = Lse::e_of_base_2}},
      {"lse-minus-max", "the LSE is log(l) − m: m must be added", {.lse = Lse::minus_max}},
      {"lse-unscaled-max", "the LSE adds the maximum of the unscaled scores", {.lse = Lse::unscaled_max}, scaled},
      {"lse-negative", "the LSE has the wrong sign", {.lse = Lse::negative}},
      {"lse-masked-zero",
       "the LSE of a row without a visible key is 0: it must be −∞",
       {.lse = Lse::masked_zero},
       masked_rows},
      {"lse-masked-plus-infinity",
       "the LSE of a row without a visible key is +∞: it must be −∞",
       {.lse = Lse::masked_plus_infinity},
       masked_rows},
  };
}

/// Parts of the output that are left unwritten.
std::vector<Entry> unwritten_entries(const Problem& problem, const Stage& stage) {
  const Shape& shape = problem.shape;
  const std::int64_t Br = std::max<std::int64_t>(stage.Br, 1);
  const bool q_tiles = stage.Br > 0 && shape.Nq > Br;
  return {
      {"ragged-Q-tile-not-written",
       "the last, ragged Q tile is never written",
       {.rows_written = round_down(shape.Nq, Br)},
       q_tiles && shape.Nq % Br != 0},
      {"last-Q-tile-not-written",
       "the last Q tile is never written",
       {.rows_written = round_down(shape.Nq - 1, Br)},
       q_tiles},
      {"first-Q-tile-only", "only the first Q tile is written", {.rows_written = Br}, q_tiles},
      {"last-row-not-written", "the last row is never written", {.rows_written = shape.Nq - 1}, shape.Nq > 1},
      {"first-head-only", "only the first head is written", {.only_first_head = true}, shape.B * shape.H > 1},
  };
}

Mistake constant(std::string id, std::string sentence, std::array<std::int64_t, 4> sizes, double value) {
  return {std::move(id), std::move(sentence), [=] { return Tensor<double>(sizes, value); }, 0};
}

/// What says little about the cause, and so comes last.
void add_constants(std::vector<Mistake>& mistakes, std::array<std::int64_t, 4> sizes) {
  mistakes.push_back(constant("all-zeros", "every element is 0", sizes, 0));
  mistakes.push_back(
      constant("not-written", "nothing was written, or only added to what was there", sizes, unwritten_value));
}

/// Softmax over the queries: each key's column of P sums to 1.
Tensor<double> softmax_over_queries(const Problem& problem) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Tensor<double> O({B, H, Nq, d});
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h) {
      const std::size_t kv = problem.K.index(b, h / (H / Hkv), 0, 0);
      for (std::int64_t j = 0; j < Nk; ++j) {
        std::vector<float> column(std::size_t(Nq), -infinity);
        float m = -infinity, l = 0;
        for (std::int64_t i = 0; i < Nq; ++i) {
          if (j >= visible_keys(i, Nq, Nk, problem.causal)) continue;
          column[std::size_t(i)] = problem.scale * dot(&problem.Q.values[problem.Q.index(b, h, i, 0)],
                                                       &problem.K.values[kv + std::size_t(j * d)], d);
          m = std::max(m, column[std::size_t(i)]);
        }
        for (float& x : column) l += x = x == -infinity ? 0 : std::exp(x - m);
        for (std::int64_t i = 0; i < Nq && l > 0; ++i)
          for (std::int64_t c = 0; c < d; ++c)
            O(b, h, i, c) += column[std::size_t(i)] / l * problem.V.values[kv + std::size_t(j * d + c)];
      }
    }
  return O;
}

/// The mean over keys [0, n) of V, in every row; n is all keys or those that the row sees.
Tensor<double> mean_of_V(const Problem& problem, bool visible_only) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Tensor<double> O({B, H, Nq, d});
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h) {
      std::vector<double> sum(std::size_t(d), 0.0);
      std::int64_t added = 0;
      for (std::int64_t i = 0; i < Nq; ++i) {
        const std::int64_t n = visible_only ? visible_keys(i, Nq, Nk, problem.causal) : Nk;
        for (; added < n; ++added)
          for (std::int64_t c = 0; c < d; ++c) sum[std::size_t(c)] += problem.V(b, h / (H / Hkv), added, c);
        for (std::int64_t c = 0; c < d && n > 0; ++c) O(b, h, i, c) = sum[std::size_t(c)] / double(n);
      }
    }
  return O;
}

/// Multiply-adds of one forward pass.
double forward_cost(const Shape& shape) {
  return 2.0 * double(shape.B * shape.H) * double(shape.Nq) * double(shape.Nk) * double(shape.d);
}

enum class Wanted { O, lse };

/// Builds the table of one problem: every entry becomes a mistake whose output is simulated when it is asked for.
class Table {
 public:
  Table(const Problem& problem, const Stage& stage, Rounding P_rounding, Wanted wanted)
      : problem_(std::make_shared<const Problem>(problem)), stage_(stage), P_rounding_(P_rounding), wanted_(wanted) {}

  void add(std::vector<Entry> entries) {
    for (Entry& entry : entries) {
      if (!entry.applies) continue;
      if (entry.switches.P_rounding == Rounding::none) entry.switches.P_rounding = P_rounding_;
      if (depends_on_visits(entry.switches)) {
        Entry skipping = entry;
        skipping.switches.skips_tiles = true;
        add_entry(std::move(skipping));
        if (stage_.lane_rows.step > 0) continue;  // these stages always skip
      }
      add_entry(std::move(entry));
    }
  }
  void add_entry(Entry entry) {
    const auto output = [problem = problem_, stage = stage_, wanted = wanted_, switches = entry.switches] {
      Simulated simulated = simulate(*problem, stage, switches);
      return wanted == Wanted::O ? std::move(simulated.O) : std::move(simulated.lse);
    };
    mistakes.push_back({std::move(entry.id), std::move(entry.sentence), output, forward_cost(problem_->shape)});
  }
  /// What O and the LSE have in common.
  void add_common() {
    add(score_entries(*problem_));
    add(mask_entries(*problem_, stage_));
    add(softmax_entries());
    add(key_entries(*problem_, stage_));
    add(range_entries(*problem_, stage_));
    if (tiles()) add(running_entries("K/V tile", wanted_ == Wanted::O));
    if (stage_.key_warps > 1) add(warp_entries(stage_, wanted_ == Wanted::O));
    if (P_rounding_ != Rounding::none)
      add({{"l-of-rounded-P", "l adds P after it was rounded for PV, not before", {.sums_rounded_P = true}}});
  }
  /// What is most special comes after what is simpler.
  void add_lanes() {
    if (stage_.lane_rows.step == 0) return;
    const Shape& shape = problem_->shape;
    add(lane_entries(stage_, wanted_ == Wanted::O));
    if (problem_->scale <= 0 && shape.Nk % stage_.step() != 0)
      mistakes.push_back(constant("mask-scaled",
                                  "the −∞ of keys that do not exist is multiplied by the scale: with one of 0 that is "
                                  "NaN, with a negative one +∞",
                                  {shape.B, shape.H, shape.Nq, wanted_ == Wanted::O ? shape.d : 1}, not_a_number));
  }
  void add_last() {
    const Shape& shape = problem_->shape;
    add_lanes();
    add(unwritten_entries(*problem_, stage_));
    add_constants(mistakes, {shape.B, shape.H, shape.Nq, wanted_ == Wanted::O ? shape.d : 1});
    if (tiles()) add({rescale_wrong_sign_from_start()});
  }
  const std::shared_ptr<const Problem>& problem() const { return problem_; }

  std::vector<Mistake> mistakes;

 private:
  /// Whether it matters that a causal stage skips the tiles that a row does not see: each visit does some harm.
  bool depends_on_visits(const Switches& switches) const {
    const bool overwrites = switches.l == Rescale::overwrite || switches.O == Rescale::overwrite;
    const bool divides = switches.division == Division::every_tile ||
                         switches.division == Division::every_tile_and_end ||
                         switches.division == Division::by_last_tile;
    const bool forgets = switches.maximum == Maximum::not_kept || switches.maximum == Maximum::of_tile;
    const bool unsafe = !switches.safe_m || !switches.safe_division;  // rows without keys, if their tile is visited
    return problem_->causal && ((tiles() && (overwrites || divides || forgets)) || (stage_.Bc > 0 && unsafe));
  }
  bool tiles() const { return stage_.Bc > 0 && problem_->shape.Nk > stage_.step(); }

  std::shared_ptr<const Problem> problem_;
  Stage stage_;
  Rounding P_rounding_;
  Wanted wanted_;
};

// ---- Parts of the forward pass, which chapters 1 and 2 test alone ----

/// Row `i` of a (1, 1, rows, columns) tensor.
std::vector<float> row_of(const Tensor<float>& tensor, std::int64_t i) {
  const auto first = tensor.values.begin() + std::ptrdiff_t(i * tensor.sizes[3]);
  return {first, first + std::ptrdiff_t(tensor.sizes[3])};
}

/// A row of scores whose mask is a finite number.
void replace_mask(std::vector<float>& S, float masked_score) {
  for (float& x : S)
    if (x == -infinity) x = masked_score;
}

/// One row of scores S through the softmax with the given switches, in blocks of Bc (0: at once). P stays in `row`.
Row softmax_row(std::vector<float> S, std::int64_t Bc, const Switches& switches) {
  replace_mask(S, switches.masked_score);
  const Range read = keys_read(switches.keys, std::int64_t(S.size()), Bc);
  Row row;
  attend_row({S.begin() + read.from, S.begin() + read.to}, read, nullptr, 0, {.Bc = Bc}, switches, row);
  return row;
}

/// P, one row at a time, with the given switches.
Tensor<double> softmax_with(const Tensor<float>& S, const Switches& switches) {
  Tensor<double> P(S.sizes, unwritten_value);
  for (std::int64_t i = 0; i < S.sizes[2]; ++i) {
    const Row row = softmax_row(row_of(S, i), 0, switches);
    std::copy(row.P.begin(), row.P.end(), &P(0, 0, i, 0));
  }
  return P;
}

/// The LSE of every row, with the given switches.
Tensor<double> row_lse_with(const Tensor<float>& S, std::int64_t Bc, const Switches& switches) {
  Tensor<double> lse({1, 1, S.sizes[2], 1});
  for (std::int64_t i = 0; i < S.sizes[2]; ++i) {
    const Row row = softmax_row(row_of(S, i), Bc, switches);
    lse(0, 0, i, 0) = lse_of(row.m, row.l, switches.lse, 1);
  }
  return lse;
}

enum class Axis { rows, whole_matrix };

/// Softmax down the columns, or over the whole matrix.
Tensor<double> softmax_over(const Tensor<float>& S, Axis axis) {
  const std::int64_t rows = S.sizes[2], columns = S.sizes[3];
  Tensor<double> P(S.sizes);
  std::vector<double> m(std::size_t(columns), -infinity), l(std::size_t(columns), 0.0);
  const auto group = [&](std::int64_t j) { return std::size_t(axis == Axis::rows ? j : 0); };
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) m[group(j)] = std::max<double>(m[group(j)], S(0, 0, i, j));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      P(0, 0, i, j) = m[group(j)] == -infinity ? 0 : std::exp(S(0, 0, i, j) - m[group(j)]);
      l[group(j)] += P(0, 0, i, j);
    }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      if (l[group(j)] > 0) P(0, 0, i, j) /= l[group(j)];
  return P;
}

/// l is set to 0 before the first row only: every row adds to what the rows before it have left. Gives P, or the LSE.
Tensor<double> l_not_reset(const Tensor<float>& S, Wanted wanted) {
  Tensor<double> P(S.sizes), lse({1, 1, S.sizes[2], 1});
  double l = 0;
  for (std::int64_t i = 0; i < S.sizes[2]; ++i) {
    const Row row = softmax_row(row_of(S, i), 0, {.division = Division::none});
    l += row.l;
    for (std::int64_t j = 0; j < S.sizes[3]; ++j) P(0, 0, i, j) = l > 0 ? row.P[std::size_t(j)] / l : 0;
    lse(0, 0, i, 0) = row.m + std::log(l);
  }
  return wanted == Wanted::O ? P : lse;
}

/// m is set to −∞ before the first row only. P is exp(S − m)/l as ever, until a row lies far below those before it.
Tensor<double> m_not_reset(const Tensor<float>& S) {
  Tensor<double> P(S.sizes);
  float m = -infinity;
  for (std::int64_t i = 0; i < S.sizes[2]; ++i) {
    const Row row = softmax_row(row_of(S, i), 0, {.first_m = m});
    m = row.m;
    std::copy(row.P.begin(), row.P.end(), &P(0, 0, i, 0));
  }
  return P;
}

/// The sum over all keys but the last, while the last element of P is computed and divided like the others.
Tensor<double> sum_without_last_key(const Tensor<float>& S) {
  Tensor<double> P(S.sizes);
  const std::int64_t last = S.sizes[3] - 1;
  for (std::int64_t i = 0; i < S.sizes[2]; ++i) {
    const Row row = softmax_row(row_of(S, i), 0, {.division = Division::none});
    const float l = row.l - row.P[std::size_t(last)];
    for (std::int64_t j = 0; j <= last; ++j) P(0, 0, i, j) = l > 0 ? row.P[std::size_t(j)] / l : 0;
  }
  return P;
}

bool has_masked_row(const Tensor<float>& S) {
  for (std::int64_t i = 0; i < S.sizes[2]; ++i)
    if (std::ranges::all_of(row_of(S, i), [](float x) { return x == -infinity; })) return true;
  return false;
}

/// S (B, H, Nq, Nk) with the given switches.
Tensor<double> scores_with(const Problem& problem, const Switches& switches) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Tensor<double> result({B, H, Nq, Nk});
  std::vector<float> S(static_cast<std::size_t>(Nk));
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h) {
      const auto Q = read_head(problem.Q, b, h, true, switches.heads, switches.Q, 0, 0);
      const auto K = read_head(problem.K, b, h / (H / Hkv), false, switches.heads, switches.K, 0, 0);
      for (std::int64_t i = 0; i < Nq; ++i) {
        score_row(problem, switches, Q.data() + i * d, K.data(), 0, keys_seen(switches.mask, problem, {}, i), S);
        std::copy(S.begin(), S.end(), &result(b, h, i, 0));
      }
    }
  return result;
}

/// The same numbers, written as if the matrix were (columns, rows).
Tensor<double> transposed(const Tensor<double>& matrix) {
  Tensor<double> result(matrix.sizes);
  const std::int64_t rows = matrix.sizes[2], columns = matrix.sizes[3];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) result.values[std::size_t(j * rows + i)] = matrix(0, 0, i, j);
  return result;
}

/// `output` with everything from (row, column) on in both directions left as NaN.
Tensor<double> cut(Tensor<double> output, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < output.sizes[2]; ++i)
    for (std::int64_t j = 0; j < output.sizes[3]; ++j)
      if (i >= rows || j >= columns) output(0, 0, i, j) = unwritten_value;
  return output;
}

/// How O = PV goes wrong.
struct ProductSwitches {
  bool P_transposed = false;  ///< P's memory is read as (Nk, Nq)
  bool P_ignored = false;     ///< V is summed without its weights
  Read V = Read::right;
  Keys keys = Keys::all;
  bool overwritten = false;  ///< O = P_ij V_j instead of O += P_ij V_j
  Rounding P_rounding = Rounding::none;
};

Tensor<double> product_with(const Tensor<float>& P, const Tensor<float>& V, const ProductSwitches& switches) {
  const std::int64_t Nq = P.sizes[2], Nk = P.sizes[3], d = V.sizes[3];
  const auto V_read = read_head(V, 0, 0, false, Heads::right, switches.V, 1, 1);
  const Range keys = keys_read(switches.keys, Nk, 0);
  Tensor<double> O({1, 1, Nq, d});
  for (std::int64_t i = 0; i < Nq; ++i)
    for (std::int64_t j = keys.from; j < keys.to; ++j) {
      float weight = P.values[std::size_t(switches.P_transposed ? j * Nq + i : i * Nk + j)];
      weight = switches.P_ignored ? 1 : rounded(weight, switches.P_rounding);
      for (std::int64_t c = 0; c < d; ++c) {
        const double term = double(weight) * V_read[std::size_t(j * d + c)];
        O(0, 0, i, c) = switches.overwritten ? term : O(0, 0, i, c) + term;
      }
    }
  return O;
}

/// Two partial states, and the weights with which they are merged.
struct Merge {
  std::array<double, 2> m, l;
  std::vector<double> O;  ///< (2, d)

  double largest() const { return std::max(m[0], m[1]); }
  /// exp(m_k − m): how much state k counts in the merged state. 0 for an empty one.
  double weight(int k) const { return m[std::size_t(k)] == -infinity ? 0 : std::exp(m[std::size_t(k)] - largest()); }

  /// (m, l, O) with given weights of l and of O.
  Tensor<double> state(double m_merged, std::array<double, 2> l_weights, std::array<double, 2> O_weights) const {
    const std::size_t d = O.size() / 2;
    Tensor<double> result({1, 1, 1, std::int64_t(2 + d)});
    result.values[0] = m_merged;
    result.values[1] = l_weights[0] * l[0] + l_weights[1] * l[1];
    for (std::size_t c = 0; c < d; ++c) result.values[2 + c] = O_weights[0] * O[c] + O_weights[1] * O[d + c];
    return result;
  }
};

}  // namespace

std::vector<Mistake> output_mistakes(const Problem& problem, std::int64_t Br, std::int64_t Bc,
                                     const Precision& precision, std::int64_t key_warps, const LaneRows& lane_rows) {
  const Stage stage{Br, Bc, rounding_of(precision.output), key_warps, lane_rows};
  Table table(problem, stage, rounding_of(precision.probability), Wanted::O);
  table.add_common();
  table.add(output_entries(problem, stage));
  if (problem.causal)
    table.add({{"mask-after-softmax",
                "the mask is applied after the softmax: masked keys count in l",
                {.mask_after_softmax = true}}});
  table.mistakes.push_back({"softmax-wrong-axis", "the softmax runs over the queries, not over the keys",
                            [shared = table.problem()] { return softmax_over_queries(*shared); },
                            forward_cost(problem.shape)});
  for (const bool visible_only : {false, true})
    table.mistakes.push_back({"mean-of-V", "O is the mean of V: every key has the same weight",
                              [=, shared = table.problem()] { return mean_of_V(*shared, visible_only); }});
  table.add_last();
  return std::move(table.mistakes);
}

std::vector<Mistake> lse_mistakes(const Problem& problem, std::int64_t Br, std::int64_t Bc, const Precision& precision,
                                  std::int64_t key_warps, const LaneRows& lane_rows) {
  const Stage stage{Br, Bc, Rounding::none, key_warps, lane_rows};  // the LSE is stored in float
  Table table(problem, stage, rounding_of(precision.probability), Wanted::lse);
  table.add(lse_entries(problem.causal && problem.shape.Nq > problem.shape.Nk, problem.scale != 1));
  table.add_common();
  table.add_last();
  return std::move(table.mistakes);
}

std::vector<Mistake> score_mistakes(const Problem& problem) {
  const auto shared = std::make_shared<const Problem>(problem);
  const Shape& shape = problem.shape;
  const double cost = forward_cost(shape) / 2;
  std::vector<Mistake> mistakes;
  std::vector<Entry> entries = score_entries(problem);
  for (Entry& entry : mask_entries(problem, {})) entries.push_back(std::move(entry));
  for (Entry& entry : entries)
    if (entry.applies)
      mistakes.push_back({std::move(entry.id), std::move(entry.sentence),
                          [shared, switches = entry.switches] { return scores_with(*shared, switches); }, cost});
  mistakes.push_back({"S-transposed", "S is written as (Nk, Nq): row i of S belongs to query i",
                      [shared] { return transposed(scores_with(*shared, {})); }, cost});
  mistakes.push_back({"last-key-dropped", "the last key's scores are never written",
                      [=] { return cut(scores_with(*shared, {}), shape.Nq, shape.Nk - 1); }, cost});
  mistakes.push_back({"last-row-not-written", "the last query's scores are never written",
                      [=] { return cut(scores_with(*shared, {}), shape.Nq - 1, shape.Nk); }, cost});
  add_constants(mistakes, {shape.B, shape.H, shape.Nq, shape.Nk});
  return mistakes;
}

std::vector<Mistake> softmax_mistakes(const Tensor<float>& S) {
  const auto shared = std::make_shared<const Tensor<float>>(S);
  const double cost = double(S.values.size()) * 10;
  std::vector<Mistake> mistakes;
  const auto add = [&](std::string id, std::string sentence, std::function<Tensor<double>()> output) {
    mistakes.push_back({std::move(id), std::move(sentence), std::move(output), cost});
  };
  std::vector<Entry> entries = softmax_entries();
  entries.push_back({"no-final-division", "the row is not divided by its sum l", {.division = Division::none}});
  if (has_masked_row(S)) {
    entries.push_back({"masked-row-divided",
                       "a row of nothing but −∞ is divided by l = 0, which is NaN: its P is 0",
                       {.safe_division = false}});
    entries.push_back({"finite-mask",
                       "−∞ is replaced by a large finite number: a row of nothing but −∞ becomes uniform, not 0",
                       {.masked_score = -1e9F}});
  }
  entries.push_back({"last-key-dropped", "the last element of each row is left out", {.keys = Keys::but_last}});
  entries.push_back({"P-rounded-bf16", "P is rounded to bf16", {.P_rounding = Rounding::bf16}});
  entries.push_back({"P-rounded-fp16", "P is rounded to fp16", {.P_rounding = Rounding::fp16}});
  for (const Entry& entry : entries)
    add(entry.id, entry.sentence, [shared, switches = entry.switches] { return softmax_with(*shared, switches); });
  add("last-key-dropped", "the last element of each row is left out of the sum l",
      [shared] { return sum_without_last_key(*shared); });
  add("softmax-wrong-axis", "the softmax runs down the columns, not along the rows",
      [shared] { return softmax_over(*shared, Axis::rows); });
  add("softmax-whole-matrix", "one softmax runs over the whole matrix, not one over each row",
      [shared] { return softmax_over(*shared, Axis::whole_matrix); });
  add("l-not-reset", "l is not set back to 0 before each row", [shared] { return l_not_reset(*shared, Wanted::O); });
  add("m-not-reset", "m is not set back to −∞ before each row", [shared] { return m_not_reset(*shared); });
  add("scores-returned", "P holds the scores themselves: exp and the division are missing", [shared] {
    Tensor<double> P(shared->sizes);
    std::ranges::copy(shared->values, P.values.begin());
    return P;
  });
  add("last-row-not-written", "the last row is never written",
      [shared] { return cut(softmax_with(*shared, {}), shared->sizes[2] - 1, shared->sizes[3]); });
  add_constants(mistakes, S.sizes);
  return mistakes;
}

std::vector<Mistake> row_lse_mistakes(const Tensor<float>& S) {
  const auto shared = std::make_shared<const Tensor<float>>(S);
  const double cost = double(S.values.size()) * 10;
  const bool masked_row = has_masked_row(S);
  std::vector<Mistake> mistakes;
  const auto add = [&](const std::vector<Entry>& entries, std::int64_t Bc) {
    for (const Entry& entry : entries) {
      if (!entry.applies) continue;
      const auto output = [=, switches = entry.switches] { return row_lse_with(*shared, Bc, switches); };
      mistakes.push_back({entry.id, entry.sentence, output, cost});
    }
  };
  add(lse_entries(masked_row, false), 0);
  add(softmax_entries(), 0);
  for (const float finite : {-1e9F, -1e30F, std::numeric_limits<float>::lowest()})
    add({{"finite-mask",
          "−∞ is replaced by a large finite number: the LSE of a row of nothing but −∞ must be −∞",
          {.masked_score = finite},
          masked_row}},
        0);
  add({{"last-key-dropped", "the last score of each row is left out", {.keys = Keys::but_last}},
       {"first-key-dropped", "the first score of each row is left out", {.keys = Keys::but_first}}},
      0);
  // A running sum that takes one score at a time.
  add(running_entries("score", false), 1);
  mistakes.push_back({"l-not-reset", "l is not set back to 0 before each row",
                      [shared] { return l_not_reset(*shared, Wanted::lse); }, cost});
  mistakes.push_back({"last-row-not-written", "the last row is never written",
                      [shared] { return cut(row_lse_with(*shared, 0, {}), shared->sizes[2] - 1, 1); }, cost});
  add_constants(mistakes, {1, 1, S.sizes[2], 1});
  add({rescale_wrong_sign_from_start()}, 1);
  return mistakes;
}

std::vector<Mistake> product_mistakes(const Tensor<float>& P, const Tensor<float>& V) {
  const auto shared_P = std::make_shared<const Tensor<float>>(P);
  const auto shared_V = std::make_shared<const Tensor<float>>(V);
  const std::int64_t Nq = P.sizes[2], Nk = P.sizes[3], d = V.sizes[3];
  const double cost = double(Nq) * double(Nk) * double(d);
  struct ProductEntry {
    const char *id, *sentence;
    ProductSwitches switches;
  };
  std::vector<Mistake> mistakes;
  const auto product = [=](const ProductSwitches& switches) { return product_with(*shared_P, *shared_V, switches); };
  for (const ProductEntry& entry : std::initializer_list<ProductEntry>{
           {"P-transposed", "P's memory is read as (Nk, Nq), not (Nq, Nk)", {.P_transposed = true}},
           {"V-transposed", "V's memory is read as (d, Nk), not (Nk, d)", {.V = Read::transposed}},
           {"last-key-dropped", "the last key is left out", {.keys = Keys::but_last}},
           {"first-key-dropped", "the first key is left out", {.keys = Keys::but_first}},
           {"V-wrong-row", "P is multiplied with V shifted by one row", {.V = Read::next_row}},
           {"V-first-row", "every key reads the first row of V", {.V = Read::first_tile}},
           {"O-overwritten", "each key overwrites O instead of adding to it", {.overwritten = true}},
           {"P-ignored", "the rows of V are summed without their weights P", {.P_ignored = true}},
           {"P-rounded-bf16", "P is rounded to bf16 before PV", {.P_rounding = Rounding::bf16}},
           {"P-rounded-fp16", "P is rounded to fp16 before PV", {.P_rounding = Rounding::fp16}},
       })
    mistakes.push_back({entry.id, entry.sentence, [=, switches = entry.switches] { return product(switches); }, cost});
  mistakes.push_back({"mean-of-V", "O is the mean of V: every key has the same weight",
                      [=] {
                        Tensor<double> O = product({.P_ignored = true});
                        for (double& x : O.values) x /= double(Nk);
                        return O;
                      },
                      cost});
  mistakes.push_back(
      {"last-row-not-written", "the last row is never written", [=] { return cut(product({}), Nq - 1, d); }, cost});
  mistakes.push_back({"last-column-not-written", "the last column is never written",
                      [=] { return cut(product({}), Nq, d - 1); }, cost});
  add_constants(mistakes, {1, 1, Nq, d});
  return mistakes;
}

std::vector<Mistake> state_mistakes(std::span<const float> x, std::int64_t block) {
  const std::vector<float> scores(x.begin(), x.end());
  const auto n = std::int64_t(scores.size());
  const std::array<std::int64_t, 4> sizes{1, 1, 1, 2};
  const auto state = [](double m, double l) {
    Tensor<double> result({1, 1, 1, 2});
    result.values = {m, l};
    return result;
  };
  std::vector<Mistake> mistakes;
  const auto add = [&](const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      if (!entry.applies) continue;
      const auto output = [=, switches = entry.switches] {
        const Row row = softmax_row(scores, block, switches);
        return state(row.m, row.l);
      };
      mistakes.push_back({entry.id, entry.sentence, output, double(n)});
    }
  };
  const bool blocks = n > block, ragged = n % block != 0;
  if (blocks) add(running_entries("block", false));
  add({{"ragged-block-dropped",
        "the last, ragged block is left out: the number of blocks must be rounded up",
        {.keys = Keys::whole_tiles},
        blocks && ragged},
       {"last-block-dropped", "the last block is left out", {.keys = Keys::but_last_tile}, blocks},
       {"first-block-only", "only the first block is used", {.keys = Keys::first_tile}, blocks},
       {"first-block-dropped", "the first block is left out", {.keys = Keys::but_first_tile}, blocks},
       {"last-block-only",
        "only the last block counts, what came before it is lost",
        {.keys = Keys::last_tile},
        blocks},
       {"last-key-dropped", "the last score is left out", {.keys = Keys::but_last}},
       {"first-key-dropped", "the first score is left out", {.keys = Keys::but_first}},
       {"padding-counted",
        "places beyond the end of the last, ragged block count as scores of 0",
        {.padding_counts = true},
        ragged}});
  add(softmax_entries());
  add({{"m-starts-at-1e9", "m starts at a large finite number instead of −∞", {.first_m = -1e9F}},
       {"m-starts-at-1e9", "m starts at a large finite number instead of −∞", {.first_m = -1e30F}},
       {"m-starts-at-1e9",
        "m starts at a large finite number instead of −∞",
        {.first_m = std::numeric_limits<float>::lowest()}}});
  const auto derived = [&](std::string id, std::string sentence, auto from) {
    mistakes.push_back({std::move(id), std::move(sentence), [=] {
                          const Row row = softmax_row(scores, 0, {});
                          return from(row);
                        }});
  };
  derived("no-max-subtraction", "the row maximum is not subtracted before exp",
          [=](const Row& row) { return state(row.m, std::exp(row.m) * row.l); });
  derived("lse-for-l", "l holds its logarithm: it must be the sum itself",
          [=](const Row& row) { return state(row.m, std::log(row.l)); });
  derived("m-and-l-swapped", "m and l are swapped", [=](const Row& row) { return state(row.l, row.m); });
  add_constants(mistakes, sizes);
  if (blocks) add({rescale_wrong_sign_from_start()});
  return mistakes;
}

std::vector<Mistake> merge_mistakes(std::span<const float> m, std::span<const float> l, std::span<const float> O) {
  const Merge merge{{m[0], m[1]}, {l[0], l[1]}, {O.begin(), O.end()}};
  const std::array<double, 2> w{merge.weight(0), merge.weight(1)}, one{1, 1};
  const double largest = merge.largest();
  const auto relative_to = [&](double reference) {
    if (reference == -infinity) reference = 0;
    return std::array<double, 2>{std::exp(merge.m[0] - reference), std::exp(merge.m[1] - reference)};
  };
  // Small enough to compute at once.
  std::vector<Mistake> mistakes;
  const auto add = [&](std::string id, std::string sentence, const Tensor<double>& output) {
    mistakes.push_back({std::move(id), std::move(sentence), [output] { return output; }, 0});
  };
  // First: with two empty states, factors that are upside down give the same NaN, and are less likely.
  if (largest == -infinity) {
    const double nan = not_a_number;
    for (const double empty : {-double(infinity), nan})
      add("merge-empty-nan", "merging two empty states computes −∞ − (−∞), which is NaN: subtract 0 where m is −∞",
          merge.state(empty, {nan, nan}, {nan, nan}));
  }
  add("merge-adds-without-rescaling", "l and O of the two states are added without rescaling them to the new maximum",
      merge.state(largest, one, one));
  add("merge-l-not-rescaled", "l of the two states is added without rescaling it to the new maximum",
      merge.state(largest, one, w));
  add("merge-O-not-rescaled", "O of the two states is added without rescaling it to the new maximum",
      merge.state(largest, w, one));
  add("merge-first-not-rescaled", "the first state is not rescaled to the new maximum",
      merge.state(largest, {1, w[1]}, {1, w[1]}));
  add("merge-second-not-rescaled", "the second state is not rescaled to the new maximum",
      merge.state(largest, {w[0], 1}, {w[0], 1}));
  add("merge-wrong-sign", "the rescale factors are upside down: exp(m − m_k), not exp(m_k − m)",
      merge.state(largest, {1 / w[0], 1 / w[1]}, {1 / w[0], 1 / w[1]}));
  add("merge-swapped", "the two rescale factors are swapped", merge.state(largest, {w[1], w[0]}, {w[1], w[0]}));
  add("merge-ignores-first-max", "the new maximum ignores the first state's: it is the second's",
      merge.state(merge.m[1], relative_to(merge.m[1]), relative_to(merge.m[1])));
  add("merge-ignores-second-max", "the new maximum ignores the second state's: it is the first's",
      merge.state(merge.m[0], relative_to(merge.m[0]), relative_to(merge.m[0])));
  add("merge-first-only", "the merged state is the first one: the second is lost",
      merge.state(merge.m[0], {1, 0}, {1, 0}));
  add("merge-second-only", "the merged state is the second one: the first is lost",
      merge.state(merge.m[1], {0, 1}, {0, 1}));
  add("merge-m-not-kept", "l and O are merged, but m stays the first state's", merge.state(merge.m[0], w, w));
  add("merge-first-lost", "m is right, but l and O hold only the second state's",
      merge.state(largest, {0, w[1]}, {0, w[1]}));
  add("merge-second-lost", "m is right, but l and O hold only the first state's",
      merge.state(largest, {w[0], 0}, {w[0], 0}));

  Tensor<double> normalised = merge.state(largest, w, w);
  for (std::size_t c = 2; c < normalised.values.size(); ++c) normalised.values[c] /= normalised.values[1];
  add("merge-normalised", "O is divided by l: the merged O must stay undivided, as the two states are", normalised);
  add("merge-weighted-by-l", "O is weighted with l as if the two states were divided by it: they are not",
      merge.state(largest, w, {w[0] * merge.l[0], w[1] * merge.l[1]}));
  add_constants(mistakes, {1, 1, 1, std::int64_t(2 + O.size() / 2)});
  return mistakes;
}

}  // namespace workbook::judge
