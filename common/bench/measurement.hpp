// The state of one benchmark run: the request, what has been built for it, and the results so far. The measuring parts
// operate on it, each in its own file. Only common/bench includes this header.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/bench/measure.hpp"
#include "common/bench/steps.hpp"
#include "common/worker/build.hpp"
#include "common/worker/worker.hpp"

namespace workbook::bench {

struct Measurement {
  Measurement(const judge::Workspace& workspace, const MeasureRequest& request);

  const judge::Workspace& workspace;
  const MeasureRequest& request;
  std::vector<const book::Chapter*> chapters;
  bool gpu = false;            ///< a GPU exists, and kernels can be compiled for it
  bool counts = false;         ///< the simulator counts requested bytes
  bool found_variant = false;  ///< whether a stage has the variant that MeasureRequest::numbers selects
  std::vector<Variant> variants;
  std::map<std::string, worker::WorkerBuilt> built;
  Results results;

  /// Records once that something was not measured, and why.
  void skip(const std::string& what);
  /// Builds everything that is measured, in one build.
  void build();

  // The request.
  bool wants_pass(const std::string& pass) const { return request.pass == "both" || request.pass == pass; }
  /// Whether the chapter has a stage on this backend for a requested element.
  bool is_wanted(const book::Chapter& chapter, Backend backend) const;
  std::vector<Mask> masks() const;
  std::vector<std::int64_t> lengths() const;
  /// A shape with the requested number of queries and of query heads per K/V head.
  Shape requested_shape(Shape shape) const;
  /// The shapes that are timed on a GPU in this pass, with the requested batch size and heads.
  std::vector<Shape> gpu_shapes(const std::string& pass, const std::vector<Mask>& served) const;
  /// The backends on which this machine measures the chapter.
  std::vector<Backend> backends_of(const book::Chapter& chapter) const;
  /// The stages of a chapter, including those of other chapters whose kernels it compiles again.
  std::vector<std::string> passes_of(const book::Chapter& chapter) const;
  /// False, with one skipped line, if the request has shared K/V heads and the chapter does not support them.
  bool serves(const book::Chapter& chapter, const Shape& shape, Backend backend);

  const worker::WorkerBuilt& built_stage(const book::Chapter& chapter, Backend backend) const;
  const worker::WorkerBuilt& built_step(const Variant& variant) const;
  /// The program of common/bench/NAME.cu. Nothing, with a skipped line that quotes the compiler, if it does not
  /// compile.
  std::optional<std::filesystem::path> device_program(const std::string& name, const std::string& for_what);

  std::vector<Version> versions_of(const book::Chapter& chapter, Backend backend) const {
    return bench::versions_of(chapter, backend, request);
  }
  /// A point that has not been timed yet.
  Point point_of(const book::Chapter& chapter, Backend backend, const Shape& shape, const Version& version) const;

 private:
  bool is_readers(const book::Chapter& chapter) const;
  worker::WorkerJob stage_job(const book::Chapter& chapter, Backend backend) const;
  worker::WorkerJob step_job(const Variant& variant) const;
  worker::WorkerJob device_job(const std::string& name) const;
};

worker::Limits gpu_limits();
worker::Limits simulator_limits();
/// The operation "bench" at one shape, without outputs. operation: another name, for a chapter's second element.
worker::Call bench_call(const Shape& shape, const std::string& operation = "bench");
/// The same for a point of a chapter.
worker::Call bench_call(const book::Chapter& chapter, const Point& point);
/// The filled part of the output "seconds".
std::vector<double> times_of(const worker::Reply& reply);
/// nvidia-smi's properties of the first GPU, by nvidia-smi's names. Empty without it.
std::map<std::string, std::string> ask_gpu();
/// stdout of a command, without the final newline; empty if the command is missing or fails.
std::string output_of(const std::vector<std::string>& command);
/// A compiler's log as a point's result.
void take_compile_error(Point& point, const worker::WorkerBuilt& built);
/// A failure as a point's result. "out of memory" is a separate result, which standard attention reaches.
void take_failure(Point& point, const book::Chapter& chapter, const worker::Failure& failure);

/// Times one shape on a GPU worker and checks the results; false if the worker is no longer usable.
bool time_point(const Measurement& measurement, worker::Worker& worker, const book::Chapter& chapter, Point& point,
                const std::map<std::string, double>& numbers = {});

// The parts: each adds to the results, or records what it skipped.
void measure_device(Measurement& measurement);           ///< the device's limits
void time_stages_on_gpu(Measurement& measurement);       ///< with the requested bytes, counted by the simulator
void time_stages_without_gpu(Measurement& measurement);  ///< CPU stages at short lengths, kernels on the simulator
void time_steps(Measurement& measurement);               ///< the steps within a chapter
void time_peers(Measurement& measurement);               ///< PyTorch, and libraries with peers.py's interface
/// The library, compiled if the checkout has changed. Nothing, with a skipped line, if it does not run here.
std::optional<std::filesystem::path> build_flash_attention_3(Measurement& measurement);
void profile_stages(Measurement& measurement);  ///< Nsight Compute's counters of stages that were timed

}  // namespace workbook::bench
