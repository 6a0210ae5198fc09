#include "tests/nccl/ring_attention.hpp"

#include "common/attention/half.hpp"
#include "common/cuda/memory.hpp"
#include "solutions/22_ring/ring.hpp"

namespace rings {

namespace {
using workbook::cuda::DeviceArray, workbook::cuda::Role;

DeviceArray<half> on_device(const char* name, const workbook::Tensor<float>& tensor) {
  std::vector<std::uint16_t> codes;
  for (const float value : tensor.values) codes.push_back(workbook::float_to_half(value));
  return {name, std::span<const std::uint16_t>(codes)};
}
}  // namespace

Output ring_attention(const workbook::Problem& problem, int Br, int Bc, int warps, int ranks) {
  const workbook::Shape& s = problem.shape;
  const DeviceArray<half> Q = on_device("Q", problem.Q), K = on_device("K", problem.K), V = on_device("V", problem.V);
  DeviceArray<half> O("O", std::size_t(s.B * s.H * s.Nq * s.d), Role::output);
  DeviceArray<float> lse("lse", std::size_t(s.B * s.H * s.Nq), Role::output);
  ch22::ring_attention<half>({problem, Q.data(), K.data(), V.data(), O.data(), lse.data()}, {Br, Bc, warps}, ranks);
  Output output{workbook::Tensor<float>({s.B, s.H, s.Nq, s.d}), workbook::Tensor<float>({s.B, s.H, s.Nq, 1})};
  std::vector<std::uint16_t> codes(O.size());
  O.download(std::span<std::uint16_t>(codes));
  lse.download(std::span<float>(output.lse.values));
  for (std::size_t i = 0; i < codes.size(); ++i) output.O.values[i] = workbook::half_to_float(codes[i]);
  return output;
}

}  // namespace rings
