// Correct kernels of Hopper's instructions, each with its result: TMA copies of boxes, mbarriers and named barriers,
// ring buffers, wgmma. None has a report, and the result is the same in every order.
#include "tests/simt/cases.hpp"
#include "tests/simt/hopper.hpp"

namespace zoo {

template <>
DeviceArray<__nv_fp8_e4m3> small_numbers(const char* name, std::size_t count, int first) {
  constexpr std::uint8_t codes[16] = {0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e,
                                      0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57};  // 0 to 15 in e4m3
  std::vector<std::uint8_t> host(count);
  for (std::size_t i = 0; i < count; ++i) host[i] = codes[small_number(i + std::size_t(first))];
  return DeviceArray<__nv_fp8_e4m3>(name, std::span<const std::uint8_t>(host));
}

namespace {

using namespace workbook::cuda;

// --- Copies of boxes -------------------------------------------------------------------------------------------------

/// The location of the 16-byte chunk `piece` of row `row`, with rows of `row_bytes`.
template <int row_bytes>
__device__ int place(int row, int piece, bool swizzled) {
  const int address = row * row_bytes + piece * 16;
  const int mask = row_bytes == 128 ? 0x70 : row_bytes == 64 ? 0x30 : row_bytes == 32 ? 0x10 : 0;
  return swizzled ? address ^ (address >> 3 & mask) : address;
}

/// A box of 16 rows, from (row, column) on, of a matrix of 40 rows and 72 columns; to b, row by row.
template <int columns>
__global__ void load_2d(const __grid_constant__ TensorMap a, float* b, int row, int column, bool swizzled) {
  __shared__ __align__(1024) half tile[16 * columns];
  __shared__ Mbarrier full;
  make_barrier(full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(full, sizeof tile);
    cp_async_bulk_tensor_load(tile, a, full, column, row);
  }
  mbarrier_wait_parity(full, 0);
  for (int i = threadIdx.x; i < 16 * columns; i += blockDim.x) {
    const int at = place<columns * 2>(i / columns, i % columns / 8, swizzled) / 2 + i % 8;
    b[i] = __half2float(tile[at]);
  }
}
template <int columns, Swizzle swizzle>
void run_load_2d(int row, int column) {
  auto a = small_numbers<half>("a", 40 * 72, 0);
  auto b = output("b", 16 * columns);
  const TensorMap map = tensor_map(a.data(), {72, 40}, {144}, {columns, 16}, swizzle);
  launch(load_2d<columns>, dim3(1), dim3(64), 0, map, b.data(), row, column, swizzle != Swizzle::none);
  expect(b, [&](std::size_t i) {
    const int r = row + int(i) / columns, c = column + int(i) % columns;
    return r < 0 || r >= 40 || c < 0 || c >= 72 ? 0 : small_number(std::size_t(r * 72 + c));
  });
}

/// A box of all dimensions but the first, which is 8 long; `sizes` is 8, 3, 4, 2, 3 as far as there are dimensions.
template <int dimensions>
__global__ void load_many(const __grid_constant__ TensorMap a, float* b, int count) {
  __shared__ __align__(128) half tile[8 * 3 * 4 * 2 * 3];
  __shared__ Mbarrier full;
  make_barrier(full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(full, count * 2);
    if constexpr (dimensions == 3) cp_async_bulk_tensor_load(tile, a, full, 0, 0, 0);
    if constexpr (dimensions == 4) cp_async_bulk_tensor_load(tile, a, full, 0, 0, 0, 0);
    if constexpr (dimensions == 5) cp_async_bulk_tensor_load(tile, a, full, 0, 0, 0, 0, 0);
  }
  mbarrier_wait_parity(full, 0);
  for (int i = threadIdx.x; i < count; i += blockDim.x) b[i] = __half2float(tile[i]);
}
template <int dimensions>
void run_load_many() {
  const std::vector<std::uint32_t> all = {8, 3, 4, 2, 3};
  const std::vector<std::uint32_t> box(all.begin(), all.begin() + dimensions);
  const std::vector<std::uint64_t> sizes(box.begin(), box.end());
  std::vector<std::uint64_t> strides;
  std::size_t count = 8;
  for (int i = 1; i < dimensions; ++i) {
    strides.push_back(count * 2);
    count *= box[std::size_t(i)];
  }
  auto a = small_numbers<half>("a", count, 0);
  auto b = output("b", count);
  launch(load_many<dimensions>, dim3(1), dim3(32), 0, tensor_map(a.data(), sizes, strides, box), b.data(), int(count));
  expect(b, [](std::size_t i) { return small_number(i); });
}

/// Threads write a tile, and one of them stores it; rows and columns outside of the tensor are skipped.
__global__ void store_2d(const __grid_constant__ TensorMap b) {
  __shared__ __align__(128) float tile[16][32];
  for (int i = threadIdx.x; i < 16 * 32; i += blockDim.x) tile[i / 32][i % 32] = i / 32 + 100 * (i % 32);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(b, tile, 0, 0);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
  }
}
void run_store_2d() {
  auto b = output("b", 12 * 20);
  launch(store_2d, dim3(1), dim3(64), 0, tensor_map(b.data(), {20, 12}, {80}, {32, 16}));
  expect(b, [](std::size_t i) { return i / 20 + 100 * (i % 20); });
}

/// Two stores in two groups; the source of the first is overwritten after it has been read.
__global__ void store_twice(const __grid_constant__ TensorMap b) {
  __shared__ __align__(128) float tile[2][4][32];
  for (int round = 0; round < 4; ++round) {
    if (round >= 2 && threadIdx.x == 0) cp_async_bulk_wait_group_read<1>();
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += blockDim.x) tile[round % 2][i / 32][i % 32] = 128 * round + i;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      cp_async_bulk_tensor_store(b, tile[round % 2], 0, 4 * round);
      cp_async_bulk_commit_group();
    }
  }
  if (threadIdx.x == 0) cp_async_bulk_wait_group_read<0>();
}
void run_store_twice() {
  auto b = output("b", 16 * 32);
  launch(store_twice, dim3(1), dim3(64), 0, tensor_map(b.data(), {32, 16}, {128}, {32, 4}));
  expect(b, [](std::size_t i) { return i; });
}

