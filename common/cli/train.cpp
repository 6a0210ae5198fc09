// train: a small language model, trained in every precision from the same start on the same batches, and what becomes
// of its loss.
#include <signal.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/cli/input.hpp"
#include "common/cli/train_print.hpp"
#include "common/cli/verbs.hpp"
#include "common/pictures/pictures.hpp"
#include "common/training/curves.hpp"
#include "common/training/train.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using namespace workbook::training;

struct TrainOptions {
  std::string precision = "all";  ///< "fp32", "fp16", "fp16-scaled", "bf16" or "all"
  std::int64_t steps = 0;         ///< in all, those of a resumed run included; 0: 400, or 200 on the simulator
  std::string resume;             ///< a checkpoint
  std::string out;                ///< a folder; empty: .workbook/train
  std::string text;               ///< a file; empty: the book's own text
  std::uint64_t seed = 1;
  std::int64_t head_dim = 32, context = 128, sequences = 8, micro_batches = 1, shares = 256;
  double learning_rate = 2e-3, initial_scale = 65536;
  std::int64_t growth_interval = 2000;
  std::int64_t overflow_at = 0;              ///< the step of fp16-scaled that overflows; 0: none
  bool chapters = false, solutions = false;  ///< attention by the reader's chapters, or by the book's
  std::vector<std::int64_t> attention;       ///< of these chapters alone; empty: of any
  std::string backend;                       ///< on which: "sim" or "cuda"; empty: on the GPU where there is one
  bool settings_given = false;               ///< any of those from `precision` on that a checkpoint has of its own
};

constexpr const char* kCheckpoint = "train.checkpoint";
constexpr std::int64_t kSteps = 400, kStepsOnSimulator = 200;  // unless --steps says otherwise

// ---- Stopping. -----------------------------------------------------------------------------------------------------

volatile sig_atomic_t stop_asked = 0;

/// While it lives, the first Ctrl-C (or SIGTERM) asks the training to stop after its step; a second one ends the
/// program at once.
class StopOnSignal {
 public:
  StopOnSignal() {
    stop_asked = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { stop_asked = 1; };
    action.sa_flags = SA_RESETHAND;
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
  }
  ~StopOnSignal() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  bool asked() const { return stop_asked != 0; }

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// ---- The experiment. -----------------------------------------------------------------------------------------------

/// What the options ask for.
Experiment experiment_of(const Session& session, const TrainOptions& options) {
  Settings s;
  s.seed = options.seed;
  s.model.context = options.context;
  s.model.head_dim = options.head_dim;
  s.sequences = options.sequences;
  s.micro_batches = options.micro_batches;
  s.shares = options.shares;
  s.learning_rate = options.learning_rate;
  s.scaler.initial = options.initial_scale;
  s.scaler.growth_interval = options.growth_interval;
  s.overflow_at = options.overflow_at;
  check(s);
  if (!options.backend.empty() && !options.chapters && !options.solutions) {
    fail_input("--backend {}: the book's plain attention runs on the CPU; allowed with --chapters or --solutions",
               options.backend);
  }
  if (!options.attention.empty() && !options.chapters && !options.solutions) {
    fail_input("--attention {}: the book's plain attention is no chapter's; allowed with --chapters or --solutions",
               fmt::join(options.attention, ","));
  }
  CodeUnderTraining code;
  if (options.chapters || options.solutions) {
    const bool on_gpu = options.backend.empty() ? session.toolchain.can_build(Backend::cuda) && worker::gpu_present()
                                                : options.backend == name(Backend::cuda);
    code = {options.chapters ? "chapters" : "solutions", on_gpu ? Backend::cuda : Backend::sim, options.attention};
  }
  std::vector<MixedPrecision> precisions;
  for (const MixedPrecision precision : kPrecisions) {
    if (options.precision == "all" || options.precision == name(precision)) precisions.push_back(precision);
  }
  return new_experiment(s, precisions, text_bytes(session, options.text), code);
}

int train(const Session& session, const TrainOptions& options) {
  if (!options.resume.empty() && options.settings_given) {
    fail_input("--resume {}: it comes with its own settings and text; allowed beside it: --steps and --out",
               options.resume);
  }
  const fs::path folder = options.out.empty() ? session.book.root / ".workbook" / "train" : fs::path(options.out);
  Experiment experiment = options.resume.empty() ? experiment_of(session, options) : read_checkpoint(options.resume);
  const std::int64_t usual = experiment.code.backend == Backend::sim ? kStepsOnSimulator : kSteps;
  const std::int64_t steps = options.steps != 0 ? options.steps : usual;
  std::optional<TrainingChapters> chapters;
  if (!experiment.code.tree.empty()) {
    std::vector<MixedPrecision> precisions;
    for (const RunState& run : experiment.runs) precisions.push_back(run.precision);
    chapters.emplace(session, experiment.code, precisions, experiment.settings.model.head_dim);
    if (const std::vector<std::string> open = chapters->open_exercises(); !open.empty()) {
      session.progress("");
      fmt::print(stderr, "still open in {}: {}; what needs one of them stops there\n", chapters->text(),
                 fmt::join(open, ", "));
    }
  }
  require_folder("--out", folder);
  const fs::path checkpoint = folder / kCheckpoint;
  require_writable("--out", checkpoint.string());

  Trained trained;
  {
    const StopOnSignal stop;
    try {
      trained = training::train(session, experiment, steps, chapters ? &*chapters : nullptr, checkpoint,
                                [&] { return stop.asked(); });
    } catch (...) {
      session.progress("");
      fmt::print(stderr, "the runs so far are in {}\n", session.shown(checkpoint));
      throw;
    }
  }

  const std::string not_drawn = trained.longest() == 0 ? "" : pictures::why_not_drawn();
  std::vector<std::string> files;
  const auto write = [&](const char* file, const std::string& text) {
    book::write_file(folder / file, text);
    files.push_back(session.shown(folder / file));
  };
  write("losses.csv", losses_csv(trained));
  if (trained.longest() > 0 && not_drawn.empty()) {
    const nlohmann::ordered_json facts = losses_facts(trained);
    write("losses.json", pictures::facts_text(facts));
    write("losses.svg", pictures::draw(session, nlohmann::ordered_json::array({facts})).at(0));
  }
  files.push_back(session.shown(checkpoint));
  if (session.json) {
    print_json(results_json(experiment, trained, files));
  } else {
    print_results(session, experiment, chapters ? chapters->text() : "", trained);
    fmt::print("\nwritten: {}\n", fmt::join(files, ", "));
  }
  if (!not_drawn.empty()) fmt::print(stderr, "no plot: {}\n", not_drawn);
  if (!trained.finished && trained.longest() == 0) {
    fmt::print(stderr, "no step was made\n");
  } else if (!trained.finished) {
    fmt::print(stderr, "stopped before step {}; to go on: ./workbook train --resume {} --steps {}\n", steps,
               worker::shell_quoted(session.shown(checkpoint)), steps);
  }
  return trained.finished ? kDone : kTestFailed;
}

}  // namespace

