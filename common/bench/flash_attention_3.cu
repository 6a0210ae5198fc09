// FlashAttention-3's kernels for Hopper with the interface of peers.py, without PyTorch's C++ part. Compiled against
// the folder hopper/ of a checkout (flash_attention_3.cpp). The parameters are those that its hopper/flash_api.cpp
// sets. It is compiled for one of two libraries: with FLASHATTENTION_DISABLE_SPLIT for Nq = Nk, without it for
// decoding. For Nq = Nk, the kernels that pack the heads of a group into one tile are left out: they are selected only
// if Nq is short.
#include <cuda_runtime.h>
#include <cutlass/numeric_types.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <flash.h>
#include <heuristics.h>
#include <tile_size.h>
#ifndef FLASHATTENTION_DISABLE_SPLIT
#include <flash_fwd_combine_launch_template.h>
#endif

namespace {

int rounded_up(int n, int multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Those of a forward pass, as part of those of a backward pass. sizes: heads, kv_heads, Nq, Nk, d, left, right.
Flash_bwd_params parameters(const void* Q, const void* K, const void* V, const void* O, const void* LSE,
                            const int* sizes, float scale) {
  const int heads = sizes[0], kv_heads = sizes[1], Nq = sizes[2], Nk = sizes[3], d = sizes[4];
  const int left = sizes[5] >= Nk - 1 ? -1 : sizes[5], right = sizes[6] >= Nq - 1 ? -1 : sizes[6];
  Flash_bwd_params p;
  std::memset(static_cast<void*>(&p), 0, sizeof p);
  p.q_ptr = const_cast<void*>(Q), p.k_ptr = const_cast<void*>(K), p.v_ptr = const_cast<void*>(V);
  p.o_ptr = const_cast<void*>(O), p.softmax_lse_ptr = const_cast<void*>(LSE);
  p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = d, p.v_dim_stride = 1;
  p.q_head_stride = p.o_head_stride = int64_t(Nq) * d, p.k_head_stride = p.v_head_stride = int64_t(Nk) * d;
  p.q_batch_stride = p.o_batch_stride = heads * p.q_head_stride;
  p.k_batch_stride = p.v_batch_stride = kv_heads * p.k_head_stride;
  p.b = p.b_k = 1, p.h = heads, p.h_k = kv_heads, p.seqlen_q = p.total_q = Nq, p.seqlen_k = p.total_k = Nk;
  p.seqlen_q_rounded = rounded_up(Nq, 128), p.seqlen_k_rounded = rounded_up(Nk, 128);
  p.d = p.dv = p.d_rounded = p.dv_rounded = d;
  p.scale_softmax = scale, p.p_dropout = p.rp_dropout = 1, p.p_dropout_in_uint8_t = 255;
  p.is_causal = left < 0 && right == 0, p.is_local = (left >= 0 || right >= 0) && !p.is_causal;
  p.window_size_left = left < 0 ? Nk - 1 : left, p.window_size_right = right < 0 ? Nq - 1 : right;
  p.num_splits = 1, p.arch = 90;
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&p.num_sm, cudaDevAttrMultiProcessorCount, device);
  return p;
}

#ifdef FLASHATTENTION_DISABLE_SPLIT

template <class Element>
int run_forward(Flash_bwd_params& p, cudaStream_t stream) {
  static int* semaphore = nullptr;  // its scheduler counts tiles here
  if (semaphore == nullptr) cudaMalloc(&semaphore, sizeof(int));
  p.tile_count_semaphore = semaphore;
  if (p.is_causal || p.is_local) cudaMemsetAsync(semaphore, 0, sizeof(int), stream);
  if (p.d == 64)
    run_mha_fwd_<90, Element, 64, 64, false, false, false, false>(p, stream);
  else if (p.d == 128)
    run_mha_fwd_<90, Element, 128, 128, false, false, false, false>(p, stream);
  else
    return cudaErrorNotSupported;
  return cudaGetLastError();
}

}  // namespace

extern "C" int forward(const void* Q, const void* K, const void* V, void* O, float* LSE, const int* sizes, float scale,
                       cudaStream_t stream) {
  Flash_bwd_params p = parameters(Q, K, V, O, LSE, sizes, scale);
  return run_forward<cutlass::half_t>(p, stream);
}

extern "C" int forward_fp8(const void* Q, const void* K, const void* V, void* O, float* LSE, float* Q_scales,
                           float* K_scales, float* V_scales, const int* sizes, float scale, cudaStream_t stream) {
  Flash_bwd_params p = parameters(Q, K, V, O, LSE, sizes, scale);
  p.is_e4m3 = true;
  p.q_descale_ptr = Q_scales, p.k_descale_ptr = K_scales, p.v_descale_ptr = V_scales;
  p.q_descale_head_stride = p.k_descale_head_stride = p.v_descale_head_stride = 1;
  return run_forward<cutlass::float_e4m3_t>(p, stream);
}