/// Sequences of 13, 1 and 26 rows of two sections, one after another. The second box of 8 rows of each sequence is
/// copied from a to b, up to the end of the sequence; rows after the end are neither read nor written.
constexpr int sequences = 3, sequence_starts[sequences + 1] = {0, 13, 14, 40};
__global__ void copy_ends_of_sequences(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                                       int end, int length) {
  __shared__ __align__(1024) half tile[2][8][64];
  __shared__ Mbarrier full;
  make_barrier(full, 1);
  const int row = 40 - length + 8 * (length > 8);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(full, sizeof tile);
    cp_async_bulk_tensor_load(tile, a, full, 0, row, 0, end);
  }
  mbarrier_wait_parity(full, 0);
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(b, tile, 0, row, 0, end);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
  }
}
void run_ends_of_sequences() {
  constexpr std::size_t row = 128, rows = 40;
  auto a = small_numbers<half>("a", rows * row, 0);
  const std::vector<half> zeros(rows * row, __float2half(0));
  DeviceArray<half> b("b", std::span<const half>(zeros));
  const auto map_of = [&](const half* tensor) {
    return tensor_map(tensor, {64, rows, 2, rows + 1}, {2 * row, 128, 2 * row}, {64, 8, 2, 1}, Swizzle::bytes_128,
                      rows * row * 2);
  };
  for (int s = 0; s < sequences; ++s)
    launch(copy_ends_of_sequences, dim3(1), dim3(64), 0, map_of(a.data()), map_of(b.data()), sequence_starts[s + 1],
           sequence_starts[s + 1] - sequence_starts[s]);
  std::vector<half> found(rows * row);
  b.download(std::span(found));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const int r = int(i / row);
    const bool copied = (8 <= r && r < 14) || (22 <= r && r < 30);
    if (__half2float(found[i]) != (copied ? float(small_number(i)) : 0))
      throw std::logic_error("row " + std::to_string(r) + " of b is wrong");
  }
}

// --- Ring buffers ----------------------------------------------------------------------------------------------------

struct Ring {
  float tile[2][4][32];
  Mbarrier full[2], empty[2];
  SHARED_LAYOUT(Ring, tile, full, empty);
};

