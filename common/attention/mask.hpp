// Which keys a query sees, and what becomes of its scores and of P: a value. A mask more is, here, a kind, its name,
// its keys and what it does to a score; everything else asks. Calls on a device hold one, and every file of kernels
// includes this: what need not be inlined is compiled once, in mask.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/attention/shape.hpp"

namespace workbook {

/// The keys [first, last) of a head.
struct KeyRange {
  std::int64_t first = 0, last = 0;
};

/// Rows count through (B, H, Nq): a mask may be another for each head.
struct Mask {
  enum Kind : std::int32_t { none, causal, window, documents, prefix, strided };

  Kind kind = none;
  /// Of a window, bottom-right aligned: query i sees the keys j with -left <= j - (i + Nk - Nq) <= right.
  /// Of a prefix: its `left` first keys are seen by all queries, the others causally. Strided: each query sees the last
  /// `left` of the `right` keys up to its own, and again of the `right` keys before these, and so on.
  std::int64_t left = 0, right = 0;
  float softcap = 0;   ///< > 0: a scaled score s becomes softcap·tanh(s / softcap) (Gemma 2, section 2)
  bool alibi = false;  ///< then slope·|i + Nk - Nq - j| is subtracted, slope = 2^(-8(h + 1) / H) in head h (ALiBi)
  std::vector<float> sink;  ///< (H) or empty: e^sink is added to l of each row of the head, and nothing to O
  /// Of sequences packed one after the other, Nq = Nk together; empty: one. Or of documents, Nk together: causally each
  /// query sees the keys of the document in which it stands.
  std::vector<std::int64_t> lengths;
  bool rope = false;         ///< Q and K are rotated to their positions before they are multiplied (RoFormer)
  std::int32_t dropped = 0;  ///< of 256 elements of P so many become 0, by chance, and the others are multiplied with
                             ///< kept_scale(); l is the sum of all
  std::int64_t seed = 0;     ///< of that chance, below 2^53

  Mask() = default;
  Mask(Kind kind_) : kind(kind_) {}
  /// From whether it is causal, for loops over both.
  Mask(std::same_as<bool> auto is_causal) : kind(is_causal ? causal : none) {}
  static Mask within(std::int64_t left, std::int64_t right) {
    Mask mask = window;
    mask.left = left, mask.right = right;
    return mask;
  }
  static Mask of_documents(std::vector<std::int64_t> lengths) {
    Mask mask = documents;
    mask.lengths = std::move(lengths);
    return mask;
  }
  static Mask of_prefix(std::int64_t length) {
    Mask mask = prefix;
    mask.left = length;
    return mask;
  }
  static Mask in_strides(std::int64_t width, std::int64_t stride) {
    Mask mask = strided;
    mask.left = width, mask.right = stride;
    return mask;
  }
  bool operator==(const Mask&) const;
  /// 1/(1 - p), where p is the part that is dropped.
  double kept_scale() const { return 256.0 / double(256 - dropped); }
  /// Sequences that know nothing of each other, not even where the others are.
  bool packed() const { return !lengths.empty() && kind != documents; }
  /// That its lengths have together; 0 without.
  std::int64_t rows() const;
  /// The first row of each sequence, and the last one's end.
  std::vector<std::int32_t> starts() const;

