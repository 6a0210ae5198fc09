// The mask of a problem as a value: which keys a query attends to, and how its scores and P are modified. To add a
// mask, add its kind, its name, its keys and its score modification here; all other code queries this class. Device
// calls hold a Mask, and every kernel file includes this header, so functions that need not be inlined are in mask.cpp.
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

/// A side of a window of this many keys or more has no end. A call's 64-bit integers travel as doubles, so they must be
/// at most largest_number.
inline constexpr std::int64_t no_end = std::int64_t(1) << 31, largest_number = std::int64_t(1) << 53;
/// Lengths, prefixes and strides that the stages can hold as 32-bit integers.
inline constexpr std::int64_t longest_length = no_end - 1;
/// Keys of a page of a KV cache.
inline constexpr std::int64_t largest_page = 256;
/// The stages compute tanh(x) as 1 - 2/(1 + e^2x), with an error of about 2^-24 even for a small x. A score then has an
/// error of cap·2^-24, which up to the largest cap is smaller than the rounding of P to fp16.
inline constexpr float least_softcap = 1e-3F, largest_softcap = 1e3F;

/// Rows are numbered through (B, H, Nq), since a mask may differ between heads.
struct Mask {
  enum Kind : std::int32_t { none, causal, window, documents, prefix, strided };

  Kind kind = none;
  /// Window, bottom-right aligned: query i attends to the keys j with -left <= j - (i + Nk - Nq) <= right. A side of
  /// no_end keys or more is unlimited; within() stores it as no_end. Prefix: all
  /// queries attend to the first `left` keys, and causally to the others. Strided: each query attends to the last
  /// `left` of the `right` keys up to its own position, of the `right` keys before these, and so on.
  std::int64_t left = 0, right = 0;
  float softcap = 0;        ///< > 0: a scaled score s becomes softcap·tanh(s / softcap) (Gemma 2, section 2)
  bool alibi = false;       ///< ALiBi: subtracts slope·|i + Nk - Nq - j|, with slope = 2^(-8(h + 1) / H) in head h
  std::vector<float> sink;  ///< (H) or empty: e^sink is added to l of each row of the head, and nothing to O
  /// Lengths of packed sequences, which add up to Nq = Nk; empty: one sequence. Or lengths of documents, which add up
  /// to Nk: each query attends causally to the keys of its own document.
  std::vector<std::int64_t> lengths;
  bool rope = false;         ///< Q and K are rotated by their positions before the matmul (RoFormer)
  std::int32_t dropped = 0;  ///< dropout: each element of P becomes 0 with probability dropped / 256, else it is
                             ///< multiplied by kept_scale(); l sums all elements
  std::int64_t seed = 0;     ///< of the dropout, below 2^53
  /// A KV cache: the number of keys of each request of the batch, (B), at most Nk each; empty: all have Nk. The causal
  /// mask is aligned to the request's own last key.
  std::vector<std::int64_t> cache;
  std::int64_t page_size = 0;  ///< keys per page of the cache; 0: contiguous, in (B, Hkv, Nk, d)
  std::int64_t page_seed = 0;  ///< of the order of the pages; below 2^53. K and V are (pages, Hkv, page_size, d) if it
                               ///< is even, and (pages, page_size, Hkv, d) if it is odd

  Mask() = default;
  Mask(Kind kind_) : kind(kind_) {}
  /// causal or none, for loops over both.
  Mask(std::same_as<bool> auto is_causal) : kind(is_causal ? causal : none) {}
  static Mask within(std::int64_t left, std::int64_t right) {
    Mask mask = window;
    mask.left = std::min(left, no_end), mask.right = std::min(right, no_end);
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
  /// 1/(1 - p), where p is the dropout probability.
  double kept_scale() const { return 256.0 / double(256 - dropped); }
  /// Whether the rows are several independent packed sequences.
  bool packed() const { return !lengths.empty() && kind != documents; }
  /// The sum of the lengths; 0 without lengths.
  std::int64_t rows() const;
  /// The first row of each sequence, then the end of the last one.
  std::vector<std::int32_t> starts() const;

  /// Calls take(KeyRange) for the keys that a row attends to, in ascending order; no call for a fully masked row.
  template <class Take>
  void for_ranges(const Shape& shape, std::int64_t row, const Take& take) const {
    if (!cache.empty()) {
      Shape own = shape;
      own.Nk = cache[std::size_t(row / shape.Nq / shape.H)];
      return own.Nk == 0 ? void() : for_ranges_of_kind(own, row, take);
    }
    if (lengths.empty()) return for_ranges_of_kind(shape, row, take);
    const std::int64_t query = row % shape.Nq;
    const KeyRange own = sequence(kind == documents ? query + shape.Nk - shape.Nq : query);
    for_ranges_of_kind(shape, row, [&](const KeyRange& keys) {
      const KeyRange both{std::max(keys.first, own.first), std::min(keys.last, own.last)};
      if (both.first < both.last) take(both);
    });
  }
  /// The keys of a query's packed sequence.
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
        const auto limited = [&](std::int64_t side) { return side >= no_end ? width : std::min(side, width); };
        const KeyRange keys{std::max<std::int64_t>(0, diagonal - limited(left)),
                            std::min(end, diagonal + limited(right) + 1)};
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
  /// Applies the score modification to a scaled score scale·Q_i·K_j of an unmasked pair.
  double changed(const Shape& shape, std::int64_t row, std::int64_t key, double score) const {
    return (softcap > 0 ? softcap * std::tanh(score / softcap) : score) + added(shape, row, key);
  }
  /// The derivative of the score modification with respect to the score.
  double derivative(double score) const {
    const double tanh = softcap > 0 ? std::tanh(score / softcap) : 0;
    return 1 - tanh * tanh;
  }
  /// A bound on the sum of magnitudes of a modified score's terms, where those of the score add up to `score_size`.
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

  /// Calls take(key) for every key that a row attends to, in ascending order.
  template <class Take>
  void for_keys(const Shape& shape, std::int64_t row, const Take& take) const {
    for_ranges(shape, row, [&](const KeyRange& range) {
      for (std::int64_t key = range.first; key < range.last; ++key) take(key);
    });
  }
  /// The number of keys that a row attends to.
  std::int64_t count(const Shape& shape, std::int64_t row) const;
  bool attends(const Shape& shape, std::int64_t row, std::int64_t key) const;

  /// "causal", "window=256,0+softcap=50+alibi": the name in options and results.
  std::string name() const;
  /// The name in a sentence: "causal", "not causal".
  std::string text() const;
};

/// All masks without parameters, by their names in options, manifests and results. These are timed.
struct NamedMask {
  std::string_view name;
  Mask mask;
};
std::vector<NamedMask> all_masks();
/// The masks that a stage supports unless it states others.
std::vector<Mask> plain_masks();
/// All parts that a mask may consist of. A stage lists the parts that it supports, and supports every mask made of
/// them.
std::vector<NamedMask> mask_parts();
std::string_view part_name(const Mask& part);
/// The first part of a mask that a stage does not support; empty if it supports all.
std::string_view part_not_in(const std::vector<Mask>& served, const Mask& mask);
/// The mask without parameters of this name; nothing for an unknown name.
std::optional<Mask> mask_named(std::string_view name);
/// The same for parts of masks.
std::optional<Mask> part_named(std::string_view name);

}  // namespace workbook