/// A producer warp, of which one lane issues the copies, and `consumers` warps that add up the data.
template <int consumers, bool elects>
__global__ void ring(const __grid_constant__ TensorMap a, float* b, int tiles) {
  Ring& s = dynamic_shared<Ring>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(s.full[i], 1), mbarrier_init(s.empty[i], consumers);
    fence_mbarrier_init();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == consumers) {
    const bool mine = elects ? elect_sync() : lane == 0;
    for (int j = 0; mine && j < tiles; ++j) {
      mbarrier_wait_parity(s.empty[j % 2], (j / 2 & 1) ^ 1);
      mbarrier_arrive_expect_tx(s.full[j % 2], sizeof s.tile[0]);
      cp_async_bulk_tensor_load(s.tile[j % 2], a, s.full[j % 2], 0, 4 * j);
    }
  } else {
    float sum = 0;
    for (int j = 0; j < tiles; ++j) {
      mbarrier_wait_parity(s.full[j % 2], j / 2 & 1);
      for (int r = 0; r < 4; ++r) sum += s.tile[j % 2][r][lane];
      __syncwarp();
      if (lane == 0) mbarrier_arrive(s.empty[j % 2]);
    }
    b[threadIdx.x] = sum;
  }
}
template <int consumers, bool elects, int tiles>
void run_ring() {
  auto a = floats("a", 32 * 4 * tiles);
  auto b = output("b", 32 * consumers);
  launch(ring<consumers, elects>, dim3(1), dim3(32 * consumers + 32), sizeof(Ring),
         tensor_map(a.data(), {32, 4 * tiles}, {128}, {32, 4}), b.data(), tiles);
  expect(b, [](std::size_t i) {
    float sum = 0;
    for (int r = 0; r < 4 * tiles; ++r) sum += float(32 * r + int(i) % 32);
    return sum;
  });
}

