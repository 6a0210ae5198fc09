// Chapter 8's kernel as a stage, given: what it is built for, and how to start it. That for bf16 is started by
// tests/08_registers/operations.cu.
#include "common/cuda/stage.hpp"

#include "registers.hpp"

namespace ch08 {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = shared_bytes,
    .compute = 80,  // mma.m16n8k16 and cp.async
    .rows_per_warp = 32,
    .keys_per_step = [](int, const Tiles& tiles) { return tiles.Bc; },
    .slack = slack * 0.6931471805599453f,
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { registers(call, tiles); },
};

}  // namespace
}  // namespace ch08
