// Kernels of the instructions below WMMA (common/cuda/ptx.hpp): each instruction by itself, its result compared with
// the register layout of the PTX ISA, and matmuls of tiles that are loaded by a pipeline. All are correct; the figures
// of their counters are in test_counters.cpp.
#include <cmath>

#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

using namespace workbook::cuda;
using std::size_t;
using bf16 = __nv_bfloat16;

/// The element type of a fragment must be specified: see Fragment.
template <class T>
concept ClearedByBraces = requires(void (*take)(T)) {
  take({});
};
static_assert(!ClearedByBraces<Fragment<float, 4>> && ClearedByBraces<float>);

/// The first or second element of a register.
template <class T>
__device__ __forceinline__ float element(std::uint32_t pair, int e) {
  return static_cast<float>(reinterpret_cast<const T*>(&pair)[e]);
}

/// `count` numbers of type T on the device: value(i), which T holds exactly.
template <class T, class F>
DeviceArray<T> numbers(const char* name, size_t count, F value) {
  std::vector<T> host(count);
  for (size_t i = 0; i < count; ++i) host[i] = T(static_cast<float>(value(i)));
  return DeviceArray<T>(name, std::span<const T>(host));
}

// --- ldmatrix and stmatrix -------------------------------------------------------------------------------------------

template <bool transposed, class T, int n>
__device__ __forceinline__ void ldmatrix(Fragment<T, n>& matrices, const T* row) {
  if constexpr (n == 1) transposed ? ldmatrix_x1_trans(matrices, row) : ldmatrix_x1(matrices, row);
  if constexpr (n == 2) transposed ? ldmatrix_x2_trans(matrices, row) : ldmatrix_x2(matrices, row);
  if constexpr (n == 4) transposed ? ldmatrix_x4_trans(matrices, row) : ldmatrix_x4(matrices, row);
}
template <bool transposed, class T, int n>
__device__ __forceinline__ void stmatrix(T* row, const Fragment<T, n>& matrices) {
  if constexpr (n == 1) transposed ? stmatrix_x1_trans(row, matrices) : stmatrix_x1(row, matrices);
  if constexpr (n == 2) transposed ? stmatrix_x2_trans(row, matrices) : stmatrix_x2(row, matrices);
  if constexpr (n == 4) transposed ? stmatrix_x4_trans(row, matrices) : stmatrix_x4(row, matrices);
}

/// n 8x8 matrices; element e of lane's register i goes to b[2i + e][lane]. Lanes without a row pass null.
template <class T, int n, bool transposed>
__global__ void loaded(const T* from, float* b) {
  __shared__ __align__(16) T rows[8 * n][8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 64 * n; i += 32) rows[i / 8][i % 8] = from[i];
  __syncwarp();
  Fragment<T, n> matrices;
  ldmatrix<transposed>(matrices, lane < 8 * n ? &rows[lane][0] : nullptr);
#pragma unroll
  for (int i = 0; i < n; ++i) {
    b[(2 * i) * 32 + lane] = element<T>(matrices[i], 0);
    b[(2 * i + 1) * 32 + lane] = element<T>(matrices[i], 1);
  }
}
template <class T, int n, bool transposed>
void run_loaded() {
  const auto from = numbers<T>("from", 64 * n, [](size_t i) { return i; });
  auto b = output("b", 64 * n);
  launch(loaded<T, n, transposed>, dim3(1), dim3(32), 0, from.data(), b.data());
  expect(b, [](size_t at) {
    const size_t i = at / 64, e = at / 32 % 2, lane = at % 32, own = lane / 4, pair = 2 * (lane % 4) + e;
    return 64 * i + (transposed ? pair * 8 + own : own * 8 + pair);
  });
}

