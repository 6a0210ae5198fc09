// Chapter 22's states, steps, sums and transfers, as operations that the tests call by name.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "gradient_step.hpp"
#include "rank.hpp"
#include "ring.hpp"
#include "shards.hpp"
#include "state.hpp"

#if !defined(__CUDACC__)
#include "common/simt/stream_order.hpp"
#endif

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// A call's array in device memory.
template <class T>
DeviceArray<T> uploaded(const Arguments& call, const char* name) {
  return DeviceArray<T>(name, std::span<const T>(call.array<T>(name)));
}

/// The state of a call's rows: O (rows, d), m and l (rows).
struct GivenState {
  explicit GivenState(const Arguments& call)
      : O(uploaded<float>(call, "O")), m(uploaded<float>(call, "m")), l(uploaded<float>(call, "l")) {}
  ch22::State state() { return {O.data(), m.data(), l.data()}; }
  DeviceArray<float> O, m, l;
};

template <int d>
__global__ void list_state(ch22::State state, int rows, float* O, float* m, float* l) {
  ch08::Registers<half, d> registers;
  ch22::load_state(registers, state, rows);
  const int lane = threadIdx.x;
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < 2; ++r) {
      m[(lane * 2 + i) * 2 + r] = registers.m[i][r], l[(lane * 2 + i) * 2 + r] = registers.l[i][r];
      for (int c = 0; c < d / 8; ++c)
        for (int e = 0; e < 2; ++e) O[((lane * 2 + i) * (d / 8) + c) * 4 + 2 * r + e] = registers.O[i][c][2 * r + e];
    }
}

// rows, d; O (rows, d), m, l (rows) -> lane_O (32, 2, d/8, 4), lane_m, lane_l (32, 2, 2): the registers of each lane
void load_state(const Arguments& call) {
  GivenState given(call);
  const auto d = int(call.integer("d"));
  DeviceArray<float> O("lane_O", std::size_t(32 * d), Role::output), m("lane_m", 128, Role::output),
      l("lane_l", 128, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(d == 64 ? list_state<64> : list_state<128>, dim3(1), dim3(32), 0, given.state(),
                         int(call.integer("rows")), O.data(), m.data(), l.data());
  O.download(call.output("lane_O"));
  m.download(call.output("lane_m"));
  l.download(call.output("lane_l"));
}

template <int d>
__global__ void copy_state(ch22::State from, ch22::State to, int first_row, int rows) {
  ch08::Registers<half, d> registers;
  ch22::load_state(registers, from, rows);
  ch22::store_state(registers, to, first_row, rows);
}

// first_row, rows, d; O, m, l as above -> stored_O, stored_m, stored_l, which are 0 before
void copied_state(const Arguments& call) {
  GivenState given(call);
  const auto d = int(call.integer("d")), rows = int(call.integer("rows"));
  DeviceArray<float> O("stored_O", given.O.size(), Role::output), m("stored_m", given.m.size(), Role::output),
      l("stored_l", given.l.size(), Role::output);
  for (DeviceArray<float>* array : {&O, &m, &l}) workbook::cuda::clear(array->data(), array->size() * sizeof(float));
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(d == 64 ? copy_state<64> : copy_state<128>, dim3(1), dim3(32), 0, given.state(),
                         ch22::State{O.data(), m.data(), l.data()}, int(call.integer("first_row")), rows);
  O.download(call.output("stored_O"));
  m.download(call.output("stored_m"));
  l.download(call.output("stored_l"));
}

// Nq, Nk, ranks, causal -> steps (ranks, ranks, 5), int64: source, first_query, keys, finished and causal of each
// rank's steps
void steps(const Arguments& call) {
  const auto ranks = int(call.integer("ranks"));
  const ch22::Shards shards{call.integer("Nq"), call.integer("Nk"), ranks};
  auto next = call.array<std::int64_t>("steps").begin();
  for (int rank = 0; rank < ranks; ++rank)
    for (int number = 0; number < ranks; ++number) {
      const ch22::Step step = ch22::step_of(shards, call.flag("causal"), rank, number);
      for (const std::int64_t value :
           {std::int64_t(step.source), step.first_query, step.keys, step.finished, std::int64_t(step.causal)})
        *next++ = value;
    }
}

template <class T>
__global__ void add_one_warp(const float* matrix, float* sum, float scale, int rows, bool starts) {
  ch09::Result<T::columns / 8> C;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < T::columns / 8; ++j)
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = ch09::position_in_part(threadIdx.x, e);
        C[i][j][e] = matrix[(16 * i + row) * T::columns + 8 * j + column];
      }
  ch22::add_gradient<T>(sum, C, scale, rows, starts);
}

