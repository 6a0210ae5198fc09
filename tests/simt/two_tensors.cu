// One instruction whose lanes access different tensors.
#include "tests/simt/two_tensors.hpp"

#include "tests/simt/arrays.hpp"

namespace zoo {
namespace {

__global__ void choose(const float* a, const float* b, float* c) {
  const float* from = threadIdx.x < 8 ? a : b;
  c[threadIdx.x] = from[threadIdx.x];
}

}  // namespace

void run_two_tensors() {
  const auto a = floats("a", 8), b = floats("b", 32);
  auto c = output("c", 32);
  launch(choose, dim3(1), dim3(32), 0, a.data(), b.data(), c.data());
  expect(c, [](std::size_t i) { return float(i); });
}

}  // namespace zoo
