// A forward pass on host memory, with an interface that has no device code.
#pragma once

#include <cstdint>
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

/// O as fp16 codes, and the LSE.
struct HostResult {
  std::vector<std::uint16_t> O;
  std::vector<float> lse;
};

}  // namespace zoo