  /// Calls take(KeyRange) for the keys that a row sees, in rising order; not at all for a row that sees none.
  template <class Take>
  void for_ranges(const Shape& shape, std::int64_t row, const Take& take) const {
    if (lengths.empty()) return for_ranges_of_kind(shape, row, take);
    const std::int64_t query = row % shape.Nq;
    const KeyRange own = sequence(kind == documents ? query + shape.Nk - shape.Nq : query);
    for_ranges_of_kind(shape, row, [&](const KeyRange& keys) {
      const KeyRange both{std::max(keys.first, own.first), std::min(keys.last, own.last)};
      if (both.first < both.last) take(both);
    });
  }
  /// The keys of the packed sequence that a query belongs to.
  KeyRange sequence(std::int64_t query) const;
  template <class Take>
  void for_ranges_of_kind(const Shape& shape, std::int64_t row, const Take& take) const {
    switch (kind) {
      case none:
        return take(KeyRange{0, shape.Nk});
      case causal:
      case documents:
        if (const std::int64_t n = visible_keys(row % shape.Nq, shape.Nq, shape.Nk, true); n > 0) take(KeyRange{0, n});
        return;
      case window: {
        const std::int64_t end = shape.Nk, diagonal = row % shape.Nq + end - shape.Nq, width = shape.Nq + end;
        const KeyRange keys{std::max<std::int64_t>(0, diagonal - std::min(left, width)),
                            std::min(end, diagonal + std::min(right, width) + 1)};
        if (keys.first < keys.last) take(keys);
        return;
      }
      case prefix:
        if (const std::int64_t n = visible_keys(row % shape.Nq, shape.Nq, shape.Nk, true); std::max(n, left) > 0)
          take(KeyRange{0, std::min(shape.Nk, std::max(n, left))});
        return;
      case strided: {
        const std::int64_t own = row % shape.Nq + shape.Nk - shape.Nq + 1, width = std::min(left, right);
        for (std::int64_t last = own - (own - 1) / right * right; 0 < own && last <= own; last += right)
          if (width > 0) take(KeyRange{std::max<std::int64_t>(0, last - width), last});
      }
    }
  }
  /// What becomes of a scaled score scale·Q_i·K_j, for a key that the row sees.
  double changed(const Shape& shape, std::int64_t row, std::int64_t key, double score) const {
    return (softcap > 0 ? softcap * std::tanh(score / softcap) : score) + added(shape, row, key);
  }
  /// Its derivative by the score.
  double derivative(double score) const {
    const double tanh = softcap > 0 ? std::tanh(score / softcap) : 0;
    return 1 - tanh * tanh;
  }
  /// What the terms of a changed score add up to at most, where those of the score itself add up to `score_size`.
  double size(const Shape& shape, std::int64_t row, std::int64_t key, double score_size) const {
    return score_size + softcap + std::abs(added(shape, row, key));
  }
  double added(const Shape& shape, std::int64_t row, std::int64_t key) const {
    if (!alibi) return 0;
    const double slope = std::exp2(-8.0 * double(row / shape.Nq % shape.H + 1) / double(shape.H));
    return -slope * std::abs(double(row % shape.Nq + shape.Nk - shape.Nq - key));
  }
  /// The sink of a row's head; nothing if it has none.
  std::optional<double> sink_of(const Shape& shape, std::int64_t row) const;

  /// Calls take(key) for every key that a row sees, in rising order.
  template <class Take>
  void for_keys(const Shape& shape, std::int64_t row, const Take& take) const {
    for_ranges(shape, row, [&](const KeyRange& range) {
      for (std::int64_t key = range.first; key < range.last; ++key) take(key);
    });
  }
  /// How many keys a row sees.
  std::int64_t count(const Shape& shape, std::int64_t row) const;
  bool sees(const Shape& shape, std::int64_t row, std::int64_t key) const;

  /// "causal", "window=256,0+softcap=50+alibi": as options and results call it.
  std::string name() const;
  /// How a sentence says it: "causal", "not causal".
  std::string text() const;
};

/// All masks without numbers, by what options, manifests and results call them: those that are timed.
struct NamedMask {
  std::string_view name;
  Mask mask;
};
std::vector<NamedMask> all_masks();
/// What a stage serves that says nothing else of it.
std::vector<Mask> plain_masks();
/// And what else a mask is made of. A stage lists the parts that it serves, and serves every mask that is made of them.
std::vector<NamedMask> mask_parts();
std::string_view part_name(const Mask& part);
/// The first part of a mask that is not among those that a stage serves; empty if it serves all.
std::string_view part_not_in(const std::vector<Mask>& served, const Mask& mask);
/// Nothing for a name that no mask without numbers has.
std::optional<Mask> mask_named(std::string_view name);
/// The same for parts.
std::optional<Mask> part_named(std::string_view name);

}  // namespace workbook
