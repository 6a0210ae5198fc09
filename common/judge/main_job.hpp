// The main job: runs one problem through every stage and checks each against the float64 oracle and the previous stage.
// The inputs for one element are rounded and encoded once. Prints nothing: a callback receives each row when its stage
// has finished.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/problem.hpp"
#include "common/judge/workspace.hpp"
#include "common/worker/worker.hpp"

namespace workbook::judge {

struct MainJob {
  std::string stage;                      ///< a chapter; empty: all
  bool own = false;                       ///< the reader's stages instead of the book's
  std::optional<Backend> backend;         ///< only this one; empty: all, CUDA only if there is a GPU
  std::optional<Element> element;         ///< only stages for it; empty: each chapter's default
  std::string pass;                       ///< only stages of this pass; empty: both
  std::map<std::string, double> numbers;  ///< parameters of the kernels: {"ranks", 2}
  std::string kv_heads;  ///< the option that sets the number of K/V heads, for messages: "--kv-heads 2"
  std::uint64_t memory = std::uint64_t(1) << 46;  ///< bytes of address space that a stage may use
};

/// A pass of a chapter on one of its backends.
struct StageToRun {
  const book::Chapter* chapter;
  Backend backend;
  std::string pass;
};
/// The stages that the job requests. InputError naming the option if there are none.
std::vector<StageToRun> stages_of(const Workspace& workspace, const MainJob& job);

/// The result of one stage.
struct StageRow {
  const book::Chapter* chapter = nullptr;
  std::string source;  ///< "chapters" or "solutions"
  Backend backend = Backend::cpu;
  std::string pass;
  Element element = float32;  ///< of Q, K, V and O
  std::string result = "ok";  ///< "ok", "failed", or why there is no verdict: "todo", "refused", "not compiled",
                              ///< "cannot be judged" (a bound is larger than the output), …
  std::string message;
  bool supported = true;  ///< false: the stage or this machine cannot run the problem
  std::optional<double> max_error, bound, rms_error, rms_bound, previous_difference, extra_bytes, seconds;
  std::optional<double> read_bytes, written_bytes, tiles;  ///< counted on the simulator
  bool ran() const { return result == "ok" || result == "failed"; }
};
/// {"chapter", "source", "backend", …}, as notes/json.md documents it.
nlohmann::json to_json(const StageRow& row);

struct MainResult {
  std::vector<StageRow> rows;
  std::optional<Tensor<float>> O, lse;  ///< of the last stage that computed them in the most precise format
  /// The tables of the requested single stage: {"text": …, "json": {"formats": […], "underflow": […]}}, with empty
  /// lists if it has none.
  nlohmann::json tables;
};

/// Builds the stages of the job, then runs them one after another. Calls on_row with the row of each stage that has
/// finished.
MainResult run_stages(const Workspace& workspace, const Problem& problem, const MainJob& job,
                      const std::function<void(const StageRow&)>& on_row);

}  // namespace workbook::judge