/// An 8x8 matrix in registers, transposed; elements as in `loaded`.
template <class T>
__global__ void moved(const T* from, float* b) {
  const int lane = threadIdx.x;
  const std::uint32_t matrix = movmatrix_trans(reinterpret_cast<const std::uint32_t*>(from)[lane]);
  b[lane] = element<T>(matrix, 0), b[32 + lane] = element<T>(matrix, 1);
}
template <class T>
void run_moved() {
  const auto from = numbers<T>("from", 64, [](size_t i) { return i; });
  auto b = output("b", 64);
  launch(moved<T>, dim3(1), dim3(32), 0, from.data(), b.data());
  expect(b, [](size_t at) {
    const size_t lane = at % 32;
    return (2 * (lane % 4) + at / 32) * 8 + lane / 4;
  });
}

/// Two pairs of warps exchange their data three times, each pair at a named barrier of its own: one barrier before the
/// reads, one before the data is overwritten.
__global__ void pairs_exchange(float* b) {
  __shared__ float s[128];
  const int t = threadIdx.x, pair = 1 + t / 64;
  float own = t;
  for (int i = 0; i < 3; ++i) {
    s[t] = own;
    barrier_sync(pair, 64);
    own = s[t ^ 32] + 1;
    barrier_sync(pair, 64);
  }
  b[t] = own;
}

/// n 8x8 matrices to registers and back, transposed or not: to b.
template <class T, int n, bool transposed>
__global__ void stored(const T* from, T* b) {
  __shared__ __align__(16) T rows[8 * n][8], result[8 * n][8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 64 * n; i += 32) rows[i / 8][i % 8] = from[i];
  __syncwarp();
  Fragment<T, n> matrices;
  ldmatrix<false>(matrices, &rows[lane % (8 * n)][0]);
  stmatrix<transposed>(lane < 8 * n ? &result[lane][0] : nullptr, matrices);
  __syncwarp();
  for (int i = lane; i < 64 * n; i += 32) b[i] = result[i / 8][i % 8];
}
template <class T, int n, bool transposed>
void run_stored() {
  const auto from = numbers<T>("from", 64 * n, [](size_t i) { return i; });
  DeviceArray<T> b("b", 64 * n, Role::output);
  launch(stored<T, n, transposed>, dim3(1), dim3(32), 0, from.data(), b.data());
  std::vector<T> host(64 * n);
  b.download(std::span<T>(host));
  for (size_t i = 0; i < host.size(); ++i) {
    const size_t wanted = transposed ? i / 64 * 64 + i % 8 * 8 + i / 8 % 8 : i;
    if (static_cast<float>(host[i]) != float(wanted)) throw std::logic_error("a wrong element was stored");
  }
}

/// Four matrices by one instruction from rows that begin `stride` bytes apart, and by one instruction back to them.
__global__ void rows_apart(float* b, int stride) {
  auto* bytes = dynamic_shared_array<unsigned char>();
  const int lane = threadIdx.x;
  auto* const row = reinterpret_cast<half*>(bytes + lane * stride);
  *reinterpret_cast<uint4*>(row) = make_uint4(0, 0, 0, 0);
  __syncwarp();
  Fragment<half, 4> matrices;
  ldmatrix_x4(matrices, row);
  __syncwarp();
  stmatrix_x4_trans(row, matrices);
  b[lane] = element<half>(matrices[0], 0);
}
template <int stride>
void run_rows_apart() {
  auto b = output("b", 32);
  launch(rows_apart, dim3(1), dim3(32), 32 * stride, b.data(), stride);
  expect(b, [](size_t) { return 0; });
}

/// All lanes pass the same row.
__global__ void one_row(float* b) {
  __shared__ __align__(16) half row[8];
  const int lane = threadIdx.x;
  if (lane < 8) row[lane] = __float2half(float(lane));
  __syncwarp();
  Fragment<half, 4> matrices;
  ldmatrix_x4(matrices, row);
  b[lane] = element<half>(matrices[3], 1);
}

// --- Numbers ---------------------------------------------------------------------------------------------------------

