// The book's kernels on the simulator, with an interface that has no device code: chapter 1's three-kernel version and
// chapter 3's fused kernel, on inputs in host memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/attention/shape.hpp"

namespace zoo {

/// Q, K, V as fp16 codes in host memory.
struct HostCall {
  workbook::Shape shape;
  float scale;
  bool causal = false;
  std::vector<std::uint16_t> Q, K, V;
};

/// O as fp16 codes, the LSE, and what the simulator counted.
struct HostResult {
  std::vector<std::uint16_t> O;
  std::vector<float> lse;
  std::map<std::string, double> counters;
};

HostResult naive_attention(const HostCall& call);
HostResult tiled_wmma(const HostCall& call, int Br, int Bc, int warps);

/// Chapter 3's warm-ups.
std::vector<std::uint16_t> copy(const std::vector<std::uint16_t>& from);
std::vector<float> transpose(const std::vector<float>& from, std::int64_t rows, std::int64_t columns);
std::vector<float> multiply_transposed(const std::vector<std::uint16_t>& A, const std::vector<std::uint16_t>& B);

}  // namespace zoo
