// The tensors of an attention call, by name. All code that encodes, sends, uploads, times, reads back or checks them
// iterates over one of two tables. Header-only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "common/attention/shape.hpp"

namespace workbook {

/// Elements of the stage's type; of_rows: floats.
struct CallTensor {
  enum Kind {
    of_queries,  ///< (B, H, Nq, d)
    of_keys,     ///< (B, Hkv, Nk, d)
    of_rows,     ///< one number per query: (B, H, Nq)
  };
  const char* name;
  Kind kind;
  bool output = false;
  bool by_tiles = false;  ///< read by tiles, which the simulator counts

  std::int64_t rows(const Shape& s) const { return kind == of_keys ? s.Nk : s.Nq; }
  std::int64_t columns(const Shape& s) const { return kind == of_rows ? 1 : s.d; }
  std::array<std::int64_t, 4> sizes(const Shape& s) const {
    return {s.B, kind == of_keys ? s.Hkv : s.H, rows(s), columns(s)};
  }
  std::int64_t count(const Shape& s) const { return s.B * (kind == of_keys ? s.Hkv : s.H) * rows(s) * columns(s); }
};

inline constexpr std::array forward_tensors{
    CallTensor{.name = "Q", .kind = CallTensor::of_queries, .by_tiles = true},
    CallTensor{.name = "K", .kind = CallTensor::of_keys, .by_tiles = true},
    CallTensor{.name = "V", .kind = CallTensor::of_keys, .by_tiles = true},
    CallTensor{.name = "O", .kind = CallTensor::of_queries, .output = true},
    CallTensor{.name = "lse", .kind = CallTensor::of_rows, .output = true},
};
inline constexpr std::array backward_tensors{
    CallTensor{.name = "Q", .kind = CallTensor::of_queries, .by_tiles = true},
    CallTensor{.name = "K", .kind = CallTensor::of_keys, .by_tiles = true},
    CallTensor{.name = "V", .kind = CallTensor::of_keys, .by_tiles = true},
    CallTensor{.name = "O", .kind = CallTensor::of_queries},
    CallTensor{.name = "dO", .kind = CallTensor::of_queries, .by_tiles = true},
    CallTensor{.name = "lse", .kind = CallTensor::of_rows},
    CallTensor{.name = "dQ", .kind = CallTensor::of_queries, .output = true},
    CallTensor{.name = "dK", .kind = CallTensor::of_keys, .output = true},
    CallTensor{.name = "dV", .kind = CallTensor::of_keys, .output = true},
};

inline std::span<const CallTensor> tensors_of(bool backward) {
  return backward ? std::span<const CallTensor>(backward_tensors) : std::span<const CallTensor>(forward_tensors);
}

/// The number of rows of this tensor that are needed to check `checked` rows of each result of a measurement. The check
/// uses the last rows of the last head, which are a separate attention problem, since masks are aligned to the last
/// query and key. dK and dV are sums over the query heads that share a K/V head, so a backward pass needs all of these
/// heads.
inline std::int64_t rows_to_check(const CallTensor& tensor, bool backward, const Shape& shape, std::int64_t checked) {
  const bool few = backward ? tensor.output : tensor.kind != CallTensor::of_keys;
  const std::int64_t heads = backward && tensor.kind != CallTensor::of_keys ? shape.H / shape.Hkv : 1;
  return few ? std::min(checked, tensor.rows(shape)) : heads * tensor.rows(shape);
}

}  // namespace workbook
