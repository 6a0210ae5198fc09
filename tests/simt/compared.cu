// The book's kernels at several sizes, including ragged ones, as cases of the zoo: the simulator's counters are
// compared with a GPU (compare_with_gpu). Two heads each.
#include "solutions/01_naive_attention/naive_attention_gpu.hpp"
#include "solutions/03_tiled_wmma/tiled_wmma.hpp"
#include "solutions/03_tiled_wmma/warmups.hpp"
#include "solutions/04_q_split/q_split.hpp"
#include "solutions/05_causal/causal.hpp"
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

constexpr std::int64_t kHeads = 2;

/// Q, K, V, O and the LSE of N queries and N keys.
struct Tensors {
  workbook::Shape shape;
  DeviceArray<half> Q, K, V, O;
  DeviceArray<float> lse;

  Tensors(std::int64_t N, std::int64_t d)
      : shape{1, kHeads, kHeads, N, N, d},
        Q(random_halves("Q", std::size_t(shape.q_size()), 1)),
        K(random_halves("K", std::size_t(shape.kv_size()), 2)),
        V(random_halves("V", std::size_t(shape.kv_size()), 3)),
        O("O", std::size_t(shape.q_size()), Role::output),
        lse("lse", std::size_t(shape.lse_size()), Role::output) {}

  /// Waits for the kernels. Every element of O is a mean of values between -1 and 1.
  void check() const {
    std::vector<half> host(O.size());
    O.download(std::span<half>(host));
    for (const half& o : host) {
      if (!(std::abs(__half2float(o)) <= 1)) throw std::logic_error("attention's output is no mean of values");
    }
  }
};

template <int N, int d>
void run_naive_attention() {
  Tensors t(N, d);
  const auto scores = std::size_t(t.shape.lse_size() * ch01::score_stride(N));
  DeviceArray<float> S("S", scores, Role::scratch);
  DeviceArray<half> P("P", scores, Role::scratch);
  ch01::naive_attention({{t.shape, 0.125f, {}}, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.lse.data()}, S.data(),
                        P.data());
  t.check();
}

template <int N, int d, int Br = 64, int Bc = 64, int warps = 4>
void run_tiled_wmma() {
  Tensors t(N, d);
  ch03::tiled_wmma({{t.shape, 0.125f, {}}, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.lse.data()},
                   {Br, Bc, warps});
  t.check();
}

template <int N, int d>
void run_q_split() {
  Tensors t(N, d);
  ch04::q_split({{t.shape, 0.125f, {}}, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.lse.data()}, ch04::built[0]);
  t.check();
}

template <int N, int d>
void run_causal() {
  Tensors t(N, d);
  ch05::causal(
      workbook::cuda::ForwardCall<half>{
          {t.shape, 0.125f, workbook::Mask::causal}, t.Q.data(), t.K.data(), t.V.data(), t.O.data(), t.lse.data()},
      ch05::built[0]);
  t.check();
}

template <int n>
void run_copy() {
  const auto from = random_halves("from", n, 1);
  DeviceArray<half> to("to", n, Role::output);
  ch03::copy(from.data(), to.data(), n);
  workbook::cuda::synchronize();
}
template <int rows, int columns>
void run_transpose() {
  const auto from = floats("from", rows * columns);
  auto to = output("to", rows * columns);
  ch03::transpose(from.data(), to.data(), rows, columns);
  expect(to, [](std::size_t i) { return i % rows * columns + i / rows; });
}
void run_product() {
  const auto A = random_halves("A", 256, 1), B = random_halves("B", 256, 2);
  auto C = output("C", 256);
  ch03::multiply_transposed(A.data(), B.data(), C.data());
  workbook::cuda::synchronize();
}