// d, rows, starts, scale; C (32, 64), for each 64 columns; sums (rows, d), unless starts is 1 -> added (rows, d): the
// sums afterwards
void add_gradient(const Arguments& call) {
  auto C = uploaded<float>(call, "C");
  const auto d = int(call.integer("d")), rows = int(call.integer("rows"));
  const bool starts = call.flag("starts");
  DeviceArray<float> sums("sums", std::size_t((rows + int(call.integer("further"))) * d), Role::scratch);
  if (!starts) sums.upload(std::span<const float>(call.input("sums")));
  workbook::cuda::begin_chapter();
  for (int column = 0; column < d; column += 64)
    workbook::cuda::launch(
        d == 64 ? add_one_warp<ch09::Plan<64, 128, 64, 4>> : add_one_warp<ch09::Plan<128, 128, 64, 8>>, dim3(1),
        dim3(32), 0, C.data(), sums.data() + column, float(call.number("scale")), rows, starts);
  sums.download(call.output("added"));
}

#if !defined(__CUDACC__)
// The numbers of Arguments::setting(), ranks, backward -> transfers (512, 5), int64: from, to, bytes and step of each
// transfer, and 1; the rest is 0. beside (512), int64: of each receive, the kernels of its rank that run beside it, and
// 1000 for each of them that was issued before it; -1 after the last.
void transfers(const Arguments& call) {
  const workbook::Setting setting = call.setting();
  const workbook::Shape& shape = setting.shape;
  const auto ranks = int(call.integer("ranks"));
  const auto halves = [](const char* name, std::int64_t size) {
    return DeviceArray<half>(name, std::span<const std::uint16_t>(std::vector<std::uint16_t>(std::size_t(size))));
  };
  auto Q = halves("Q", shape.q_size()), K = halves("K", shape.kv_size()), V = halves("V", shape.kv_size());
  auto O = halves("O", shape.q_size());
  DeviceArray<float> lse("lse", std::span<const float>(std::vector<float>(std::size_t(shape.lse_size()))));
  simt::list_operations();
  workbook::cuda::begin_chapter();
  workbook::cuda::call_host([&] {  // its reports are the simulator's
    if (!call.flag("backward")) {
      ch22::ring_attention<half>({setting, Q.data(), K.data(), V.data(), O.data(), lse.data()}, ch22::built[1], ranks);
      return;
    }
    auto dO = halves("dO", shape.q_size()), dQ = halves("dQ", shape.q_size());
    auto dK = halves("dK", shape.kv_size()), dV = halves("dV", shape.kv_size());
    ch22::ring_backward<half>(
        {setting, Q.data(), K.data(), V.data(), O.data(), dO.data(), lse.data(), dQ.data(), dK.data(), dV.data()},
        ch22::built_backward[shape.d == 128], ranks);
  });
  const auto sent_bytes = call.array<std::int64_t>("transfers");
  std::ranges::fill(sent_bytes, 0);
  auto next = sent_bytes.begin();
  for (const simt::Transfer& sent : simt::transfers())
    for (const std::int64_t value : {std::int64_t(sent.from), std::int64_t(sent.to), std::int64_t(sent.bytes),
                                     std::int64_t(sent.step), std::int64_t(1)})
      *next++ = value;
  const std::vector<simt::IssuedOperation> all = simt::take_operations();
  auto beside = call.array<std::int64_t>("beside").begin();
  std::fill_n(beside, 512, -1);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r]->text.starts_with("ncclRecv")) continue;
    std::int64_t kernels = 0, before = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (all[k]->device != all[r]->device || all[k]->text.find("_step") == std::string::npos) continue;
      if (simt::concurrent(*all[r], *all[k])) ++kernels, before += k < r;
    }
    *beside++ = kernels + 1000 * before;
  }
}

const Operations of_the_simulator{{"transfers", transfers}};
#endif

const Operations operations{
    {"add_gradient", add_gradient}, {"copied_state", copied_state}, {"load_state", load_state}, {"steps", steps}};

}  // namespace