/// Warps pass a value around by mbarriers, with ordinary accesses only.
__global__ void relay(float* b) {
  __shared__ float value[32];
  __shared__ Mbarrier written[4];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (Mbarrier& t : written) mbarrier_init(t, 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  for (int round = 0; round < 3; ++round) {
    if (round > 0 || warp > 0) mbarrier_wait_parity(written[(warp + 3) % 4], (warp == 0 ? round - 1 : round) & 1);
    value[lane] = round == 0 && warp == 0 ? lane : value[lane] + 1;
    mbarrier_arrive(written[warp]);
  }
  if (warp == 3) b[lane] = value[lane];
}

/// The same by named barriers: warps that only signal the next one do not wait.
__global__ void named_relay(float* b) {
  __shared__ float value[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int round = 0; round < 3; ++round) {
    if (round > 0 || warp > 0) barrier_sync(1 + warp, 64);
    value[lane] = round == 0 && warp == 0 ? lane : value[lane] + 1;
    if (round < 2 || warp < 3) barrier_arrive(1 + (warp + 1) % 4, 64);
  }
  if (warp == 3) b[lane] = value[lane];
}

/// A named barrier of two of four warps, several times.
__global__ void pairs_of_warps(float* b) {
  __shared__ float value[128];
  const int pair = threadIdx.x / 64;
  float x = threadIdx.x;
  for (int round = 0; round < 4; ++round) {
    value[threadIdx.x] = x;
    barrier_sync(1 + pair, 64);
    x = value[threadIdx.x ^ 32];
    barrier_sync(1 + pair, 64);
  }
  b[threadIdx.x] = x;
}

// --- wgmma -----------------------------------------------------------------------------------------------------------

/// D (64, n) = A (64, 64) B (64, n), with A and Bᵀ by rows in shared memory, swizzled by 128 bytes.
template <class T, int n>
struct alignas(1024) Operands {
  static constexpr int k = 128 / sizeof(T);
  T A[64][k];
  T B[n][k];
  Mbarrier full;
  SHARED_LAYOUT(Operands, A, B, full);
};
template <class T, int n, bool A_in_registers, int waits>
__global__ void product(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, const T* A_memory,
                        float* b) {
  using Shared = Operands<T, n>;
  constexpr int step = 32 / sizeof(T);
  Shared& s = dynamic_shared<Shared>();
  load_operands(s, A, B);
  Fragment<T, 4> a[4];
  if constexpr (A_in_registers) {
    const int warp = threadIdx.x / 32, quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
    constexpr int together = 4 / sizeof(T);  // elements per register
    for (int i = 0; i < 4; ++i)
      for (int r = 0; r < 4; ++r) {
        const int row = 16 * warp + quad + r % 2 * 8, column = step * i + together * in_quad + r / 2 * (step / 2);
        a[i][r] = *reinterpret_cast<const std::uint32_t*>(A_memory + row * Shared::k + column);
      }
  }
  mbarrier_wait_parity(s.full, 0);
  Fragment<float, n / 2> D;
  const WgmmaMatrix matrix_A = wgmma_matrix(s.A, 0, 1024, Swizzle::bytes_128);
  const WgmmaMatrix matrix_B = wgmma_matrix(s.B, 0, 1024, Swizzle::bytes_128);
  wgmma_fence();
  for (int i = 0; i < 4; ++i) {
    if constexpr (A_in_registers) {
      wgmma_mma_async(D, a[i], matrix_B + 32 * i, i > 0);
    } else {
      wgmma_mma_async<T>(D, matrix_A + 32 * i, matrix_B + 32 * i, i > 0);
    }
    if (waits > 1) wgmma_commit_group();
  }
  if (waits == 1) wgmma_commit_group();
  if (waits > 1) wgmma_wait_group<1>(D);
  wgmma_wait_group<0>(D);
  store<n>(b, D);
}
template <class T, int n, bool A_in_registers, int waits = 1>
void run_product() {
  constexpr int k = Operands<T, n>::k;
  auto A = small_numbers<T>("A", 64 * k, 0);
  auto B = small_numbers<T>("B", std::size_t(n) * k, 11);
  auto b = output("b", 64 * n);
  launch(product<T, n, A_in_registers, waits>, dim3(1), dim3(128), sizeof(Operands<T, n>),
         tensor_map(A.data(), {k, 64}, {128}, {k, 64}, Swizzle::bytes_128),
         tensor_map(B.data(), {k, n}, {128}, {k, n}, Swizzle::bytes_128), A.data(), b.data());
  expect(b, [](std::size_t i) {
    int sum = 0;
    for (int c = 0; c < k; ++c) {
      sum += small_number(i / n * k + std::size_t(c)) * small_number(i % n * k + std::size_t(c) + 11);
    }
    return sum;
  });
}

/// 8-bit operands in rows of 64 bytes, with the 64-byte swizzle: D (64, 16) = A (64, 64) B (64, 16).
struct alignas(1024) ShortRows {
  __nv_fp8_e4m3 A[64][64], B[16][64];
  Mbarrier full;
  SHARED_LAYOUT(ShortRows, A, B, full);
};
__global__ void product_of_short_rows(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                                      float* b) {
  ShortRows& s = dynamic_shared<ShortRows>();
  load_operands(s, A, B);
  mbarrier_wait_parity(s.full, 0);
  const WgmmaMatrix a = wgmma_matrix(s.A, 0, 512, Swizzle::bytes_64), c = wgmma_matrix(s.B, 0, 512, Swizzle::bytes_64);
  Fragment<float, 8> D;
  wgmma_fence();
  wgmma_mma_async<__nv_fp8_e4m3>(D, a, c, false);
  wgmma_mma_async<__nv_fp8_e4m3>(D, a + 32, c + 32, true);
  wgmma_commit_group();
  wgmma_wait_group<0>(D);
  store<16>(b, D);
}
void run_product_of_short_rows() {
  auto A = small_numbers<__nv_fp8_e4m3>("A", 64 * 64, 0), B = small_numbers<__nv_fp8_e4m3>("B", 16 * 64, 11);
  auto b = output("b", 64 * 16);
  launch(product_of_short_rows, dim3(1), dim3(128), sizeof(ShortRows),
         tensor_map(A.data(), {64, 64}, {64}, {64, 64}, Swizzle::bytes_64),
         tensor_map(B.data(), {64, 16}, {64}, {64, 16}, Swizzle::bytes_64), b.data());
  expect(b, [](std::size_t i) {
    int sum = 0;
    for (std::size_t c = 0; c < 64; ++c) sum += small_number(i / 16 * 64 + c) * small_number(i % 16 * 64 + c + 11);
    return sum;
  });
}

/// B with its rows along n, in sections of 64 columns; the threads write the rows of A and B.
struct alignas(1024) Sections {
  half A[64][64];
  half B[2][16][64];
  SHARED_LAYOUT(Sections, A, B);
};
__global__ void product_of_sections(const half* A, const half* B, float* b) {
  Sections& s = dynamic_shared<Sections>();
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
    const int row = i / 64, column = i % 64;
    s.A[row][(column / 8 ^ row % 8) * 8 + column % 8] = A[i];
  }
  for (int i = threadIdx.x; i < 16 * 128; i += blockDim.x) {
    const int row = i / 128, column = i % 128;
    s.B[column / 64][row][(column % 64 / 8 ^ row % 8) * 8 + column % 8] = B[i];
  }
  fence_proxy_async();
  __syncthreads();
  Fragment<float, 64> D;
  D.fill(1);
  wgmma_fence();
  wgmma_mma_async<half, Major::n>(D, wgmma_matrix(s.A, 0, 1024, Swizzle::bytes_128),
                                  wgmma_matrix(s.B, sizeof s.B[0], 1024, Swizzle::bytes_128), true);
  wgmma_commit_group();
  wgmma_wait_group<0>(D);
  store<128>(b, D);
}
void run_product_of_sections() {
  auto A = small_numbers<half>("A", 64 * 64, 0), B = small_numbers<half>("B", 16 * 128, 5);
  auto b = output("b", 64 * 128);
  launch(product_of_sections, dim3(1), dim3(128), sizeof(Sections), A.data(), B.data(), b.data());
  expect(b, [](std::size_t i) {
    int sum = 1;
    for (std::size_t k = 0; k < 16; ++k) sum += small_number(i / 128 * 64 + k) * small_number(k * 128 + i % 128 + 5);
    return sum;
  });
}

