// Chapter 1 on the CPU as a stage, given.
#include "common/cuda/cpu_stage.hpp"
#include "naive_attention.hpp"

namespace ch01 {
namespace {

const workbook::cuda::CpuStage stage = workbook::cuda::CpuForwardStage{
    .serves = {.shared_heads = true},
    .compute = [](const workbook::AttentionCall& call, const workbook::cuda::Tiles&) { attention(call); },
};

}  // namespace
}  // namespace ch01