template <class T>
__global__ void pairs(const float* a, float* b) {
  const int i = threadIdx.x;
  const std::uint32_t pair = cvt_rn_x2<T>(a[i], a[i + 32]);
  b[i] = element<T>(pair, 0);
  b[i + 32] = element<T>(pair, 1);
}
template <class T>
void run_pairs() {
  const auto value = [](size_t i) { return 1.f / (float(i) + 3.f); };  // needs rounding
  const auto a = numbers<float>("a", 64, value);
  auto b = output("b", 64);
  launch(pairs<T>, dim3(1), dim3(32), 0, a.data(), b.data());
  expect(b, [&](size_t i) { return static_cast<float>(T(value(i))); });
}

__global__ void powers(float* b) {
  const int i = threadIdx.x;
  b[i] = ex2_approx_ftz(float(i - 140));  // below 2^-126: 0
}

// --- mma -------------------------------------------------------------------------------------------------------------

// Small integers: multiplications and sums are exact.
float value_of_A(size_t row, size_t column) {
  return float(int(3 * row + column) % 5 - 2);
}
float value_of_B(size_t row, size_t column) {
  return float(int(row + 2 * column) % 7 - 3);
}
float sum_of_products(size_t row, size_t column, size_t K) {
  float sum = 0;
  for (size_t k = 0; k < K; ++k) sum += value_of_A(row, k) * value_of_B(k, column);
  return sum;
}

/// C (16, 8) = A (16, 16) B (16, 8) + 1, all row-major, without shared memory: each lane takes its elements.
template <class T>
__global__ void product(const T* A, const T* B, float* C) {
  const int quad = threadIdx.x / 4, in_quad = threadIdx.x % 4;
  const auto pair = [](T low, T high) { return cvt_rn_x2<T>(static_cast<float>(low), static_cast<float>(high)); };
  Fragment<T, 4> a;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const T* from = A + (quad + i % 2 * 8) * 16 + 2 * in_quad + i / 2 * 8;
    a[i] = pair(from[0], from[1]);
  }
  const auto rows_of_B = [&](int row) { return pair(B[row * 8 + quad], B[(row + 1) * 8 + quad]); };
  Fragment<float, 4> d;
  d.fill(1);
  mma_m16n8k16(d, a, rows_of_B(2 * in_quad), rows_of_B(2 * in_quad + 8));
#pragma unroll
  for (int i = 0; i < 4; ++i) C[(quad + i / 2 * 8) * 8 + 2 * in_quad + i % 2] = d[i];
}
/// The same in tf32 with A (16, 8) and B (8, 8).
__global__ void product_tf32(const float* A, const float* B, float* C) {
  const int quad = threadIdx.x / 4, in_quad = threadIdx.x % 4;
  Fragment<float, 4> a, d;
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = A[(quad + i % 2 * 8) * 8 + in_quad + i / 2 * 4];
  d.fill(1);
  mma_m16n8k8(d, a, B[in_quad * 8 + quad], B[(in_quad + 4) * 8 + quad]);
#pragma unroll
  for (int i = 0; i < 4; ++i) C[(quad + i / 2 * 8) * 8 + 2 * in_quad + i % 2] = d[i];
}
template <class T, auto kernel, int K>
void run_product() {
  const auto A = numbers<T>("A", 16 * K, [](size_t i) { return value_of_A(i / K, i % K); });
  const auto B = numbers<T>("B", K * 8, [](size_t i) { return value_of_B(i / 8, i % 8); });
  auto C = output("C", 16 * 8);
  launch(kernel, dim3(1), dim3(32), 0, A.data(), B.data(), C.data());
  expect(C, [](size_t i) { return sum_of_products(i / 8, i % 8, K) + 1; });
}

