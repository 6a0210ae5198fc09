// Correct kernels of the instructions that a backward pass on Hopper adds to the forward pass, each with its result:
// bulk copies and bulk reductions, D as an output only, A transposed, and operands written by threads. None has a
// report. The result is the same in every order, except for the last bits where the order is unspecified.
#include "tests/simt/cases.hpp"
#include "tests/simt/hopper.hpp"

namespace zoo {
namespace {

using namespace workbook::cuda;

// --- Bulk copies -----------------------------------------------------------------------------------------------------

/// Bulk copies of 16 bytes and more, from odd multiples of 16, to shared memory and from there to another location.
__global__ void lines_there_and_back(const float* a, float* b) {
  __shared__ __align__(16) float line[64];
  __shared__ Mbarrier full;
  make_barrier(full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(full, 16 + 208);
    cp_async_bulk_load(line, a + 4, 16, full);
    cp_async_bulk_load(line + 8, a + 12, 208, full);
  }
  mbarrier_wait_parity(full, 0);
  for (int i = threadIdx.x; i < 4; i += blockDim.x) line[4 + i] = line[i] + 100;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_store(b, line, 240);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group<0>();
  }
}
void run_lines_there_and_back() {
  auto a = floats("a", 64);
  auto b = output("b", 60);
  launch(lines_there_and_back, dim3(1), dim3(32), 0, a.data(), b.data());
  expect(b, [](std::size_t i) { return i < 4 ? i + 4 : i < 8 ? i + 100 : i + 4; });
}

struct Tile {
  float rows[2][4][32], numbers[2][32];
  Mbarrier full[2], empty[2];
  SHARED_LAYOUT(Tile, rows, numbers, full, empty);
};
/// A tile of rows and one number per column are loaded together, in a ring buffer of two stages; `consumers` warps add
/// rows · numbers. (compute-sanitizer's racecheck reports a false race on the bulk copies.)
template <int consumers>
__global__ void tiles_with_numbers(const __grid_constant__ TensorMap rows, const float* numbers, float* b, int tiles) {
  Tile& s = dynamic_shared<Tile>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(s.full[i], 1), mbarrier_init(s.empty[i], consumers);
    fence_mbarrier_init();
    prefetch_tensormap(rows);
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == consumers) {
    for (int j = 0; lane == 0 && j < tiles; ++j) {
      mbarrier_wait_parity(s.empty[j % 2], (j / 2 & 1) ^ 1);
      mbarrier_arrive_expect_tx(s.full[j % 2], sizeof s.rows[0] + sizeof s.numbers[0]);
      cp_async_bulk_tensor_load(s.rows[j % 2], rows, s.full[j % 2], 0, 4 * j);
      cp_async_bulk_load(s.numbers[j % 2], numbers + 32 * j, sizeof s.numbers[0], s.full[j % 2]);
    }
  } else {
    float sum = 0;
    for (int j = 0; j < tiles; ++j) {
      mbarrier_wait_parity(s.full[j % 2], j / 2 & 1);
      for (int r = 0; r < 4; ++r) sum += s.rows[j % 2][r][lane] * s.numbers[j % 2][lane];
      __syncwarp();
      if (lane == 0) mbarrier_arrive(s.empty[j % 2]);
    }
    b[threadIdx.x] = sum;
  }
}
template <int consumers, int tiles>
void run_tiles_with_numbers() {
  auto rows = floats("rows", 32 * 4 * tiles), numbers = floats("numbers", 32 * tiles);
  auto b = output("b", 32 * consumers);
  launch(tiles_with_numbers<consumers>, dim3(1), dim3(32 * consumers + 32), sizeof(Tile),
         tensor_map(rows.data(), {32, 4 * tiles}, {128}, {32, 4}), numbers.data(), b.data(), tiles);
  expect(b, [](std::size_t i) {
    float sum = 0;
    for (int j = 0; j < tiles; ++j)
      for (int r = 0; r < 4; ++r) sum += float(32 * (4 * j + r) + int(i) % 32) * float(32 * j + int(i) % 32);
    return sum;
  });
}

// --- Bulk reductions -------------------------------------------------------------------------------------------------