Runner declare_train(Options& options) {
  const auto given = std::make_shared<TrainOptions>();
  std::vector<Option> settings;  // a checkpoint has them of its own
  const auto setting = [&](const char* flag, auto& value, const char* description, const Allowed& allowed) -> Option& {
    return settings.emplace_back(options.option(flag, value, description).allow(allowed));
  };
  const Allowed counted = whole_number<std::int64_t>(1);
  setting("--precision", given->precision, "What is stored in 16 bits",
          one_of({"fp32", "fp16", "fp16-scaled", "bf16", "all"}, "fp32, fp16, fp16-scaled, bf16 or all"))
      .show_default();
  options
      .option("--steps", given->steps,
              "Steps in all, those of a resumed run included (400; with attention on the simulator 200)")
      .allow(counted);
  options.option("--resume", given->resume, "Go on from this checkpoint").allow(not_empty("a file name"));
  options.option("--out", given->out, "Folder for the curves and the checkpoint (.workbook/train)")
      .allow(not_empty("a folder"));
  setting("--text", given->text, "A file to train on (default: the book's own text)", not_empty("a file name"));
  setting("--seed", given->seed, "Seed of the weights and the batches", whole_number<std::uint64_t>(0)).show_default();
  setting("--head-dim", given->head_dim, "Head dimension of the model, which has two heads: 32, 64 or 128",
          one_of({"32", "64", "128"}, "32, 64 or 128"))
      .show_default();
  setting("--context", given->context, "Tokens of a sequence", counted).show_default();
  setting("--sequences", given->sequences, "Sequences of a batch", counted).show_default();
  setting("--micro-batches", given->micro_batches, "Batches that make one step", counted).show_default();
  setting("--shares", given->shares, "Machines over whose tokens the loss is averaged; this is one of them", counted)
      .show_default();
  setting("--learning-rate", given->learning_rate, "AdamW's learning rate",
          number(1e-12, 1e3, "a number from 1e-12 to 1000"))
      .show_default();
  setting("--initial-scale", given->initial_scale, "Loss scale that fp16-scaled starts with",
          number(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                 "a positive number that a float can hold"))
      .show_default();
  setting("--growth-interval", given->growth_interval, "Good steps in a row after which the scale grows", counted)
      .show_default();
  setting("--overflow-at", given->overflow_at, "A step of fp16-scaled whose gradients are made to overflow", counted);
  settings.push_back(options.flag("--chapters", given->chapters, "Attention and the loss scale by your chapters"));
  settings.push_back(options.flag("--solutions", given->solutions, "The same by the book's").excludes({"--chapters"}));
  setting("--attention", given->attention, "With --chapters or --solutions: by kernels of these chapters alone, as 8,9",
          number(1, 99, "numbers of chapters"))
      .separated_by(',');
  setting("--backend", given->backend, "With --chapters or --solutions: where kernels run",
          one_of({"sim", "cuda"}, "sim or cuda"));
  return [given, settings](Session& session) {
    given->settings_given = std::ranges::any_of(settings, &Option::given);
    return train(session, *given);
  };
}

}  // namespace workbook::cli
