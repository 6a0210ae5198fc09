#include "tests/nccl/ring_attention.hpp"

#include <array>
#include <cstdint>

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

workbook::Tensor<float> on_host(const DeviceArray<half>& array, std::array<std::int64_t, 4> sizes) {
  workbook::Tensor<float> tensor(sizes);
  std::vector<std::uint16_t> codes(array.size());
  array.download(std::span<std::uint16_t>(codes));
  for (std::size_t i = 0; i < codes.size(); ++i) tensor.values[i] = workbook::half_to_float(codes[i]);
  return tensor;
}
}  // namespace

Output ring_attention(const workbook::Problem& problem, int Br, int Bc, int warps, int ranks) {
  const workbook::Shape& s = problem.shape;
  const DeviceArray<half> Q = on_device("Q", problem.Q), K = on_device("K", problem.K), V = on_device("V", problem.V);
  DeviceArray<half> O("O", std::size_t(s.B * s.H * s.Nq * s.d), Role::output);
  DeviceArray<float> lse("lse", std::size_t(s.B * s.H * s.Nq), Role::output);
  ch22::ring_attention<half>({problem, Q.data(), K.data(), V.data(), O.data(), lse.data()}, {Br, Bc, warps}, ranks);
  Output output{on_host(O, problem.Q.sizes), workbook::Tensor<float>({s.B, s.H, s.Nq, 1})};
  lse.download(std::span<float>(output.lse.values));
  return output;
}

Gradients ring_backward(const workbook::Problem& problem, const workbook::Tensor<float>& O,
                        const workbook::Tensor<float>& lse, const workbook::Tensor<float>& dO, int ranks) {
  const DeviceArray<half> inputs[] = {on_device("Q", problem.Q), on_device("K", problem.K), on_device("V", problem.V),
                                      on_device("O", O), on_device("dO", dO)};
  const DeviceArray<float> lse_array("lse", std::span<const float>(lse.values));
  DeviceArray<half> dQ("dQ", inputs[0].size(), Role::output), dK("dK", inputs[1].size(), Role::output),
      dV("dV", inputs[1].size(), Role::output);
  ch22::ring_backward<half>({problem, inputs[0].data(), inputs[1].data(), inputs[2].data(), inputs[3].data(),
                             inputs[4].data(), lse_array.data(), dQ.data(), dK.data(), dV.data()},
                            ch22::built_backward[problem.shape.d == 128], ranks);
  return {on_host(dQ, problem.Q.sizes), on_host(dK, problem.K.sizes), on_host(dV, problem.K.sizes)};
}

}  // namespace rings
