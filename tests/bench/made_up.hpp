// Made-up results with simple numbers, so that derived values can be computed by hand.
#pragma once

#include <cmath>

#include "common/bench/results.hpp"

namespace workbook::bench {

/// A point of the GPU that runs at `tflops`.
inline Point made_up_point(const std::string& name, const std::string& kind, const Shape& shape, double tflops) {
  Point p;
  p.name = name;
  p.kind = kind;
  p.source = kind == "peer" ? "PyTorch" : "solutions";
  p.backend = Backend::cuda;
  p.element = float16;
  p.shape = shape;
  const double seconds = flops(shape) / (tflops * 1e12);
  p.times = Times{seconds, 0.99 * seconds, 1.01 * seconds, 20};
  p.extra_bytes = 0;
  return p;
}

/// Chapter 1 at 50 TFLOP/s, out of memory at N = 8192; chapter 4 at 200 and, causal, at 180, d = 64, and chapter 5
/// causal at 360; SDPA FlashAttention-2 at 400. N = 4096 and 8192.
inline Results made_up_results() {
  Results results;
  results.environment = {{"GPU", "Imagined GPU"}, {"command", "./workbook bench --peers"}};
  results.roofs = {1000e12, 800e12, 4e12, 6e12};
  for (const std::int64_t N : {4096, 8192}) {
    const Shape full = usual_shape("forward", false, N, 64), causal = usual_shape("forward", true, N, 64);
    Point standard = made_up_point("01_naive_attention", "stage", full, 50);
    standard.extra_bytes = 6.0 * double(full.B() * full.H() * N * N);
    standard.unique_bytes = 1e9;
    standard.requested_bytes = 2e9;
    if (N == 8192) {
      standard.times.reset();
      standard.result = "out of memory";
      standard.message = "allocating bytes for S: out of memory";
    }
    results.points.push_back(standard);
    Point fused = made_up_point("04_q_split", "stage", full, 200);
    fused.unique_bytes = std::round(fused.times->median * 1e12);  // 1 TB/s
    fused.requested_bytes = std::round(flops(full) / 100);        // 100 FLOP per byte
    results.points.push_back(fused);
    results.points.push_back(made_up_point("05_causal", "stage", full, 200));
    results.points.push_back(made_up_point("05_causal", "stage", causal, 180));
    results.points.push_back(made_up_point("SDPA FlashAttention-2", "peer", full, 400));
    results.points.push_back(made_up_point("SDPA FlashAttention-2", "peer", causal, 360));
  }
  return results;
}

}  // namespace workbook::bench