struct Parts {
  float part[2][128];
  SHARED_LAYOUT(Parts, part);
};
enum Number { written = 1, empty = 3 };  // of barriers, two each

/// What block x adds to element i of tile j.
__host__ __device__ inline float addend(unsigned x, int j, int i) {
  return 1.0f / float(1 + (x * 7 + unsigned(j) * 3 + unsigned(i)) % 19);
}

/// Every block adds to every tile of the sum: two warps write their halves, and a third warp adds them by TMA.
/// Deterministic: block 0 adds to a tile first, then block 1, and so on.
template <bool deterministic>
__global__ void additions(float* sum, int* semaphores, int tiles) {
  Parts& s = dynamic_shared<Parts>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < 2) {
    for (int j = 0; j < tiles; ++j) {
      barrier_sync(empty + warp, 64);
      for (int i = lane; i < 128; i += 32) s.part[warp][i] = addend(blockIdx.x, j, 128 * warp + i);
      fence_proxy_async();
      barrier_arrive(written + warp, 64);
    }
    return;
  }
  for (int w = 0; w < 2; ++w) barrier_arrive(empty + w, 64);
  for (int j = 0; j < tiles; ++j) {
    if (deterministic && lane == 0) {
      while (*static_cast<volatile int*>(semaphores + j) != int(blockIdx.x)) {
      }
      __threadfence();
    }
    __syncwarp();
    for (int w = 0; w < 2; ++w) {
      barrier_sync(written + w, 64);
      if (lane == 0) {
        cp_reduce_async_bulk_add(sum + 256 * j + 128 * w, s.part[w], sizeof s.part[w]);
        cp_async_bulk_commit_group();
      }
    }
    if (deterministic && lane == 0) {
      cp_async_bulk_wait_group<0>();
      __threadfence();
      atomicAdd(semaphores + j, 1);
    }
    for (int w = 0; w < 2; ++w) {
      if (lane == 0) w == 0 ? cp_async_bulk_wait_group_read<1>() : cp_async_bulk_wait_group_read<0>();
      __syncwarp();
      if (j + 1 < tiles) barrier_arrive(empty + w, 64);
    }
  }
}
template <bool deterministic, int blocks>
std::vector<float> sums() {
  constexpr int tiles = 3;
  const std::vector<float> zeros(tiles * 256, 0.0f);
  const std::vector<int> none(tiles, 0);
  DeviceArray<float> sum("sum", zeros.size(), Role::scratch);
  DeviceArray<int> semaphores("semaphores", none.size(), Role::scratch);
  sum.upload(std::span<const float>(zeros));
  semaphores.upload(std::span<const int>(none));
  launch(additions<deterministic>, dim3(blocks), dim3(96), sizeof(Parts), sum.data(), semaphores.data(), tiles);
  return values(sum);
}
template <bool deterministic, int blocks>
void run_additions() {
  const std::vector<float> got = sums<deterministic, blocks>();
  for (int i = 0; i < int(got.size()); ++i) {
    float wanted = 0;  // the sum in block order
    for (unsigned x = 0; x < blocks; ++x) wanted += addend(x, i / 256, i % 256);
    const float allowed = deterministic ? 0 : 1e-6f * wanted;
    if (!(std::abs(got[std::size_t(i)] - wanted) <= allowed)) throw std::logic_error("a sum is wrong");
  }
}

/// A thread observes its own additions after it has waited for them; ordinary atomics may add to the same sum before.
__global__ void sum_read_back(float* sum, float* b) {
  __shared__ __align__(16) float line[64];
  line[threadIdx.x] = threadIdx.x;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; ++i) {
      cp_reduce_async_bulk_add(sum, line, sizeof line);
      cp_async_bulk_commit_group();
    }
  }
  atomicAdd(sum + threadIdx.x, 1.0f);
  if (threadIdx.x == 0) cp_async_bulk_wait_group<0>();
  __syncthreads();
  b[threadIdx.x] = sum[threadIdx.x];
}
void run_sum_read_back() {
  const std::vector<float> zeros(64, 0.0f);
  DeviceArray<float> sum("sum", zeros.size(), Role::scratch);
  sum.upload(std::span<const float>(zeros));
  auto b = output("b", 64);
  launch(sum_read_back, dim3(1), dim3(64), 0, sum.data(), b.data());
  expect(b, [](std::size_t i) { return 3 * i + 1; });
}

