// The banks of shared memory, and the number of wavefronts of an access. Internal; none of it is inlined into kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/simt/matrix_costs.hpp"

namespace simt {

inline constexpr int kBanks = 32, kBankBytes = 4;

/// The bank of an address.
constexpr int bank_of(std::uint64_t address) {
  return static_cast<int>(address / kBankBytes % kBanks);
}

/// Lanes are served in groups of at most 128 bytes: 32 lanes of up to 4 bytes, 16 of 8, 8 of 16.
constexpr int lanes_per_wavefront_of(unsigned size) {
  return size <= 4 ? 32 : size == 8 ? 16 : 8;
}

/// The cost when the lanes of `mask` access `size` bytes at these addresses, `lanes_per_wavefront` lanes per group. A
/// group takes as many wavefronts as the largest number of different words in one bank.
inline Wavefronts wavefronts(const std::uint64_t* address, std::uint32_t mask, unsigned size, int lanes_per_wavefront) {
  Wavefronts sum{0, 0};
  for (int first = 0; first < 32; first += lanes_per_wavefront) {
    std::uint64_t words[kBanks][32];  // by bank: the different words requested
    std::uint8_t count[kBanks] = {};
    unsigned most = 0;
    for (int lane = first; lane < first + lanes_per_wavefront; ++lane) {
      if (!(mask >> lane & 1)) continue;
      for (std::uint64_t word = address[lane] / kBankBytes; word <= (address[lane] + size - 1) / kBankBytes; ++word) {
        const int bank = bank_of(word * kBankBytes);
        unsigned i = 0;
        while (i < count[bank] && words[bank][i] != word) ++i;
        if (i < count[bank] || count[bank] == 32) continue;
        words[bank][count[bank]++] = word;
        most = std::max<unsigned>(most, count[bank]);
      }
    }
    sum.actual += most;
    sum.ideal += most > 0;
  }
  return sum;
}

}  // namespace simt
