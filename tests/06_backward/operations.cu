// Chapter 6's kernels, and its naive backward, as operations that the tests call by name.
#include <cstdint>
#include <optional>
#include <span>

#include "atomic_backward.hpp"
#include "backward.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/bench.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/unobserved.hpp"
#include "common/cuda/worker_device.hpp"
#include "common/worker/operations.hpp"
#include "naive_backward.hpp"

namespace {

using workbook::cuda::DeviceArray, workbook::cuda::GradientTensors, workbook::cuda::Role;
using workbook::worker::Arguments, workbook::worker::Operation;

/// The chapter's call on the tensors of a worker's.
template <class Gradient, class Tensors>
ch06::DeviceCall<half, Gradient> device_call(const Arguments& call, Tensors& t, DeviceArray<float2>& rows) {
  return {call.shape(),        float(call.number("scale")),
          call.flag("causal"), t.Q.data(),
          t.K.data(),          t.V.data(),
          t.O.data(),          t.dO.data(),
          t.lse.data(),        t.dQ.data(),
          t.dK.data(),         t.dV.data(),
          rows.data()};
}

// The arrays of BackwardCall, floats. On the CPU, whatever the backend is.
void naive_backward(const Arguments& call) {
  ch06::naive_backward({call.shape(), float(call.number("scale")), call.flag("causal"), call.input("Q"),
                        call.input("K"), call.input("V"), call.input("O"), call.input("dO"), call.input("lse"),
                        call.output("dQ"), call.output("dK"), call.output("dV")});
}

// O, dO (B, H, Nq, d) as 16-bit codes, lse (B, H, Nq) -> rows (B, H, Nq, 2), floats
void prepare_rows(const Arguments& call) {
  const DeviceArray<half> O("O", std::span<const std::uint16_t>(call.array<std::uint16_t>("O"))),
      dO("dO", std::span<const std::uint16_t>(call.array<std::uint16_t>("dO")));
  const DeviceArray<float> lse("lse", call.input("lse"));
  DeviceArray<float2> rows("rows", lse.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch06::DeviceCall<half> device{};
  device.shape = call.shape();
  device.O = O.data(), device.dO = dO.data(), device.lse = lse.data(), device.rows = rows.data();
  ch06::prepare_rows(device);
  rows.download(call.array<double>("rows"));  // pairs of floats as 8 bytes
}

/// Device memory that the chapter needs beside a call's tensors.
struct Scratch {
  Scratch(const workbook::Shape& shape, bool atomic) : rows("rows", std::size_t(shape.lse_size()), Role::scratch) {
    if (atomic) dQ_sum.emplace("dQ_sum", std::size_t(ch06::dQ_sum_size(shape)), Role::scratch);
  }
  DeviceArray<float2> rows;
  std::optional<DeviceArray<float>> dQ_sum;
};

/// The chapter's kernels, or with the number atomic = 1 the variant that adds dQ by atomics.
bool is_atomic(const Arguments& call) {
  return call.integer("atomic", 0) != 0;
}
template <class Gradient, class Tensors>
void differentiate(const Arguments& call, Tensors& t, Scratch& scratch) {
  const ch06::DeviceCall<half, Gradient> device = device_call<Gradient>(call, t, scratch.rows);
  if (is_atomic(call)) return ch06::atomic_backward(device, scratch.dQ_sum->data());
  ch06::backward(device, {int(call.integer("warps", 0)), int(call.integer("team", 0))});
}

template <class Gradient>
void backward_to(const Arguments& call) {
  const workbook::cuda::Unobserved unobserved(call.integer("unobserved", 0) != 0);
  GradientTensors<half, Gradient> tensors(call);
  if (call.has("count_tiles")) tensors.count_tiles(call.shape(), call.integer("count_tiles"));
  Scratch scratch(call.shape(), is_atomic(call));
  differentiate<Gradient>(call, tensors, scratch);
  tensors.download(call);
}

// The numbers of Arguments::shape(), scale, causal; warps, team; atomic; float_gradients; unobserved; count_tiles: rows
// of the tiles that reads are counted in. Q, K, V, O, dO as 16-bit codes, lse -> dQ, dK, dV as codes, or floats.
void backward(const Arguments& call) {
  const workbook::cuda::Unobserved unobserved(call.integer("unobserved", 0) != 0);
  if (call.integer("float_gradients", 0) != 0) return backward_to<float>(call);
  backward_to<half>(call);
}

// See common/cuda/bench.hpp.
void bench(const Arguments& call) {
  workbook::cuda::StageTimer<workbook::cuda::BackwardTensors<half>> timer(call);
  Scratch scratch(call.shape(), is_atomic(call));
  timer.time([&](auto& t) { differentiate<half>(call, t, scratch); });
}

constexpr Operation table[] = {
    {"naive_backward", naive_backward},
    {"prepare_rows", prepare_rows},
    {"backward", backward},
    {"bench", bench},
};

}  // namespace

std::span<const Operation> workbook::worker::operations() {
  return table;
}
