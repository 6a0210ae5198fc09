// train: trains a small language model in every precision, with the same initial weights and batches, and compares the
// losses.
#include <signal.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/cli/train.hpp"
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

constexpr std::int64_t kSteps = 400, kStepsOnSimulator = 200;  // unless --steps says otherwise

// ---- Stopping. -----------------------------------------------------------------------------------------------------

volatile sig_atomic_t stop_requested = 0;

/// During its lifetime, the first Ctrl-C (or SIGTERM) stops the training after the current step; a second one ends the
/// program immediately.
class StopOnSignal {
 public:
  StopOnSignal() {
    stop_requested = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { stop_requested = 1; };
    action.sa_flags = SA_RESETHAND;
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
  }
  ~StopOnSignal() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  bool requested() const { return stop_requested != 0; }

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// ---- The experiment. -----------------------------------------------------------------------------------------------

/// The experiment that the options describe.
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
  if (!options.attention.empty() && !options.chapters && !options.solutions) {
    fail_input("--attention {}: the plain attention belongs to no chapter; allowed with --chapters or --solutions",
               fmt::join(options.attention, ","));
  }
  CodeUnderTraining code = code_under_training(session, options.chapters, options.solutions, options.backend);
  code.chapters = options.attention;
  std::vector<MixedPrecision> precisions;
  for (const MixedPrecision precision : kPrecisions) {
    if (options.precision == "all" || options.precision == name(precision)) precisions.push_back(precision);
  }
  constexpr std::size_t longest = std::size_t(1) << 28;
  std::string text = text_bytes(session, options.text, longest + 1);
  if (text.size() > longest)
    fail_input("--text {}: more than {} bytes; allowed: at most that number", options.text, longest);
  try {
    return new_experiment(s, precisions, std::move(text), code);
  } catch (const InputError& error) {
    fail_input("{}: {}; allowed: a longer text, or a smaller --context",
               options.text.empty() ? fmt::format("--context {}", options.context) : "--text " + options.text,
               error.what());
  }
}

}  // namespace

CodeUnderTraining code_under_training(const Session& session, bool chapters, bool solutions,
                                      const std::string& backend) {
  if (!chapters && !solutions) {
    if (!backend.empty())
      fail_input("--backend {}: the plain attention runs on the CPU only; allowed with --chapters or --solutions",
                 backend);
    return {};
  }
  const bool on_gpu = backend.empty() ? session.toolchain.can_build(Backend::cuda) && worker::gpu_present()
                                      : backend == name(Backend::cuda);
  return {chapters ? "chapters" : "solutions", on_gpu ? Backend::cuda : Backend::sim};
}

Experiment given_checkpoint(const char* flag, const fs::path& file) {
  try {
    return read_checkpoint(file);
  } catch (const InputError& error) {
    fail_input("{} {}; allowed: a checkpoint that ./workbook train wrote", flag, error.what());
  }
}

int train(const Session& session, const TrainOptions& options) {
  if (!options.resume.empty() && options.settings_given) {
    fail_input("--resume {}: the checkpoint has its own settings and text; allowed with it: --steps and --out",
               options.resume);
  }
  const fs::path folder = options.out.empty() ? session.book.root / ".workbook" / "train" : fs::path(options.out);
  Experiment experiment =
      options.resume.empty() ? experiment_of(session, options) : given_checkpoint("--resume", options.resume);
  const std::int64_t usual = experiment.code.backend == Backend::sim ? kStepsOnSimulator : kSteps;
  const std::int64_t steps = options.steps != 0 ? options.steps : usual;
  std::optional<TrainingChapters> chapters;
  if (!experiment.code.tree.empty()) {
    std::vector<MixedPrecision> precisions;
    for (const RunState& run : experiment.runs) precisions.push_back(run.precision);
    chapters.emplace(session, experiment.code, precisions, experiment.settings.model.head_dim);
    if (const std::vector<std::string> open = chapters->open_exercises(); !open.empty()) {
      session.progress("");
      print_error("still open in {}: {}; a run that needs one of these exercises stops there\n", chapters->text(),
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
      trained = training::train(session, experiment, steps, chapters ? &*chapters : nullptr,
                                [&] { return stop.requested(); });
    } catch (...) {
      write_checkpoint(checkpoint, experiment);  // the completed steps
      session.progress("");
      print_error("the runs up to here are saved in {}\n", session.shown(checkpoint));
      throw;
    }
    write_checkpoint(checkpoint, experiment);
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
  if (!not_drawn.empty()) print_error("no plot: {}\n", not_drawn);
  if (!trained.finished && trained.longest() == 0) {
    print_error("no step was run\n");
  } else if (!trained.finished) {
    print_error("stopped before step {}; to continue: ./workbook train --resume {} --steps {}\n", steps,
                worker::shell_quoted(session.shown(checkpoint)), steps);
  }
  return trained.finished ? kDone : kTestFailed;
}

}  // namespace workbook::cli