/// 32 rows of d halves by cp.async into rows of `padded` halves, and from there to `to`.
template <int d, int padded>
__global__ void async_rows(const half* __restrict__ from, half* __restrict__ to) {
  auto* rows = workbook::cuda::dynamic_shared_array<half>();
  for (int i = threadIdx.x; i < 32 * d / 8; i += 32) {
    const int row = i / (d / 8), chunk = i % (d / 8);  // of 16 bytes
    __pipeline_memcpy_async(&reinterpret_cast<uint4*>(rows + row * padded)[chunk],
                            &reinterpret_cast<const uint4*>(from)[i], 16);
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncwarp();
  for (int i = threadIdx.x; i < 32 * d / 8; i += 32) {
    const int row = i / (d / 8), chunk = i % (d / 8);
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(rows + row * padded)[chunk];
  }
}
template <int d, int padded>
void run_async_rows() {
  const auto from = random_halves("from", 32 * d, 1);
  DeviceArray<half> to("to", 32 * d, Role::output);
  workbook::cuda::launch(async_rows<d, padded>, dim3(1), dim3(32), 32 * padded * sizeof(half), from.data(), to.data());
  workbook::cuda::synchronize();
}

constexpr Case cases[] = {
    {"chapter 1, N=64, d=64", run_naive_attention<64, 64>},
    {"chapter 1, N=100, d=32", run_naive_attention<100, 32>},
    {"chapter 1, N=333, d=128", run_naive_attention<333, 128>},
    {"chapter 3, copy of 100003 halves", run_copy<100003>},
    {"chapter 3, transpose of 100x70", run_transpose<100, 70>},
    {"chapter 3, product", run_product},
    {"chapter 3, N=64, d=32", run_tiled_wmma<64, 32>},
    {"chapter 3, N=64, d=64", run_tiled_wmma<64, 64>},
    {"chapter 3, N=64, d=128", run_tiled_wmma<64, 128>},
    {"chapter 3, N=100, d=32", run_tiled_wmma<100, 32>},
    {"chapter 3, N=100, d=64", run_tiled_wmma<100, 64>},
    {"chapter 3, N=100, d=128", run_tiled_wmma<100, 128>},
    {"chapter 3, N=256, d=32", run_tiled_wmma<256, 32>},
    {"chapter 3, N=256, d=64", run_tiled_wmma<256, 64>},
    {"chapter 3, N=256, d=128", run_tiled_wmma<256, 128>},
    {"chapter 3, N=333, d=32", run_tiled_wmma<333, 32>},
    {"chapter 3, N=333, d=64", run_tiled_wmma<333, 64>},
    {"chapter 3, N=333, d=128", run_tiled_wmma<333, 128>},
    {"chapter 3, N=333, d=64, Br=32, Bc=32, 2 warps", run_tiled_wmma<333, 64, 32, 32, 2>},
    {"chapter 4, N=256, d=64", run_q_split<256, 64>},
    {"chapter 4, N=333, d=32", run_q_split<333, 32>},
    {"chapter 4, N=333, d=64", run_q_split<333, 64>},
    {"chapter 4, N=333, d=128", run_q_split<333, 128>},
    {"chapter 5, N=256, d=64", run_causal<256, 64>},
    {"chapter 5, N=333, d=32", run_causal<333, 32>},
    {"chapter 5, N=333, d=64", run_causal<333, 64>},
    {"chapter 5, N=333, d=128", run_causal<333, 128>},
    {"cp.async, rows of 64 halves in 64", run_async_rows<64, 64>},
    {"cp.async, rows of 64 halves in 72", run_async_rows<64, 72>},
    {"cp.async, rows of 64 halves in 80", run_async_rows<64, 80>},
    {"cp.async, rows of 32 halves in 32", run_async_rows<32, 32>},
    {"cp.async, rows of 32 halves in 40", run_async_rows<32, 40>},
    {"cp.async, rows of 32 halves in 48", run_async_rows<32, 48>},
    {"cp.async, rows of 32 halves in 56", run_async_rows<32, 56>},
};

}  // namespace

std::span<const Case> compared_cases() {
  return cases;
}

}  // namespace zoo
