// The sizes of an attention problem, and the number of keys visible to a query. Header-only and free of dependencies,
// since the reader's chapters include it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "common/attention/matrix.hpp"

namespace workbook {

/// Sizes of one attention problem. q, o: (B, H, Nq, d); k, v: (B, Hkv, Nk, d); lse: (B, H, Nq). H is a multiple of Hkv:
/// H / Hkv query heads share a K/V head.
struct Shape {
  std::int64_t B = 1, H = 1, Hkv = 1, Nq = 1, Nk = 1, d = 64;

  std::int64_t q_size() const { return B * H * Nq * d; }     ///< elements of Q, and of O
  std::int64_t kv_size() const { return B * Hkv * Nk * d; }  ///< elements of K, and of V
  std::int64_t lse_size() const { return B * H * Nq; }       ///< elements of the LSE
  /// The K/V head, numbered through (B, Hkv), of query head n, numbered through (B, H).
  std::int64_t kv_head(std::int64_t n) const { return n / (H / Hkv); }
  bool operator==(const Shape&) const = default;
};

/// The number of keys visible to query `query`: all Nk or, with the bottom-right aligned causal mask, the keys j <=
/// query + (Nk - Nq). 0 if the row is fully masked: then O = 0 and LSE = -inf.
inline std::int64_t visible_keys(std::int64_t query, std::int64_t Nq, std::int64_t Nk, bool causal) {
  return causal ? std::clamp<std::int64_t>(query + (Nk - Nq) + 1, 0, Nk) : Nk;
}

/// Head (b, h) of a tensor (B, heads, rows, columns) as a matrix (rows, columns).
template <class T>
Matrix<T> head(const char* name, std::span<T> tensor, std::int64_t b, std::int64_t h, std::int64_t heads,
               std::int64_t rows, std::int64_t columns) {
  return {name, tensor.subspan(std::size_t((b * heads + h) * rows * columns), std::size_t(rows * columns)), rows,
          columns};
}

}  // namespace workbook
