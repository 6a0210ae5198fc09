// One run of measuring: what is asked for, what has been built for it, and what has been found so far. The parts that
// measure work on it, each in a file of its own. Only common/bench includes this.
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
  bool gpu = false;            ///< there is one, and kernels can be compiled for it
  bool counts = false;         ///< the simulator counts what kernels ask for
  bool found_variant = false;  ///< that MeasureRequest::numbers ask for
  std::vector<Variant> variants;
  std::map<std::string, worker::WorkerBuilt> built;
  Results results;

  /// Says once that this was not measured, and why.
  void skip(const std::string& what);
  /// Everything that is measured, in one build.
  void build();

  // What is asked for.
  bool wants_pass(const std::string& pass) const { return request.pass == "both" || request.pass == pass; }
  /// Whether it has a stage there for an element that is asked for.
  bool is_wanted(const book::Chapter& chapter, Backend backend) const;
  std::vector<Mask> masks() const;
  std::vector<std::int64_t> lengths() const;
  /// A shape with as many queries, and as many heads for each of K and V, as are asked for.
  Shape asked(Shape shape) const;
  /// The shapes that are timed on a GPU in this pass.
  std::vector<Shape> gpu_shapes(const std::string& pass, const std::vector<Mask>& served) const;
  /// The backends of the chapter on which anything of it is measured here.
  std::vector<Backend> backends_of(const book::Chapter& chapter) const;
  /// What a chapter ends in; one that compiles others' kernels once more has theirs too.
  std::vector<std::string> passes_of(const book::Chapter& chapter) const;
  /// False, said once, of a chapter in which no heads share K and V where that is asked for.
  bool serves(const book::Chapter& chapter, const Shape& shape, Backend backend);

  const worker::WorkerBuilt& built_stage(const book::Chapter& chapter, Backend backend) const;
  const worker::WorkerBuilt& built_step(const Variant& variant) const;
  /// Of common/bench/NAME.cu. Nothing, and a skipped line with what the compiler said, if it does not compile.
  std::optional<std::filesystem::path> device_program(const std::string& name, const std::string& for_what);

  std::vector<Version> versions_of(const book::Chapter& chapter, Backend backend) const {
    return bench::versions_of(chapter, backend, request);
  }
  /// Before it is timed.
  Point point_of(const book::Chapter& chapter, Backend backend, const Shape& shape, const Version& version) const;

 private:
  bool is_readers(const book::Chapter& chapter) const;
  worker::WorkerJob stage_job(const book::Chapter& chapter, Backend backend) const;
  worker::WorkerJob step_job(const Variant& variant) const;
  worker::WorkerJob device_job(const std::string& name) const;
};

worker::Limits gpu_limits();
worker::Limits simulator_limits();
/// The operation "bench" at one shape, without outputs. operation: that of a chapter's second element.
worker::Call bench_call(const Shape& shape, const std::string& operation = "bench");
/// The same for a point of a chapter.
worker::Call bench_call(const book::Chapter& chapter, const Point& point);
/// The output "seconds" as far as it is filled.
std::vector<double> times_of(const worker::Reply& reply);
/// What nvidia-smi says of the first GPU: by its own names. Empty without it.
std::map<std::string, std::string> ask_gpu();
/// stdout of a command, without its last line end; empty if it is not here or fails.
std::string output_of(const std::vector<std::string>& command);
/// A compiler's log as a point's result.
void take_compile_error(Point& point, const worker::WorkerBuilt& built);
/// A failure as a point's result. A GPU without enough memory is a result of its own: what standard attention ends in.
void take_failure(Point& point, const book::Chapter& chapter, const worker::Failure& failure);

/// Times one shape on a worker on a GPU and checks the answer; false if the worker is of no more use.
bool time_point(const Measurement& measurement, worker::Worker& worker, const book::Chapter& chapter, Point& point,
                const std::map<std::string, double>& numbers = {});

// The parts: each adds to the results, or says what it skipped.
void measure_device(Measurement& measurement);           ///< the device's own limits
void time_stages_on_gpu(Measurement& measurement);       ///< and what they ask for, counted by the simulator
void time_stages_without_gpu(Measurement& measurement);  ///< the CPU's at short lengths, kernels on the simulator
void time_steps(Measurement& measurement);               ///< the steps within a chapter
void time_peers(Measurement& measurement);               ///< PyTorch
void profile_stages(Measurement& measurement);           ///< Nsight Compute's counters of stages that were timed

}  // namespace workbook::bench
