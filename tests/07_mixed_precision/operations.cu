// Chapter 7's functions as operations that the tests call by name.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "bf16.hpp"
#include "blank_page.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/unobserved.hpp"
#include "common/cuda/worker_device.hpp"
#include "formats.hpp"
#include "loss_scaler.hpp"
#include "master_weights.hpp"
#include "unscale.hpp"

#if defined(__CUDACC__)
#include <cuda_fp8.h>
#include <mma.h>
#endif

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray, workbook::cuda::Role;

ch07::Format format_of(const Arguments& call) {
  return {"", int(call.integer("exponent_bits")), int(call.integer("mantissa_bits")), call.flag("has_infinity")};
}

// exponent_bits, mantissa_bits, has_infinity, ties_to_away, saturate; x (n) -> codes (n), int32
void encode(const Arguments& call) {
  const ch07::Format format = format_of(call);
  const auto rounding = call.flag("ties_to_away") ? ch07::Rounding::ties_to_away : ch07::Rounding::to_even;
  const auto overflow = call.flag("saturate") ? ch07::Overflow::saturate : ch07::Overflow::to_infinity;
  const auto x = call.input("x");
  const auto codes = call.array<std::int32_t>("codes");
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = std::int32_t(ch07::encode(x[i], format, rounding, overflow));
}

// exponent_bits, mantissa_bits, has_infinity; codes (n), int32 -> x (n)
void decode(const Arguments& call) {
  const ch07::Format format = format_of(call);
  const auto codes = call.array<std::int32_t>("codes");
  const auto x = call.output("x");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = ch07::decode(std::uint32_t(codes[i]), format);
}

// -> numbers (5, 7), double: bits, exponent bits, mantissa bits, largest, smallest normal, smallest subnormal, epsilon
// of fp16, bf16, TF32, E4M3, E5M2
void ranges(const Arguments& call) {
  const auto numbers = call.array<double>("numbers");
  std::size_t i = 0;
  for (const ch07::Format& format : {ch07::fp16, ch07::bf16, ch07::tf32, ch07::e4m3, ch07::e5m2}) {
    const ch07::Range range = ch07::range_of(format);
    for (const double number : {double(format.bits()), double(format.exponent_bits), double(format.mantissa_bits),
                                range.largest, range.smallest_normal, range.smallest_subnormal, range.epsilon})
      numbers[i++] = number;
  }
}

/// fp16's code by CUDA's conversion, independent of the exercises.
std::uint16_t code_of(float value) {
  const half rounded = __float2half(value);
  return __half_as_ushort(rounded);
}

// scale; gradients (n) of the loss, in fp32 -> given (n): what the optimiser was given, if it was called;
// facts (4), double: whether the step was taken, calls of the optimiser, calls of the backward pass, scale it was given
void scaled_step(const Arguments& call) {
  const auto gradients = call.input("gradients");
  const auto given = call.output("given");
  const auto facts = call.array<double>("facts");
  std::fill(facts.begin(), facts.end(), 0.0);
  const auto backward = [&](float scale, std::span<std::uint16_t> scaled) {
    facts[2] += 1;
    facts[3] = scale;
    for (std::size_t i = 0; i < std::min(scaled.size(), gradients.size()); ++i)
      scaled[i] = code_of(scale * gradients[i]);
  };
  const auto optimiser = [&](std::span<const float> unscaled) {
    facts[1] += 1;
    std::copy_n(unscaled.begin(), std::min(unscaled.size(), given.size()), given.begin());
  };
  facts[0] = ch07::scaled_step(float(call.number("scale")), std::int64_t(gradients.size()), backward, optimiser);
}

// initial, growth, backoff, growth_interval; bad (n), int32: 1 for a step with a gradient that is not finite
// -> scales (n), good_steps (n), int32: after each step
void scaler(const Arguments& call) {
  ch07::DynamicScaler scaler(
      {call.number("initial"), call.number("growth"), call.number("backoff"), call.integer("growth_interval")});
  const auto bad = call.array<std::int32_t>("bad"), good_steps = call.array<std::int32_t>("good_steps");
  const auto scales = call.output("scales");
  for (std::size_t i = 0; i < bad.size(); ++i) {
    scaler.update(bad[i] != 0);
    scales[i] = scaler.scale();
    good_steps[i] = std::int32_t(scaler.good_steps());
  }
}