extern "C" int backward(const void* Q, const void* K, const void* V, const void* O, const void* dO, const float* LSE,
                        void* dQ, void* dK, void* dV, float* workspace, const int* sizes, float scale,
                        cudaStream_t stream) {
  Flash_bwd_params p = parameters(Q, K, V, O, LSE, sizes, scale);
  p.do_ptr = const_cast<void*>(dO), p.dq_ptr = dQ, p.dk_ptr = dK, p.dv_ptr = dV;
  p.do_row_stride = p.dq_row_stride = p.dk_row_stride = p.dv_row_stride = p.d;
  p.do_head_stride = p.dq_head_stride = p.q_head_stride, p.dk_head_stride = p.dv_head_stride = p.k_head_stride;
  p.do_batch_stride = p.dq_batch_stride = p.q_batch_stride, p.dk_batch_stride = p.dv_batch_stride = p.k_batch_stride;
  p.seqlen_q_rounded = rounded_up(p.seqlen_q, p.d == 64 ? 128 : p.is_causal || p.is_local ? 64 : 80);  // rows of a tile
  const size_t rows = size_t(p.h) * p.seqlen_q_rounded, keys = size_t(p.h_k) * p.seqlen_k_rounded;
  p.dsoftmax_sum = workspace, p.softmax_lse_log2_ptr = workspace + rows;
  p.dq_semaphore = reinterpret_cast<int*>(workspace + 2 * rows);
  p.dq_accum_ptr = workspace + 3 * rows;
  if (p.h != p.h_k) {  // dK and dV are sums over the heads of a group
    float* sums = workspace + rows * (3 + p.d);
    p.dk_accum_ptr = sums, p.dv_accum_ptr = sums + keys * p.d;
    cudaMemsetAsync(sums, 0, 2 * keys * p.d * sizeof(float), stream);
  }
  if (p.d == 64)
    run_mha_bwd_<90, cutlass::half_t, 64, false>(p, stream);
  else if (p.d == 128)
    run_mha_bwd_<90, cutlass::half_t, 128, false>(p, stream);
  else
    return cudaErrorNotSupported;
  return cudaGetLastError();
}

#else

template <int d>
int run_decoding(Flash_bwd_params& p, cudaStream_t stream) {
  constexpr auto tile = tile_size_fwd_sm90(d, d, /*is_causal=*/false, /*is_local=*/false);
  constexpr int tile_rows = std::get<0>(tile), tile_keys = std::get<1>(tile);
  const int group = p.h / p.h_k, rows = rounded_up(group * p.seqlen_q, tile_rows) / tile_rows;
  p.num_splits = num_splits_heuristic(p.b * p.h_k * rows, p.num_sm, rounded_up(p.seqlen_k, tile_keys) / tile_keys, rows,
                                      p.seqlen_k * 2 * d * 2, /*is_causal_or_local=*/false, /*max_splits=*/128);
  p.pack_gqa = p.num_splits > 1 || (group > 1 && should_pack_gqa(/*varlen_q=*/false, p.seqlen_q, group, tile_rows));
  if (p.num_splits == 1) {
    if (p.pack_gqa)
      run_mha_fwd_<90, cutlass::half_t, d, d, false, false, false, true>(p, stream);
    else
      run_mha_fwd_<90, cutlass::half_t, d, d, false, false, false, false>(p, stream);
    return cudaGetLastError();
  }
  static float* partial = nullptr;  // O and LSE of each split; the largest so far
  static size_t size = 0;
  p.oaccum_row_stride = d, p.oaccum_head_stride = int64_t(p.seqlen_q) * d, p.lseaccum_head_stride = p.seqlen_q;
  p.oaccum_batch_stride = p.h * p.oaccum_head_stride, p.lseaccum_batch_stride = p.h * p.lseaccum_head_stride;
  p.oaccum_split_stride = p.b * p.oaccum_batch_stride, p.lseaccum_split_stride = p.b * p.lseaccum_batch_stride;
  const size_t outputs = size_t(p.num_splits) * p.oaccum_split_stride;
  if (const size_t all = outputs + p.num_splits * p.lseaccum_split_stride; all > size) {
    cudaFree(partial);
    if (const cudaError_t error = cudaMalloc(&partial, all * sizeof(float)); error != cudaSuccess) return error;
    size = all;
  }
  p.oaccum_ptr = partial, p.softmax_lseaccum_ptr = partial + outputs;
  run_mha_fwd_<90, cutlass::half_t, d, d, true, false, false, true>(p, stream);
  run_mha_fwd_combine_<cutlass::half_t, float, d>(p, stream, /*enable_pdl=*/true);
  return cudaGetLastError();
}

}  // namespace

extern "C" int forward_decoding(const void* Q, const void* K, const void* V, void* O, float* LSE, const int* sizes,
                                float scale, cudaStream_t stream) {
  Flash_bwd_params p = parameters(Q, K, V, O, LSE, sizes, scale);
  if (p.is_causal || p.is_local || p.seqlen_q != 1) return cudaErrorNotSupported;
  p.b = p.b_k = sizes[7], p.h /= p.b, p.h_k /= p.b;
  p.q_batch_stride /= p.b, p.o_batch_stride /= p.b, p.k_batch_stride /= p.b, p.v_batch_stride /= p.b;
  return p.d == 64 ? run_decoding<64>(p, stream) : p.d == 128 ? run_decoding<128>(p, stream) : cudaErrorNotSupported;
}

#endif