/// The accumulator layout of two mma side by side is the layout of the left operand of the next mma: (A Bᵀ) V with A
/// (16, 16), B (16, 16), V (16, 8), from shared memory.
template <class T>
__global__ void chained(const T* A, const T* B, const T* V, float* C) {
  __shared__ __align__(16) T a_rows[16][16], b_rows[16][16], v_rows[16][8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) a_rows[i / 16][i % 16] = A[i], b_rows[i / 16][i % 16] = B[i];
  for (int i = lane; i < 128; i += 32) v_rows[i / 8][i % 8] = V[i];
  __syncwarp();
  Fragment<T, 4> a, b, p;
  Fragment<T, 2> v;
  Fragment<float, 4> s[2], c;
  ldmatrix_x4(a, &a_rows[lane % 16][lane / 16 * 8]);
  ldmatrix_x4(b, &b_rows[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
  ldmatrix_x2_trans(v, &v_rows[lane % 16][0]);
  s[0].fill(0), s[1].fill(0), c.fill(0);
  mma_m16n8k16(s[0], a, b[0], b[1]);
  mma_m16n8k16(s[1], a, b[2], b[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = cvt_rn_x2<T>(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
  mma_m16n8k16(c, p, v[0], v[1]);
#pragma unroll
  for (int i = 0; i < 4; ++i) C[(lane / 4 + i / 2 * 8) * 8 + 2 * (lane % 4) + i % 2] = c[i];
}
template <class T>
void run_chained() {
  const auto A = numbers<T>("A", 256, [](size_t i) { return value_of_A(i / 16, i % 16); });
  const auto B = numbers<T>("B", 256, [](size_t i) { return value_of_B(i % 16, i / 16); });
  const auto V = numbers<T>("V", 128, [](size_t i) { return value_of_A(i / 8, i % 8); });
  auto C = output("C", 128);
  launch(chained<T>, dim3(1), dim3(32), 0, A.data(), B.data(), V.data(), C.data());
  expect(C, [](size_t i) {
    float sum = 0;  // |S| is at most 16·2·3 = 96, which T holds exactly
    for (size_t k = 0; k < 16; ++k) sum += sum_of_products(i / 8, k, 16) * value_of_A(k, i % 8);
    return sum;
  });
}

// --- cp.async in groups ----------------------------------------------------------------------------------------------

/// Four groups in flight; after each wait the oldest is complete, and a thread may access the bytes that it has copied
/// itself.
__global__ void four_groups(const float* a, float* b) {
  __shared__ __align__(16) float tile[4][32][4];
  const int t = threadIdx.x;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    cp_async_16(tile[j][t], a + (32 * j + t) * 4);
    cp_async_commit_group();
  }
  cp_async_wait_group<3>();
  b[t] = tile[0][t][0];
  cp_async_wait_group<2>();
  b[32 + t] = tile[1][t][1];
  cp_async_16(tile[0][t], a, 0);  // a fifth, of zeros: the first stage is free
  cp_async_commit_group();
  cp_async_wait_group<1>();
  b[64 + t] = tile[2][t][2] + tile[3][t][3];
  cp_async_wait_group<0>();
  b[96 + t] = tile[0][t][0];
}

/// 50 floats of 128; the others become zeros.
__global__ void part_of_a_tile(const float* a, float* b, int n) {
  __shared__ __align__(16) float tile[128];
  const int t = threadIdx.x, left = n - 4 * t, exist = left < 0 ? 0 : left > 4 ? 4 : left;
  cp_async_16(&tile[4 * t], exist > 0 ? a + 4 * t : a, 4 * exist);
  cp_async_commit_group();
  cp_async_wait_group<0>();
  __syncwarp();
  for (int i = t; i < 128; i += 32) b[i] = tile[i];
}

// --- A matmul of tiles -----------------------------------------------------------------------------------------------

/// The layout of rows of 64 elements, 128 bytes, in shared memory: unchanged, 16 bytes further apart, or with the eight
/// 16-byte chunks of each row permuted by the row index.
enum class Rows { plain, padded, swizzled };

constexpr int kTile = 64, kWarps = 4;

template <class T, Rows layout, int stages>
struct Stages {
  static constexpr int length = layout == Rows::padded ? kTile + 8 : kTile;
  T A[stages][kTile][length], B[stages][kTile][length];
  SHARED_LAYOUT(Stages, (A, kTile), (B, kTile));
};

template <Rows layout, class T, int length>
__device__ __forceinline__ T* chunk_of(T (&tile)[kTile][length], int row, int chunk) {
  return &tile[row][(layout == Rows::swizzled ? chunk ^ row % 8 : chunk) * 8];
}

/// Starts to copy 64 x 64 elements of a matrix with rows of `stride`; rows beyond `rows` become zeros.
template <Rows layout, class T, int length>
__device__ __forceinline__ void start_tile(T (&tile)[kTile][length], const T* from, int stride, int rows) {
  const int first_row = threadIdx.x / 8, chunk = threadIdx.x % 8;
#pragma unroll
  for (int i = 0; i < kTile; i += kWarps * 4) {
    const int row = first_row + i;
    cp_async_16(chunk_of<layout>(tile, row, chunk), from + row * stride + chunk * 8, row < rows ? 16 : 0);
  }
}

/// C (M, 64) = A (M, K) B, where B is (K, 64) if by_rows and otherwise (64, K), its columns as rows. A block computes
/// 64 rows of C, a warp 16 of them. `stages` tiles of A and B are in shared memory, all but one of them in flight.
template <class T, Rows layout, int stages, bool by_rows>
__global__ void tiled(const T* A, const T* B, float* C, int M, int K) {
  auto& smem = dynamic_shared<Stages<T, layout, stages>>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_row = blockIdx.x * kTile;
  const auto start = [&](int j) {
    if (j * kTile < K) {
      start_tile<layout>(smem.A[j % stages], A + first_row * K + j * kTile, K, M - first_row);
      start_tile<layout>(smem.B[j % stages], B + j * kTile * (by_rows ? kTile : 1), by_rows ? kTile : K, kTile);
    }
    cp_async_commit_group();  // possibly an empty group, so that the count is correct
  };
  for (int j = 0; j < stages - 1; ++j) start(j);
  Fragment<float, 4> c[8];
#pragma unroll
  for (auto& part : c) part.fill(0);
  for (int j = 0; j * kTile < K; ++j) {
    cp_async_wait_group<stages - 2>();
    __syncthreads();  // tile j is visible to all threads, and no thread reads the previous tile any more
    start(j + stages - 1);
    auto &a_tile = smem.A[j % stages], &b_tile = smem.B[j % stages];
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) {
      Fragment<T, 4> a;
      ldmatrix_x4(a, chunk_of<layout>(a_tile, 16 * warp + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int n = 0; n < kTile / 16; ++n) {
        Fragment<T, 4> b;
        if constexpr (by_rows) {
          ldmatrix_x4_trans(b, chunk_of<layout>(b_tile, 16 * k + lane % 16, 2 * n + lane / 16));
        } else {
          ldmatrix_x4(b, chunk_of<layout>(b_tile, 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        }
        mma_m16n8k16(c[2 * n], a, b[0], b[1]);
        mma_m16n8k16(c[2 * n + 1], a, b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int half_tile = 0; half_tile < 2; ++half_tile) {
    const int row = first_row + 16 * warp + 8 * half_tile + lane / 4;
    if (row >= M) continue;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      reinterpret_cast<float2*>(C + row * kTile + 8 * n)[lane % 4] =
          make_float2(c[n][2 * half_tile], c[n][2 * half_tile + 1]);
    }
  }
}
template <class T, Rows layout, int stages, bool by_rows, int M = 128>
void run_tiled() {
  constexpr int K = 256;
  const auto A = numbers<T>("A", M * K, [](size_t i) { return value_of_A(i / K, i % K); });
  const auto B = numbers<T>(
      "B", K * kTile, [](size_t i) { return by_rows ? value_of_B(i / kTile, i % kTile) : value_of_B(i % K, i / K); });
  auto C = output("C", M * kTile);
  launch(tiled<T, layout, stages, by_rows>, dim3((M + kTile - 1) / kTile), dim3(kWarps * 32),
         sizeof(Stages<T, layout, stages>), A.data(), B.data(), C.data(), M, K);
  expect(C, [](size_t i) { return sum_of_products(i / kTile, i % kTile, K); });
}

// --- Cases -----------------------------------------------------------------------------------------------------------

constexpr Case cases[] = {
    {"ldmatrix x1", run_loaded<half, 1, false>},
    {"ldmatrix x1 trans", run_loaded<half, 1, true>},
    {"ldmatrix x2", run_loaded<half, 2, false>},
    {"ldmatrix x2 trans", run_loaded<bf16, 2, true>},
    {"ldmatrix x4", run_loaded<bf16, 4, false>},
    {"ldmatrix x4 trans", run_loaded<half, 4, true>},
    {"movmatrix trans", run_moved<half>},
    {"movmatrix trans of bf16", run_moved<bf16>},
    {"stmatrix x1", run_stored<half, 1, false>},
    {"stmatrix x1 trans", run_stored<half, 1, true>},
    {"stmatrix x2", run_stored<bf16, 2, false>},
    {"stmatrix x2 trans", run_stored<half, 2, true>},
    {"stmatrix x4", run_stored<half, 4, false>},
    {"stmatrix x4 trans", run_stored<bf16, 4, true>},
    {"matrix rows 16 bytes apart", run_rows_apart<16>},
    {"matrix rows 32 bytes apart", run_rows_apart<32>},
    {"matrix rows 48 bytes apart", run_rows_apart<48>},
    {"matrix rows 64 bytes apart", run_rows_apart<64>},
    {"matrix rows 128 bytes apart", run_rows_apart<128>},
    {"matrix rows 144 bytes apart", run_rows_apart<144>},
    {"ldmatrix of one row",
     [] {
       auto b = output("b", 32);
       launch(one_row, dim3(1), dim3(32), 0, b.data());
       expect(b, [](size_t lane) { return lane % 4 * 2 + 1; });
     }},
    {"cvt to pairs of half", run_pairs<half>},
    {"cvt to pairs of bf16", run_pairs<bf16>},
    {"ex2",
     [] {
       auto b = output("b", 160);
       launch(powers, dim3(1), dim3(160), 0, b.data());
       expect(b, [](size_t i) { return i < 14 ? 0.f : std::exp2(float(i) - 140.f); });
     }},
    {"mma m16n8k16 half", run_product<half, product<half>, 16>},
    {"mma m16n8k16 bf16", run_product<bf16, product<bf16>, 16>},
    {"mma m16n8k8 tf32", run_product<float, product_tf32, 8>},
    {"mma of mma, half", run_chained<half>},
    {"mma of mma, bf16", run_chained<bf16>},
    {"pairs of warps exchange",
     [] {
       auto b = output("b", 128);
       launch(pairs_exchange, dim3(1), dim3(128), 0, b.data());
       expect(b, [](size_t i) { return (i ^ 32) + 3; });
     }},
    {"cp.async in four groups",
     [] {
       auto a = floats("a", 512);
       auto b = output("b", 128);
       launch(four_groups, dim3(1), dim3(32), 0, a.data(), b.data());
       expect(b, [](size_t i) {
         const size_t t = i % 32, of[] = {4 * t, 128 + 4 * t + 1, 256 + 4 * t + 2 + 384 + 4 * t + 3, 0};
         return of[i / 32];
       });
     }},
    {"cp.async of 50 floats",
     [] {
       auto a = floats("a", 50);
       auto b = output("b", 128);
       launch(part_of_a_tile, dim3(1), dim3(32), 0, a.data(), b.data(), 50);
       expect(b, [](size_t i) { return i < 50 ? i : 0; });
     }},
    {"mma tiles, plain rows", run_tiled<half, Rows::plain, 2, false>},
    {"mma tiles, padded rows", run_tiled<half, Rows::padded, 2, false>},
    {"mma tiles, swizzled rows", run_tiled<half, Rows::swizzled, 2, false>},
    {"mma tiles, three stages", run_tiled<half, Rows::swizzled, 3, false>},
    {"mma tiles, three stages, trans", run_tiled<half, Rows::swizzled, 3, true>},
    {"mma tiles, bf16, trans, plain rows", run_tiled<bf16, Rows::plain, 3, true>},
    {"mma tiles, bf16, 100 rows", run_tiled<bf16, Rows::swizzled, 3, true, 100>},
};

}  // namespace

std::span<const Case> instruction_cases() {
  return cases;
}

}  // namespace zoo
