// A large matmul by cuBLAS: the speed that this device's tensor cores reach in practice. A separate worker, the only
// one that needs cuBLAS. Compiled by nvcc only.
#include <cublas_v2.h>

#include <cstddef>
#include <span>
#include <string>

#include "common/cuda/bench.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray;

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw workbook::cuda::Error(std::string("cuBLAS: ") + cublasGetStatusString(status));
  }
}

struct Handle {
  cublasHandle_t handle = nullptr;
  Handle() { check(cublasCreate(&handle)); }
  ~Handle() { cublasDestroy(handle); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

// n -> seconds: C = A·B, (n, n) each, fp16 with fp32 accumulation
void product(const Arguments& call) {
  const auto n = int(call.integer("n"));
  const auto size = std::size_t(n) * std::size_t(n);
  DeviceArray<half> A("A", size), B("B", size), C("C", size);
  workbook::cuda::bench_detail::fill(A, 1, 1.0f);
  workbook::cuda::bench_detail::fill(B, 2, 1.0f);
  const Handle cublas;
  const float one = 1, zero = 0;
  workbook::cuda::time_calls(call, [&](int) {
    check(cublasGemmEx(cublas.handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, A.data(), CUDA_R_16F, n, B.data(),
                       CUDA_R_16F, n, &zero, C.data(), CUDA_R_16F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  });
}

const Operations table{{"product", product}};

}  // namespace
