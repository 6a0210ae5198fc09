// Chapter 20's cut, its K and V in registers, and the last thread block, as operations that the tests call by name.
#include <cstdint>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "merge.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

// heads, units, blocks -> begin (blocks + 1) and block_with (heads·units), int64: the cut
void cut(const Arguments& call) {
  const ch20::Cut cut{call.integer("heads"), call.integer("units"), call.integer("blocks")};
  const auto begin = call.array<std::int64_t>("begin"), block_with = call.array<std::int64_t>("block_with");
  workbook::cuda::begin_chapter();
  for (std::size_t b = 0; b < begin.size(); ++b) begin[b] = cut.begin(std::int64_t(b));
  for (std::size_t u = 0; u < block_with.size(); ++u) block_with[u] = cut.block_with(std::int64_t(u));
}

template <int d>
__global__ void list_loaded(const half* tensor, int first_key, int end, bool values, std::uint32_t* words) {
  ch20::Registers<half, d, 1> registers;
  std::uint32_t* const lane = words + threadIdx.x * (d / 4);
  if (values) {
    ch20::load_V(registers, tensor, first_key, end);
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < d / 64; ++c)
        for (int i = 0; i < 4; ++i) lane[(r * (d / 64) + c) * 4 + i] = registers.V[r][c][i];
  } else {
    ch20::load_K(registers, tensor, first_key, end);
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < d / 32; ++c)
        for (int i = 0; i < 4; ++i) lane[(r * (d / 32) + c) * 4 + i] = registers.K[r][c][i];
  }
}

// first_key, end, d, values, skipped; tensor (end, d), 16-bit codes -> words (32, d/4), uint32: the registers of each
// lane after load_K or, if `values` is 1, load_V. `skipped` keys without memory precede the tensor's.
void loaded(const Arguments& call) {
  const auto given = call.array<std::uint16_t>("tensor");
  DeviceArray<half> tensor("tensor", given.size(), Role::input);
  tensor.upload(std::span<const std::uint16_t>(given));
  const auto d = int(call.integer("d"));
  const std::int64_t skipped = call.integer("skipped");
  DeviceArray<std::uint32_t> words("words", std::size_t(32 * d / 4), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(d == 64 ? list_loaded<64> : list_loaded<128>, dim3(1), dim3(32), 0,
                         tensor.data() - skipped * d, int(skipped + call.integer("first_key")),
                         int(skipped + call.integer("end")), call.integer("values") != 0, words.data());
  words.download(call.array<std::uint32_t>("words"));
}

/// Each `blocks` blocks write to scratch memory; the last of them adds what all have written.
__global__ void sum_in_last_block(float* written, unsigned* finished, unsigned* lasts, float* sums, unsigned blocks) {
  auto& smem = workbook::cuda::dynamic_shared<ch20::Shared<64, 2>>();
  const unsigned group = blockIdx.x / blocks, t = threadIdx.x;
  written[blockIdx.x * blockDim.x + t] = float(blockIdx.x % blocks + 1);
  if (!ch20::is_last_block(smem, finished + group, blocks)) return;
  float sum = 0;
  for (unsigned b = 0; b < blocks; ++b) sum += written[(group * blocks + b) * blockDim.x + t];
  sums[group * blockDim.x + t] = sum;
  if (t == 0) atomicAdd(lasts + group, 1u);
}

// groups, blocks, launches -> lasts, counters (groups), uint32: the blocks that were the last of their group, in all
// launches, and the counters after them; sums (groups, 64), float: of the last launch
void last(const Arguments& call) {
  const auto groups = std::size_t(call.integer("groups")), blocks = std::size_t(call.integer("blocks"));
  const auto lasts_out = call.array<std::uint32_t>("lasts"), counters_out = call.array<std::uint32_t>("counters");
  DeviceArray<float> written("written", groups * blocks * 64, Role::scratch);
  DeviceArray<unsigned> finished("finished", groups, Role::scratch), lasts("lasts", groups, Role::scratch);
  DeviceArray<float> sums("sums", groups * 64, Role::scratch);
  workbook::cuda::clear(finished.data(), groups * sizeof(unsigned));
  workbook::cuda::clear(lasts.data(), groups * sizeof(unsigned));
  workbook::cuda::clear(sums.data(), groups * 64 * sizeof(float));
  workbook::cuda::begin_chapter();
  for (std::int64_t i = 0; i < call.integer("launches"); ++i)
    workbook::cuda::launch(sum_in_last_block, dim3(unsigned(groups * blocks)), dim3(64), sizeof(ch20::Shared<64, 2>),
                           written.data(), finished.data(), lasts.data(), sums.data(), unsigned(blocks));
  lasts.download(lasts_out);
  finished.download(counters_out);
  sums.download(call.array<float>("sums"));
}

const Operations operations{{"cut", cut}, {"last", last}, {"loaded", loaded}};

}  // namespace
