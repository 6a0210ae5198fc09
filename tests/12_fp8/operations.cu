// Chapter 12's rounding as operations that the tests call by name, and the tables of `./workbook run --stage 12`: the
// errors of scores and of O.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "common/attention/random.hpp"
#include "common/cuda/backend.hpp"
#include "common/cuda/description.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/ptx_wgmma.hpp"
#include "common/cuda/worker_device.hpp"
#include "fp8.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray, workbook::cuda::Role;

// Numbers heads, N, d, rotated, transposed; x (heads, N, d), codes of fp16 -> codes (heads, N, d) or, transposed,
// (heads, d, 128·blocks), of e4m3; scales (heads, blocks)
void rounded(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  const std::int64_t heads = call.integer("heads"), N = call.integer("N");
  const int d = int(call.integer("d"));
  const DeviceArray<half> x("x", call.codes("x"));
  const std::span<std::uint8_t> codes = call.array<std::uint8_t>("codes");
  DeviceArray<ch12::E4m3> on_device("codes", codes.size(), Role::output);
  DeviceArray<float> scales("scales", call.output("scales").size(), Role::output);
  workbook::cuda::begin_chapter();
  const ch12::Rounded to{on_device.data(), scales.data()};
  if (call.flag("transposed"))
    ch12::round_and_transpose(x.data(), to, heads, N, d);
  else
    ch12::round_rows(x.data(), to, heads, N, d, call.flag("rotated"));
  on_device.download(codes);
  scales.download(call.output("scales"));
}

// -> keys (128), int32
void key_order(const Arguments& call) {
  DeviceArray<std::int32_t> keys("keys", ch12::block_rows, Role::output);
  workbook::cuda::begin_chapter();
  ch12::key_order(keys.data());
  keys.download(call.array<std::int32_t>("keys"));
}

// x (n) -> y (n), 2^x by multiply-adds
void exponentials(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  const DeviceArray<float> x("x", call.input("x"));
  DeviceArray<float> y("y", call.output("y").size(), Role::output);
  workbook::cuda::begin_chapter();
  ch12::exponentials(x.data(), y.data(), int(y.size()));
  y.download(call.output("y"));
}

// ---- The table ----

constexpr std::int64_t N = 256, d = 64;

/// One head of fp16 values on the device and on the host.
struct Given {
  std::vector<half> halves;
  std::vector<float> values;
  DeviceArray<half> on_device;

  template <class Number>
  Given(const char* name, Number number) : halves(N * d), values(N * d), on_device(name, N * d) {
    for (std::int64_t at = 0; at < N * d; ++at) {
      halves[at] = __float2half_rn(float(number(at % d)));
      values[at] = __half2float(halves[at]);
    }
    on_device.upload(std::span<const half>(halves));
  }
};

