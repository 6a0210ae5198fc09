// Copies inputs to the device, calls the book's kernels, copies the results back.
#include "tests/simt/book_kernels.hpp"

#include "common/cuda/backend.hpp"
#include "common/cuda/memory.hpp"
#include "solutions/01_naive_attention/naive_attention_gpu.hpp"
#include "solutions/03_tiled_wmma/tiled_wmma.hpp"
#include "solutions/03_tiled_wmma/warmups.hpp"

namespace zoo {
namespace {

using namespace workbook::cuda;

/// Allocates the tensors of a call, runs `kernels` on them, and collects the results.
template <class Kernels>
HostResult run(const HostCall& call, Kernels kernels) {
  const DeviceArray<half> Q("Q", std::span(call.Q)), K("K", std::span(call.K)), V("V", std::span(call.V));
  DeviceArray<half> O("O", std::size_t(call.shape.q_size()), Role::output);
  DeviceArray<float> lse("lse", std::size_t(call.shape.lse_size()), Role::output);
  take_counters();
  kernels(Q.data(), K.data(), V.data(), O.data(), lse.data());
  synchronize();
  HostResult result;
  for (const auto& [name, value] : take_counters()) result.counters[name] = value;
  result.O.resize(O.size());
  result.lse.resize(lse.size());
  O.download(std::span(result.O));
  lse.download(std::span(result.lse));
  return result;
}

}  // namespace

HostResult naive_attention(const HostCall& call) {
  const auto scores = std::size_t(call.shape.lse_size() * ch01::score_stride(call.shape.Nk));
  DeviceArray<float> S("S", scores, Role::scratch);
  DeviceArray<half> P("P", scores, Role::scratch);
  return run(call, [&](const half* Q, const half* K, const half* V, half* O, float* lse) {
    ch01::naive_attention({{call.shape, call.scale, call.causal}, Q, K, V, O, lse}, S.data(), P.data());
  });
}

HostResult tiled_wmma(const HostCall& call, int Br, int Bc, int warps) {
  return run(call, [&](const half* Q, const half* K, const half* V, half* O, float* lse) {
    ch03::tiled_wmma({{call.shape, call.scale, call.causal}, Q, K, V, O, lse}, {Br, Bc, warps});
  });
}

std::vector<std::uint16_t> copy(const std::vector<std::uint16_t>& from) {
  const DeviceArray<half> source("from", std::span(from));
  DeviceArray<half> target("to", from.size(), Role::output);
  ch03::copy(source.data(), target.data(), std::int64_t(from.size()));
  std::vector<std::uint16_t> to(from.size());
  target.download(std::span(to));
  return to;
}

std::vector<float> transpose(const std::vector<float>& from, std::int64_t rows, std::int64_t columns) {
  const DeviceArray<float> source("from", std::span(from));
  DeviceArray<float> target("to", from.size(), Role::output);
  ch03::transpose(source.data(), target.data(), rows, columns);
  std::vector<float> to(from.size());
  target.download(std::span(to));
  return to;
}

std::vector<float> multiply_transposed(const std::vector<std::uint16_t>& A, const std::vector<std::uint16_t>& B) {
  const DeviceArray<half> a("A", std::span(A)), b("B", std::span(B));
  DeviceArray<float> c("C", 256, Role::output);
  ch03::multiply_transposed(a.data(), b.data(), c.data());
  std::vector<float> C(256);
  c.download(std::span(C));
  return C;
}

}  // namespace zoo
