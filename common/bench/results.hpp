// The results of a benchmark: points (a stage or a peer at one shape), the device's limits and the environment, as JSON
// and as CSV. Derived values follow the usual conventions. Independent of workers, chapters and CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/attention/element_type.hpp"
#include "common/attention/setting.hpp"
#include "common/worker/backend.hpp"

namespace workbook::bench {

/// A file of results that cannot be used: what() names the file and what is wrong.
class ResultsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The timed problem: one pass over one setting, Nk = N, with the usual scale.
struct Shape : Setting {
  std::string pass = "forward";  ///< or "backward"

  std::int64_t B() const { return shape.B; }
  std::int64_t H() const { return shape.H; }
  std::int64_t Hkv() const { return shape.Hkv; }
  std::int64_t Nq() const { return shape.Nq; }
  std::int64_t N() const { return shape.Nk; }
  std::int64_t d() const { return shape.d; }
  bool operator==(const Shape&) const = default;
};
/// With Nq = N queries and one K/V head per query head.
Shape shape_of(const std::string& pass, const Mask& mask, std::int64_t B, std::int64_t H, std::int64_t N,
               std::int64_t d);
/// The usual shape for N and d: B·N = 16384, H·d = 2048, at least one of each.
Shape usual_shape(const std::string& pass, const Mask& mask, std::int64_t N, std::int64_t d);

/// The pass, and the mask if there is one: for headings.
std::string pass_text(const std::string& pass, const Mask& mask);

/// FLOPs credited to the pass: forward 4·d per unmasked (query, key) pair, backward 2.5 times that. Additional work of
/// a kernel (recomputing P, masked pairs) is not credited.
double flops(const Shape& shape);
/// Median and spread of several times.
struct Times {
  double median = 0, low = 0, high = 0;  ///< seconds; low and high: the 10th and the 90th percentile
  std::int64_t runs = 0;
};
/// std::invalid_argument for an empty list.
Times summary(std::vector<double> seconds);

/// The value at x of the quadratic polynomial through three points with different x.
double parabola(const std::array<std::pair<double, double>, 3>& points, double x);

/// A stage or a peer at one shape.
struct Point {
  std::string name;    ///< "04_q_split", "SDPA FlashAttention-2"
  std::string kind;    ///< "stage", "peer", or "step": a stage without its later steps, as "03_tiled_wmma: TITLE"
  std::string source;  ///< "solutions" or "chapters"; the library for a peer
  Backend backend = Backend::cpu;
  Element element = float16;
  Shape shape;
  std::string result = "ok";  ///< "ok", or why there is no time: "out of memory", "not supported", "wrong", "todo", …
  std::string message;        ///< for a reader; empty if ok
  std::optional<Times> times;
  std::optional<double> extra_bytes;      ///< peak memory in addition to inputs and outputs
  std::optional<double> requested_bytes;  ///< from device memory by its kernels, before any cache (simulator)
  std::optional<double> unique_bytes;     ///< least traffic of its launches, including S and P (simulator)
  std::map<std::string, double> profile;  ///< the profiler's metrics, summed over the launches, by its names
  bool ok() const { return result == "ok"; }
};

/// The device's limits; absent if unknown or not measured.
struct Roofs {
  std::optional<double> peak_flops;     ///< dense fp16 matmuls, from the data sheet
  std::optional<double> product_flops;  ///< a large fp16 matmul, measured in the same run
  std::optional<double> copy_bytes;     ///< bytes per second of a large copy, reads plus writes, measured
  std::optional<double> l2_bytes;       ///< bytes per second read from L2, measured
};
/// The dense fp16 peak (fp32 accumulation) of a GPU by its name, from NVIDIA's data sheets; nothing if it is not known.
std::optional<double> peak_flops(const std::string& gpu);

/// The peer that --flash-attention-3 builds, and the environment's key with its commit; its FP8 kernel is another peer.
inline constexpr const char* kFlashAttention3 = "FlashAttention-3";
inline constexpr const char* kFlashAttention3FP8 = "FlashAttention-3 FP8, codes given";

struct Results {
  std::map<std::string, std::string> environment;  ///< "GPU" -> "NVIDIA H200", …
  Roofs roofs;
  std::vector<Point> points;
  std::vector<std::string> skipped;  ///< what could not be timed, and why

  bool on_gpu() const;    ///< whether the results include GPU times
  bool decoding() const;  ///< whether all GPU times are of one query per head and more keys, and there are some
  /// The only section of notes/results.md that this run fills; empty: all but these. For runs of decoding, and of
  /// FlashAttention-3: without groups and windows, with groups, or with windows.
  std::string own_section() const;
  /// The GPU's point, with or without a time; null if there is none.
  const Point* find(const std::string& name, const std::string& pass, const Mask& mask, std::int64_t N,
                    std::int64_t d) const;
  /// Names, in order, of the points of `kind` ("stage", "peer", or "" for both, never "step") with a time on a GPU.
  std::vector<std::string> names(const std::string& kind = "") const;
  std::vector<std::int64_t> lengths() const;    ///< all N, ascending
  std::vector<std::int64_t> head_dims() const;  ///< all d, ascending
};

// Values derived from a time.
double flops_per_second(const Point& point);
double tokens_per_second(const Point& point);  ///< B·Nq per time

/// The JSON document of notes/json.md, section bench.
nlohmann::json to_json(const Results& results);
/// The inverse of to_json(); ResultsError for anything else.
Results from_json(const nlohmann::json& document);
/// The environment as lines that begin with #, a line of column names, and one line per point.
std::string to_csv(const Results& results);

}  // namespace workbook::bench
