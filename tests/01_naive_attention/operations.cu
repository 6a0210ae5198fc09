// Chapter 1's given GPU version as an operation that the tests call by name.
#include <cstddef>
#include <span>

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/bench.hpp"
#include "common/cuda/memory.hpp"
#include "common/worker/operations.hpp"
#include "naive_attention_gpu.hpp"

namespace {

using workbook::cuda::AttentionTensors, workbook::cuda::DeviceArray, workbook::cuda::Role;
using workbook::worker::Arguments, workbook::worker::Operation;

// The stage on these tensors. S and P are extra memory.
template <class Tensors>
void attend(const Arguments& call, Tensors& t, DeviceArray<float>& S, DeviceArray<half>& P) {
  ch01::naive_attention({call.shape(), float(call.number("scale")), call.flag("causal"), t.Q.data(), t.K.data(),
                         t.V.data(), t.O.data(), t.lse.data(), S.data(), P.data()});
}

std::size_t scores(const workbook::Shape& shape) {
  return std::size_t(shape.lse_size() * ch01::score_stride(shape.Nk));
}

/// S or P, of `size` elements. A call that they are too large for is refused, not failed.
template <class T>
DeviceArray<T> scratch(const char* name, std::size_t size) {
  try {
    return DeviceArray<T>(name, size, Role::scratch);
  } catch (const workbook::cuda::Error& error) {
    throw workbook::worker::Refused(error.what());
  }
}

// The numbers of Arguments::shape(), scale, causal; Q, K, V as 16-bit codes -> O as codes, lse.
void forward(const Arguments& call) {
  AttentionTensors<half> tensors(call);
  tensors.count_tiles(call.shape(), 64, 64);  // those of naive_attention.cu
  DeviceArray<float> S = scratch<float>("S", scores(call.shape()));
  DeviceArray<half> P = scratch<half>("P", scores(call.shape()));
  attend(call, tensors, S, P);
  tensors.download(call);
}

// See common/cuda/bench.hpp.
void bench(const Arguments& call) {
  workbook::cuda::StageTimer<workbook::cuda::ForwardTensors<half>> timer(call);
  DeviceArray<float> S = scratch<float>("S", scores(call.shape()));
  DeviceArray<half> P = scratch<half>("P", scores(call.shape()));
  timer.time([&](auto& tensors) { attend(call, tensors, S, P); });
}

constexpr Operation table[] = {{"forward", forward}, {"bench", bench}};

}  // namespace

std::span<const Operation> workbook::worker::operations() {
  return table;
}
