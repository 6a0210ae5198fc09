// A cache for the cost of matrix accesses in shared memory: a kernel has few different kinds. Internal.
#pragma once

#include <array>
#include <cstdint>

#include "common/simt/runtime.hpp"

namespace simt {

/// The number of wavefronts: actual, and without bank conflicts.
struct Wavefronts {
  std::uint32_t actual, ideal;
  Wavefronts& operator+=(Wavefronts w) {
    actual += w.actual;
    ideal += w.ideal;
    return *this;
  }
};

struct MatrixCost {
  std::uint32_t instructions, matrix_loads;
  Wavefronts wavefronts;
};

class MatrixCosts {
 public:
  struct Kind {
    const FragmentType* type;
    std::uint32_t leading;
    std::uint8_t begin;  ///< the address modulo 128 bytes, the width of all banks together
    bool row_major;
    friend bool operator==(const Kind&, const Kind&) = default;
  };

  template <class Compute>
  const MatrixCost& of(const Kind& kind, Compute compute) {
    const std::uint64_t hash = (reinterpret_cast<std::uintptr_t>(kind.type) / 8 + kind.leading * std::uint64_t(4) +
                                kind.begin / 16 + (kind.row_major ? 2 : 0)) *
                               0x9E3779B97F4A7C15ull;
    Entry& entry = entries_[hash >> 58];
    if (!(entry.kind == kind)) entry = {kind, compute()};
    return entry.cost;
  }

 private:
  struct Entry {
    Kind kind{};
    MatrixCost cost{};
  };
  std::array<Entry, 64> entries_{};
};

}  // namespace simt
