// The main job: one problem through every stage, each checked against the float64 oracle and against the stage before
// it. What stages of one element are given is rounded and encoded once. It prints nothing: a row is handed over as soon
// as its stage is done.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/problem.hpp"
#include "common/judge/workspace.hpp"
#include "common/worker/worker.hpp"

namespace workbook::judge {

struct MainJob {
  std::string stage;                              ///< a chapter; empty: all
  bool own = false;                               ///< the reader's stages in place of the book's
  std::optional<Backend> backend;                 ///< only this one; nothing: all, a GPU where there is one
  std::optional<Element> element;                 ///< only stages for it; nothing: each chapter's own
  std::string pass;                               ///< only stages of it; empty: both
  std::string kv_heads;                           ///< what gives the heads of K and V, for messages: "--kv-heads 2"
  std::uint64_t memory = std::uint64_t(1) << 46;  ///< bytes of addresses that a stage may use
};

/// A pass of a chapter on one of its backends.
struct StageToRun {
  const book::Chapter* chapter;
  Backend backend;
  std::string pass;
};
/// What the job asks for. InputError naming the option if there is no such stage.
std::vector<StageToRun> stages_of(const Workspace& workspace, const MainJob& job);

/// What became of one stage.
struct StageRow {
  const book::Chapter* chapter = nullptr;
  std::string source;  ///< "chapters" or "solutions"
  Backend backend = Backend::cpu;
  std::string pass;
  Element element = float32;  ///< of Q, K, V and O
  std::string result = "ok";  ///< "ok", "failed", or why there is no result: "todo", "refused", "not compiled", …
  std::string message;
  bool supported = true;  ///< false: it says of itself, or of this machine, that it cannot
  std::optional<double> max_error, bound, rms_error, rms_bound, previous_difference, extra_bytes, seconds;
  std::optional<double> read_bytes, written_bytes, tiles;  ///< counted on the simulator
  bool ran() const { return result == "ok" || result == "failed"; }
};
/// {"chapter", "source", "backend", …}, as notes/json.md documents it.
nlohmann::json to_json(const StageRow& row);

struct MainResult {
  std::vector<StageRow> rows;
  std::optional<Tensor<float>> O, lse;  ///< of the last stage that gave them, of the finest format there is
  /// What the one stage that was asked for shows beside its row: {"text": …, "json": {"formats": […], "underflow":
  /// […]}}, with empty lists where it has no tables.
  nlohmann::json tables;
};

/// Builds the stages of the job, then runs them one after the other; on_row is called with each as it is done.
MainResult run_stages(const Workspace& workspace, const Problem& problem, const MainJob& job,
                      const std::function<void(const StageRow&)>& on_row);

}  // namespace workbook::judge