// scale, flag: what the flag holds before; scaled (n), codes -> unscaled (n), found (1), int32
void unscale(const Arguments& call) {
  const workbook::cuda::Unobserved unobserved(call.integer("unobserved", 0));
  const DeviceArray<half> scaled("scaled", call.codes("scaled"));
  DeviceArray<float> unscaled("unscaled", scaled.size(), Role::output);
  DeviceArray<std::int32_t> found("found", 1, Role::scratch);
  const std::int32_t flag = std::int32_t(call.integer("flag"));
  found.upload(std::span(&flag, 1));
  workbook::cuda::begin_chapter();
  ch07::unscale(scaled.data(), unscaled.data(), std::int64_t(scaled.size()), float(call.number("scale")), found.data());
  unscaled.download(call.output("unscaled"));
  found.download(call.array<std::int32_t>("found"));
}

/// Weights in device memory, with the state of the optimiser.
struct DeviceWeights {
  DeviceWeights(std::span<const float> start, std::span<const float> momentum_values)
      : master("master", start),
        momentum("momentum", momentum_values),
        weights("weights", start.size(), Role::scratch) {
    std::vector<std::uint16_t> copies(start.size());
    for (std::size_t i = 0; i < start.size(); ++i) copies[i] = code_of(start[i]);
    weights.upload(std::span<const std::uint16_t>(copies));
  }
  void update(std::span<const float> gradient_values, float rate, float decay, std::int32_t flag) {
    const DeviceArray<float> gradients("gradients", gradient_values);
    const DeviceArray<std::int32_t> found("found", std::span<const std::int32_t>(&flag, 1));
    workbook::cuda::begin_chapter();
    ch07::update_weights(master.data(), momentum.data(), weights.data(), gradients.data(),
                         std::int64_t(gradients.size()), rate, decay, found.data());
  }
  DeviceArray<float> master, momentum;
  DeviceArray<half> weights;
};

// learning_rate, decay, steps, flag; master, momentum, gradients (n)
// -> master_out, momentum_out (n), weights (n), codes: after `steps` updates
void update_weights(const Arguments& call) {
  DeviceWeights all(call.input("master"), call.input("momentum"));
  for (std::int64_t step = 0; step < call.integer("steps"); ++step)
    all.update(call.input("gradients"), float(call.number("learning_rate")), float(call.number("decay")),
               std::int32_t(call.integer("flag")));
  all.master.download(call.output("master_out"));
  all.momentum.download(call.output("momentum_out"));
  all.weights.download(call.array<std::uint16_t>("weights"));
}