// --- wgmma -----------------------------------------------------------------------------------------------------------

/// D (64, 80) = Aᵀ Bᵀ, of A as (k, 64) and B as (80, k) in shared memory. D is declared once and is an output twice:
/// nothing remains of its previous contents.
template <class T>
struct alignas(1024) Transposed {
  T A[64][64], B[80][64];
  Mbarrier full;
  SHARED_LAYOUT(Transposed, A, B, full);
};
template <class T>
__global__ void transposed(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* b) {
  Transposed<T>& s = dynamic_shared<Transposed<T>>();
  load_operands(s, A, B);
  mbarrier_wait_parity(s.full, 0);
  const WgmmaMatrix a = wgmma_matrix(s.A, 0, 1024, Swizzle::bytes_128);
  const WgmmaMatrix c = wgmma_matrix(s.B, 0, 1024, Swizzle::bytes_128);
  Fragment<float, 40> D;
  for (int round = 0; round < 2; ++round) {
    wgmma_fence();
    for (int k = 0; k < 4; ++k) {
      const WgmmaMatrix sixteen_rows = a + k * 16 * int(sizeof s.A[0]), sixteen_columns = c + 32 * k;
      if (k == 0) {
        wgmma_mma_async<T, Major::k, Major::m>(D, sixteen_rows, sixteen_columns);
      } else {
        wgmma_mma_async<T, Major::k, Major::m>(D, sixteen_rows, sixteen_columns, true);
      }
    }
    wgmma_commit_group();
    wgmma_wait_group<0>(D);
  }
  store<80>(b, D);
}
template <class T>
void run_transposed() {
  auto A = small_numbers<T>("A", 64 * 64, 0);
  auto B = small_numbers<T>("B", 80 * 64, 11);
  auto b = output("b", 64 * 80);
  launch(transposed<T>, dim3(1), dim3(128), sizeof(Transposed<T>),
         tensor_map(A.data(), {64, 64}, {128}, {64, 64}, Swizzle::bytes_128),
         tensor_map(B.data(), {64, 80}, {128}, {64, 80}, Swizzle::bytes_128), b.data());
  expect(b, [](std::size_t i) {
    int sum = 0;
    for (int k = 0; k < 64; ++k) sum += small_number(k * 64 + int(i) / 80) * small_number(int(i) % 80 * 64 + k + 11);
    return sum;
  });
}