/// Registers are moved from the first warpgroup to the second.
__global__ void __launch_bounds__(256, 1) registers_handed_over(float* b) {
  if (threadIdx.x < 128) {
    setmaxnreg_dec<240>();
  } else {
    setmaxnreg_inc<256>();
  }
  b[threadIdx.x] = 1;
}

__global__ void elected(float* b) {
  if (elect_sync()) b[threadIdx.x / 32] = 1;
}

template <auto kKernel, int kThreads, int kOutputs>
void alone() {
  auto b = output("b", kOutputs);
  launch(kKernel, dim3(1), dim3(kThreads), 0, b.data());
  expect(b, [](std::size_t i) { return kOutputs == 32 ? i + 11 : kOutputs == 128 ? i : 1; });
}

constexpr Case cases[] = {
    {"boxes that end with a sequence", run_ends_of_sequences},
    {"box without swizzle", [] { run_load_2d<24, Swizzle::none>(3, 8); }},
    {"box swizzled by 32 bytes", [] { run_load_2d<16, Swizzle::bytes_32>(1, 16); }},
    {"box swizzled by 64 bytes", [] { run_load_2d<32, Swizzle::bytes_64>(2, 0); }},
    {"box swizzled by 128 bytes", [] { run_load_2d<64, Swizzle::bytes_128>(5, 8); }},
    {"box past the last row", [] { run_load_2d<64, Swizzle::bytes_128>(30, 0); }},
    {"box past the last column", [] { run_load_2d<64, Swizzle::none>(0, 40); }},
    {"box before the beginning", [] { run_load_2d<32, Swizzle::bytes_64>(-3, -8); }},
    {"box wholly outside", [] { run_load_2d<16, Swizzle::none>(50, 0); }},
    {"box of 3 dimensions", run_load_many<3>},
    {"box of 4 dimensions", run_load_many<4>},
    {"box of 5 dimensions", run_load_many<5>},
    {"box stored", run_store_2d},
    {"boxes stored in two groups", run_store_twice},
    {"ring, one consumer", run_ring<1, false, 7>},
    {"ring, three consumers, elected producer", run_ring<3, true, 6>},
    {"ring, one tile", run_ring<2, false, 1>},
    {"relay by barriers in shared memory", alone<relay, 128, 32>},
    {"relay by named barriers", alone<named_relay, 128, 32>},
    {"pairs of warps", alone<pairs_of_warps, 128, 128>},
    {"product, fp16, n = 8", run_product<half, 8, false>},
    {"product, fp16, n = 128", run_product<half, 128, false>},
    {"product, bf16, n = 64", run_product<__nv_bfloat16, 64, false>},
    {"product, e4m3, n = 64", run_product<__nv_fp8_e4m3, 64, false>},
    {"product, fp16, A in registers", run_product<half, 80, true>},
    {"product, bf16, A in registers", run_product<__nv_bfloat16, 32, true>},
    {"product, e4m3, A in registers", run_product<__nv_fp8_e4m3, 16, true>},
    {"product, e4m3, rows of 64 bytes", run_product_of_short_rows},
    {"product, fp16, n = 256, a group each", run_product<half, 256, false, 4>},
    {"product, rows along n, ordinary writes", run_product_of_sections},
    {"registers handed over", alone<registers_handed_over, 256, 256>},
    {"one elected lane", alone<elected, 64, 2>},
};

}  // namespace

std::span<const Case> hopper_cases() {
  return cases;
}

}  // namespace zoo