// x (n) -> codes (n) of bf16
void to_bf16(const Arguments& call) {
  const DeviceArray<float> x("x", call.input("x"));
  DeviceArray<__nv_bfloat16> rounded("rounded", x.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch07::cast(x.data(), rounded.data(), std::int64_t(x.size()));
  rounded.download(call.array<std::uint16_t>("codes"));
}

// x (n), random (n), int32 -> codes (n) of bf16
void to_bf16_stochastic(const Arguments& call) {
  const DeviceArray<float> x("x", call.input("x"));
  const auto bits = call.array<std::int32_t>("random");
  const DeviceArray<std::uint32_t> random("random", std::span<const std::int32_t>(bits));
  DeviceArray<__nv_bfloat16> rounded("rounded", x.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch07::cast_stochastically(x.data(), random.data(), rounded.data(), std::int64_t(x.size()));
  rounded.download(call.array<std::uint16_t>("codes"));
}

// codes (n) of bf16 -> x (n)
void to_float(const Arguments& call) {
  const DeviceArray<__nv_bfloat16> rounded("rounded", call.codes("codes"));
  DeviceArray<float> x("x", rounded.size(), Role::output);
  workbook::cuda::begin_chapter();
  ch07::cast(rounded.data(), x.data(), std::int64_t(x.size()));
  x.download(call.output("x"));
}

// initial, growth_interval, learning_rate, steps; target (n)
// -> master (n), scales (steps), taken (steps), int32: everything together on the loss sum of (w - target)² / 2
void train(const Arguments& call) {
  const auto target = call.input("target");
  const auto scales = call.output("scales");
  const auto taken = call.array<std::int32_t>("taken");
  const std::vector<float> zeros(target.size(), 0);
  DeviceWeights all(zeros, zeros);
  ch07::DynamicScaler scaler({call.number("initial"), 2, 0.5, call.integer("growth_interval")});
  for (std::size_t step = 0; step < scales.size(); ++step) {
    scales[step] = scaler.scale();
    const auto backward = [&](float scale, std::span<std::uint16_t> scaled) {
      std::vector<std::uint16_t> weights(target.size());
      all.weights.download(std::span(weights));
      for (std::size_t i = 0; i < scaled.size(); ++i)
        scaled[i] = code_of(scale * (__half2float(__ushort_as_half(weights[i])) - target[i]));
    };
    const auto optimiser = [&](std::span<const float> gradients) {
      all.update(gradients, float(call.number("learning_rate")), 0, 0);
    };
    const bool good = ch07::scaled_step(scaler.scale(), std::int64_t(target.size()), backward, optimiser);
    taken[step] = good;
    scaler.update(!good);
  }
  all.master.download(call.output("master"));
}

// B, H, Nq, Nk, scale; Q, K, V, codes of fp16, d = 64 -> O, codes, and lse
void blank_page(const Arguments& call) {
  workbook::cuda::AttentionTensors<half> t(call);
  const std::int64_t B = call.integer("B"), H = call.integer("H"), Nq = call.integer("Nq"), Nk = call.integer("Nk");
  ch07::blank_page({{{B, H, H, Nq, Nk, 64}, float(call.number("scale")), {}},
                    t.Q.data(),
                    t.K.data(),
                    t.V.data(),
                    t.O.data(),
                    t.lse.data()});
  t.download(call);
}

#if defined(__CUDACC__)

// The formats in the order of ranges(); 5 and 6 are FP8 without saturation.
__global__ void toolkit_kernel(const float* x, int* codes, std::int64_t n, int format) {
  const std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  unsigned bits = 0;
  if (format == 0) bits = __half_as_ushort(__float2half(x[i]));
  if (format == 1) bits = __bfloat16_as_ushort(__float2bfloat16(x[i]));
  if (format == 2) bits = __float_as_uint(nvcuda::wmma::__float_to_tf32(x[i])) >> 13;
  if (format == 3) bits = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
  if (format == 4) bits = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E5M2);
  if (format == 5) bits = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E4M3);
  if (format == 6) bits = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
  codes[i] = int(bits);
}

// format; x (n) -> codes (n), int32: by the conversions that CUDA comes with
void toolkit(const Arguments& call) {
  const DeviceArray<float> x("x", call.input("x"));
  DeviceArray<std::int32_t> codes("codes", x.size(), Role::output);
  const std::int64_t n = std::int64_t(x.size());
  workbook::cuda::launch(toolkit_kernel, dim3((n + 255) / 256), dim3(256), 0, x.data(), codes.data(), n,
                         int(call.integer("format")));
  codes.download(call.array<std::int32_t>("codes"));
}

#else

// format; x (n) -> codes (n), int32: by the simulator's conversions, which has those of fp16 (0) and bf16 (1)
void toolkit(const Arguments& call) {
  const auto x = call.input("x");
  const auto codes = call.array<std::int32_t>("codes");
  const bool is_fp16 = call.integer("format") == 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] = is_fp16 ? code_of(x[i]) : __bfloat16_as_ushort(__float2bfloat16(x[i]));
}

#endif

const Operations table{
    {"encode", encode},         {"decode", decode},
    {"ranges", ranges},         {"scaled_step", scaled_step},
    {"scaler", scaler},         {"unscale", unscale},
    {"train", train},           {"update_weights", update_weights},
    {"toolkit", toolkit},       {"to_bf16", to_bf16},
    {"to_float", to_float},     {"to_bf16_stochastic", to_bf16_stochastic},
    {"blank_page", blank_page},
};

}  // namespace