float value_of(std::uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const float magnitude = std::ldexp(float(exponent == 0 ? fraction : 8 + fraction), std::max(exponent, 1) - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

/// Codes and scales of a tensor on the device.
struct OnDevice {
  DeviceArray<ch12::E4m3> codes;
  DeviceArray<float> scales;
  OnDevice(const char* name, const char* scales_name)
      : codes(name, N * d, Role::scratch), scales(scales_name, N / ch12::block_rows, Role::scratch) {}
  ch12::Rounded rounded() { return {codes.data(), scales.data()}; }
  /// The values code · scale, (N, d).
  std::vector<float> values() const {
    std::vector<std::uint8_t> host(N * d);
    std::vector<float> host_scales(N / ch12::block_rows), result(N * d);
    codes.download(std::span(host));
    scales.download(std::span(host_scales));
    for (std::int64_t at = 0; at < N * d; ++at)
      result[at] = value_of(host[at]) * host_scales[at / d / ch12::block_rows];
    return result;
  }
};

double score(const std::vector<float>& Q, const std::vector<float>& K, std::int64_t i, std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < d; ++c) sum += double(Q[i * d + c]) * K[j * d + c];
  return sum / 8;  // √d
}
/// O in float64.
std::vector<double> attention(const std::vector<float>& Q, const std::vector<float>& K, const std::vector<float>& V) {
  std::vector<double> O(N * d), P(N);
  for (std::int64_t i = 0; i < N; ++i) {
    double largest = -INFINITY, l = 0;
    for (std::int64_t j = 0; j < N; ++j) largest = std::max(largest, P[j] = score(Q, K, i, j));
    for (double& p : P) l += p = std::exp(p - largest);
    for (std::int64_t j = 0; j < N; ++j)
      for (std::int64_t c = 0; c < d; ++c) O[i * d + c] += P[j] / l * V[j * d + c];
  }
  return O;
}

/// Root mean square errors of the scores and of O, and the lesson's bound for the scores.
struct Errors {
  double scores = 0, bound = 0, O = 0;
};
Errors errors_of(Given& Q, Given& K, Given& V, bool rotated) {
  OnDevice Q8("Q codes", "Q scales"), K8("K codes", "K scales"), V8("V codes", "V scales");
  DeviceArray<half> O("O", N * d, Role::output);
  DeviceArray<float> lse("lse", N, Role::output);
  const workbook::cuda::ForwardCall<half> call{{{1, 1, 1, N, N, d}, 0.125f, {}},
                                               Q.on_device.data(),
                                               K.on_device.data(),
                                               V.on_device.data(),
                                               O.data(),
                                               lse.data()};
  ch12::attention(call, ch12::built[1], Q8.rounded(), K8.rounded(), V8.rounded(), {.rotated = rotated});
  std::vector<half> got(N * d);
  O.download(std::span(got));
  const std::vector<float> Q_values = Q8.values(), K_values = K8.values();
  const std::vector<double> expected = attention(Q.values, K.values, V.values);
  Errors errors;
  for (std::int64_t i = 0; i < N; ++i) {
    for (std::int64_t j = 0; j < N; ++j) {
      const double is = score(Q_values, K_values, i, j) / (rotated ? d : 1);
      errors.scores += std::pow(is - score(Q.values, K.values, i, j), 2);
      for (std::int64_t c = 0; c < d; ++c)
        errors.bound += std::pow(double(Q.values[i * d + c]) * K.values[j * d + c] / 8 / 16, 2) * 2 / 3;
    }
  }
  for (std::int64_t at = 0; at < N * d; ++at) errors.O += std::pow(double(__half2float(got[at])) - expected[at], 2);
  return {std::sqrt(errors.scores / (N * N)), std::sqrt(errors.bound / (N * N)), std::sqrt(errors.O / (N * d))};
}

/// Sums 256 · 288 over `keys` keys by one warp group: the codes of P and V where all keys have the same weight and the
/// value 1.125. result (1): one sum in the tensor cores per keys_of_a_part keys.
struct alignas(1024) OneColumn {
  ch12::E4m3 V[8][32];
  SHARED_LAYOUT(OneColumn, V);
};
__global__ void add_up(float* result, int keys, int keys_of_a_part) {
  using namespace workbook::cuda;
  auto& smem = dynamic_shared<OneColumn>();
  for (int i = threadIdx.x; i < 8 * 32 / 4; i += blockDim.x)
    reinterpret_cast<std::uint32_t*>(smem.V)[i] = cvt_rn_satfinite_e4m3x4(288, 288, 288, 288);
  Fragment<ch12::E4m3, 4> P;
  for (int i = 0; i < 4; ++i) P[i] = cvt_rn_satfinite_e4m3x4(256, 256, 256, 256);
  fence_proxy_async();
  __syncthreads();
  const WgmmaMatrix V = wgmma_matrix(smem.V, 0, 256, Swizzle::bytes_32);
  Fragment<float, 4> part;
  float sum = 0;
  for (int first = 0; first < keys; first += keys_of_a_part) {
    wgmma_fence();
    for (int key = 0; key < keys_of_a_part; key += 32) wgmma_mma_async(part, P, V, key > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>(part);
    sum += part[0];
  }
  if (threadIdx.x == 0) *result = sum;
}

/// O of a row with these keys.
float long_row(int keys, int keys_of_a_part) {
  DeviceArray<float> sum("sum", 1, Role::output);
  workbook::cuda::launch(add_up, dim3(1), dim3(128), sizeof(OneColumn), sum.data(), keys, keys_of_a_part);
  float result = 0;
  sum.download(std::span(&result, 1));
  return result / 256 / (256.0f * float(keys));  // V's scale is 2^-8, and l sums P
}
std::string long_rows() {
  std::string text =
      "\\nO of keys with equal weights and the value 1.125, with one sum in the tensor cores and with one per "
      "128 keys:\\n\\n";
  char line[256];
  std::snprintf(line, sizeof line, "  %9s %12s %12s\\n", "keys", "one sum", "in parts");
  text += line;
  for (const int keys : {1024, 4096, 16384, 131072}) {
    std::snprintf(line, sizeof line, "  %9d %12.4f %12.4f\\n", keys, long_row(keys, keys), long_row(keys, 128));
    text += line;
  }
  return text;
}

// -> text: {"text": what is printed, "json": …}, as run --stage expects it
void tables(const Arguments& call) {
  workbook::cuda::require_compute(workbook::cuda::compute_capability(), 90, true);
  std::string text =
      "\\nErrors of scores and O against float64 on the same fp16 values (root mean square), N = 256, d = 64, "
      "V unit normal:\\n\\n";
  char line[256];
  std::snprintf(line, sizeof line, "  %-46s %9s %9s %9s %9s %9s\\n", "Q and K", "scores", "bound", "rotated", "O",
                "rotated");
  text += line;
  workbook::Random random(12);
  const auto add = [&](const char* what, auto q, auto k) {
    Given Q("Q", q), K("K", k), V("V", [&](std::int64_t) { return random.normal(); });
    const Errors plain = errors_of(Q, K, V, false), rotated = errors_of(Q, K, V, true);
    std::snprintf(line, sizeof line, "  %-46s %9.4f %9.4f %9.4f %9.4f %9.4f\\n", what, plain.scores, plain.bound,
                  rotated.scores, plain.O, rotated.O);
    text += line;
  };
  // Unit normal, except for one larger column.
  const auto with = [&](std::int64_t column, double factor) {
    return [=, &random](std::int64_t c) { return random.normal() * (c == column ? factor : 1); };
  };
  add("unit normal", with(0, 1), with(0, 1));
  add("one column of both 8 times as large", with(5, 8), with(5, 8));
  add("one column of both 32 times as large", with(5, 32), with(5, 32));
  add("a column of Q, another of K, 32 times as large", with(5, 32), with(9, 32));
  const auto few = [&](std::int64_t) { return random.normal() + (random.below(1000) == 0 ? 10 * random.normal() : 0); };
  add("one element in 1000 about 10 times as large", few, few);
  text += long_rows();
  workbook::cuda::answer_text(call, "{\"text\": \"" + text + "\", \"json\": {\"formats\": [], \"underflow\": []}}");
}

const Operations operations{
    {"rounded", rounded}, {"key_order", key_order}, {"exponentials", exponentials}, {"tables", tables}};

}  // namespace