/// The use of dSᵀ in a backward pass. Two warpgroups hold it, 64 keys each. It is stored transposed to shared memory,
/// in two stages, and each warpgroup computes 32 columns of dQ (64, 64) = dS (64, 128) K (128, 64). It is also the
/// operand in registers of dK (64, 32) = dSᵀ (64, 64) Q (64, 32), with D an output only.
struct alignas(1024) Backward {
  half dS[2][2][64][64];  // per stage: two sections of 64 keys
  half K[2][128][32], Q[64][32];
  SHARED_LAYOUT(Backward, dS, K, Q);
};
__host__ __device__ inline int dS_at(int round, int query, int key) {
  return small_number(query * 128 + key + 5 * round) % 4;
}
/// The offset of column `column` of row `row`, with rows of 32 halves and the 64-byte swizzle.
__device__ inline int short_offset(int row, int column) {
  return (column / 8 ^ row / 2 % 4) * 8 + column % 8;
}
__global__ void backward(float* dQ, float* dK, int rounds) {
  Backward& s = dynamic_shared<Backward>();
  for (int i = threadIdx.x; i < 128 * 64; i += blockDim.x) {
    const int key = i / 64, column = i % 64;
    s.K[column / 32][key][short_offset(key, column % 32)] = __float2half(float(small_number(i)));
    if (i < 64 * 32) s.Q[i / 32][short_offset(i / 32, i % 32)] = __float2half(float(small_number(i + 3)));
  }
  fence_proxy_async();
  __syncthreads();
  const int w = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const int quad = lane / 4, in_quad = lane % 4;
  const WgmmaMatrix K = wgmma_matrix(s.K[w], 0, 512, Swizzle::bytes_64);
  const WgmmaMatrix Q = wgmma_matrix(s.Q, 0, 512, Swizzle::bytes_64);
  Fragment<float, 16> dQ_sum, dK_sum;
  for (int round = 0; round < rounds; ++round) {
    Fragment<half, 4> dS[4];  // dSᵀ: rows are this warpgroup's keys
    for (int j = 0; j < 4; ++j)
      for (int r = 0; r < 4; ++r) {
        const int key = 64 * w + 16 * warp + quad + r % 2 * 8, query = 16 * j + 2 * in_quad + r / 2 * 8;
        dS[j][r] = cvt_rn_x2<half>(float(dS_at(round, query, key)), float(dS_at(round, query + 1, key)));
      }
    const int query = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
    for (int j = 0; j < 4; ++j) stmatrix_x4_trans(&s.dS[round % 2][w][16 * j + query][(chunk ^ query % 8) * 8], dS[j]);
    fence_proxy_async();
    barrier_sync(1, 256);
    wgmma_fence();
    for (int k = 0; k < 8; ++k) {
      const WgmmaMatrix A = wgmma_matrix(s.dS[round % 2][k / 4], 0, 1024, Swizzle::bytes_128) + k % 4 * 32;
      const WgmmaMatrix sixteen_rows = K + k * 16 * int(sizeof s.K[0][0]);
      if (k == 0) {
        wgmma_mma_async<half, Major::n>(dQ_sum, A, sixteen_rows);
      } else {
        wgmma_mma_async<half, Major::n>(dQ_sum, A, sixteen_rows, true);
      }
    }
    wgmma_commit_group();
    for (int j = 0; j < 4; ++j) {
      const WgmmaMatrix sixteen_rows = Q + j * 16 * int(sizeof s.Q[0]);
      if (j == 0) {
        wgmma_mma_async<half, Major::n>(dK_sum, dS[j], sixteen_rows);
      } else {
        wgmma_mma_async<half, Major::n>(dK_sum, dS[j], sixteen_rows, true);
      }
    }
    wgmma_commit_group();
    wgmma_wait_group<1>(dQ_sum);
    wgmma_wait_group<0>(dK_sum, dS);
  }
  store<32>(dQ + w * 64 * 32, dQ_sum);
  store<32>(dK + w * 64 * 32, dK_sum);
}
template <int rounds>
void run_backward() {
  auto dQ = output("dQ", 2 * 64 * 32), dK = output("dK", 2 * 64 * 32);
  launch(backward, dim3(1), dim3(256), sizeof(Backward), dQ.data(), dK.data(), rounds);
  expect(dQ, [](std::size_t i) {
    const int query = int(i) / 32 % 64, column = int(i) / (64 * 32) * 32 + int(i) % 32;
    int sum = 0;
    for (int key = 0; key < 128; ++key) sum += dS_at(rounds - 1, query, key) * small_number(key * 64 + column);
    return sum;
  });
  expect(dK, [](std::size_t i) {
    const int key = int(i) / 32, column = int(i) % 32;
    int sum = 0;
    for (int query = 0; query < 64; ++query)
      sum += dS_at(rounds - 1, query, key) * small_number(query * 32 + column + 3);
    return sum;
  });
}

constexpr Case cases[] = {
    {"lines there and back", run_lines_there_and_back},
    {"tiles with numbers, one consumer", run_tiles_with_numbers<1, 5>},
    {"tiles with numbers, two consumers", run_tiles_with_numbers<2, 4>},
    {"additions of one block", run_additions<true, 1>},
    {"additions of five blocks", run_additions<false, 5>},
    {"additions of five blocks in a fixed order", run_additions<true, 5>},
    {"sum read back", run_sum_read_back},
    {"transposed A, fp16, n = 80", run_transposed<half>},
    {"transposed A, bf16, n = 80", run_transposed<__nv_bfloat16>},
    {"dS written by threads, one round", run_backward<1>},
    {"dS written by threads, five rounds", run_backward<5>},
};

}  // namespace

std::span<const Case> line_cases() {
  return cases;
}

std::vector<float> added_by_blocks(bool deterministic) {
  return deterministic ? sums<true, 24>() : sums<false, 24>();
}

}  // namespace zoo
