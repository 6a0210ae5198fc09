// Chapter 4's division of the work, and its lab, as operations that tests and trace call by name.
#include <cstdint>

#include "common/cuda/forward_operation.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "lab.hpp"
#include "phases.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;

__global__ void work_kernel(std::int64_t* work,  // (3)
                            int block, int warp, int q_tiles, std::int64_t Nq) {
  const ch04::Work warp_work = ch04::work_of<128>(block, warp, q_tiles, Nq);
  work[0] = warp_work.head, work[1] = warp_work.first_query, work[2] = warp_work.rows;
}

// block, warp, q_tiles, Nq -> work (3), int64: the warp's head, first query and rows, where Br = 128
void work(const Arguments& call) {
  workbook::cuda::DeviceArray<std::int64_t> work("work", 3, workbook::cuda::Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(work_kernel, dim3(1), dim3(1), 0, work.data(), int(call.integer("block")),
                         int(call.integer("warp")), int(call.integer("q_tiles")), call.integer("Nq"));
  work.download(call.array<std::int64_t>("work"));
}

// Q, K, V, codes of fp16, d = 64 -> O, codes, and lse
void lab(const Arguments& call) {
  workbook::cuda::run_forward<half>(call, 64, /*causal=*/false, ch04::lab);
}

const Operations operations{{"work", work}, {"lab", lab}};

}  // namespace
