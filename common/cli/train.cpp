// train: a small language model, trained in every precision from the same start on the same batches, and what becomes
// of its loss.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/cli/input.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/run.hpp"
#include "common/training/chapters.hpp"
#include "common/training/checkpoint.hpp"
#include "common/worker/command.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using namespace workbook::training;
using nlohmann::json;

constexpr const char* kCheckpoint = "train.checkpoint";

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

// ---- What a run came to. -------------------------------------------------------------------------------------------

/// One run, and what can be said of it at the end.
struct Result {
  const RunState* run = nullptr;
  std::optional<double> loss;                       ///< mean of the last tenth of its steps
  std::optional<double> validation_loss;            ///< on text that it has not seen
  std::optional<double> above_fp32;                 ///< loss / fp32's - 1, at as many steps
  std::optional<Trainer::GradientFacts> gradients;  ///< of its last step, if that was made here
  std::string problem;                              ///< why the chapters' code could not go on; empty if it could
  std::int64_t skipped() const {
    return std::count_if(run->steps.begin(), run->steps.end(), [](const StepRecord& s) { return s.skipped; });
  }
};

std::optional<double> mean_of_last_tenth(const RunState& run) {
  const std::size_t steps = run.steps.size();
  if (steps == 0) return std::nullopt;
  const std::size_t first = steps - std::max<std::size_t>(1, steps / 10);
  double sum = 0;
  for (std::size_t i = first; i < steps; ++i) sum += run.steps[i].loss;
  return sum / double(steps - first);
}

void compare_with_fp32(std::vector<Result>& results) {
  const auto fp32 =
      std::find_if(results.begin(), results.end(), [](const Result& r) { return r.run->precision == Precision::fp32; });
  if (fp32 == results.end() || !fp32->loss) return;
  for (Result& result : results) {
    if (&result != &*fp32 && result.loss && result.run->steps.size() == fp32->run->steps.size())
      result.above_fp32 = *result.loss / *fp32->loss - 1;
  }
}

/// "step 120: skipped, the scale falls from 65536 to 32768"
std::vector<std::string> scale_events(const RunState& run) {
  std::vector<std::string> events;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const StepRecord& step = run.steps[i];
    const float next = i + 1 < run.steps.size() ? run.steps[i + 1].scale : run.scaler.scale;
    if (step.skipped)
      events.push_back(fmt::format("step {}: skipped, the scale goes from {} to {}", i + 1, step.scale, next));
    else if (next != step.scale)
      events.push_back(fmt::format("step {}: the scale grows from {} to {}", i + 1, step.scale, next));
  }
  return events;
}

// ---- Printing. -----------------------------------------------------------------------------------------------------

std::size_t longest(const std::vector<Result>& results) {
  std::size_t steps = 0;
  for (const Result& result : results) steps = std::max(steps, result.run->steps.size());
  return steps;
}

std::string number_or(std::optional<double> value, const char* format, const char* otherwise = "-") {
  return value ? fmt::format(fmt::runtime(format), *value) : otherwise;
}

void print_curves(const std::vector<Result>& results) {
  const std::size_t steps = longest(results);
  fmt::print("  {:>6}", "step");
  for (const Result& result : results) fmt::print(" {:>12}", name(result.run->precision));
  fmt::print("\n");
  constexpr std::size_t rows = 16;
  std::size_t shown = 0;
  for (std::size_t i = 1; i <= rows; ++i) {
    const std::size_t step = std::max<std::size_t>(1, steps * i / rows);
    if (step == shown) continue;
    // The mean over the steps since the row before.
    fmt::print("  {:>6}", step);
    for (const Result& result : results) {
      double sum = 0;
      std::size_t count = 0;
      for (std::size_t n = shown; n < std::min(step, result.run->steps.size()); ++n, ++count)
        sum += result.run->steps[n].loss;
      fmt::print(" {:>12}", count == 0 ? "-" : fmt::format("{:.4f}", sum / double(count)));
    }
    fmt::print("\n");
    shown = step;
  }
}

/// code: whose attention it is, as text.
void print_results(const Session& session, const Experiment& experiment, const std::string& code,
                   const std::vector<Result>& results) {
  const Settings& s = experiment.settings;
  fmt::print("A byte-level model of {} weights: {} blocks, {} heads of {}, context {}.\n", weight_count(s.model),
             s.model.blocks, s.model.heads, s.model.head_dim, s.model.context);
  if (!experiment.code.tree.empty()) {
    fmt::print("Attention and the loss scale by {}, kernels on {}.\n", code, text(*experiment.code.backend));
  }
  fmt::print("{} tokens a step, the loss their mean over {} in all ({} share{}); seed {}, text of {} bytes.\n\n",
             s.tokens() / s.shares, s.tokens(), s.shares, s.shares == 1 ? "" : "s", s.seed, experiment.text.size());
  fmt::print("Loss in nats a byte, mean since the row above:\n\n");
  print_curves(results);
  fmt::print("\n  {:<12} {:>6} {:>9} {:>10} {:>10} {:>8} {:>10}   {}\n", "run", "steps", "loss", "validation",
             "above fp32", "skipped", "scale", "gradients that are 0: Wq, Wk, Wv, others");
  for (const Result& result : results) {
    std::string zeros = "-";
    if (result.gradients) {
      zeros = fmt::format("{:.1f}%, {:.1f}%, {:.1f}%, {:.1f}%", 100 * result.gradients->zero_Wq,
                          100 * result.gradients->zero_Wk, 100 * result.gradients->zero_Wv,
                          100 * result.gradients->zero_others);
    }
    fmt::print("  {:<12} {:>6} {:>9} {:>10} {:>10} {:>8} {:>10}   {}\n", name(result.run->precision),
               result.run->steps.size(), number_or(result.loss, "{:.4f}"), number_or(result.validation_loss, "{:.4f}"),
               result.above_fp32 ? fmt::format("{:+.2f}%", 100 * *result.above_fp32) : "-", result.skipped(),
               fmt::format("{}", result.run->scaler.scale), zeros);
  }
  fmt::print("\nloss: mean of the last tenth of the steps; gradients that are 0: in the last step.\n");
  for (const Result& result : results) {
    if (!result.problem.empty())
      fmt::print("\n{}: {}\n", session.colored(name(result.run->precision), "bold"), result.problem);
  }
  for (const Result& result : results) {
    const std::vector<std::string> events = scale_events(*result.run);
    constexpr std::size_t most = 12;
    if (!events.empty()) fmt::print("\n{}\n", session.colored(name(result.run->precision), "bold"));
    for (std::size_t i = 0; i < std::min(most, events.size()); ++i) fmt::print("  {}\n", events[i]);
    if (events.size() > most) fmt::print("  and {} more: see the CSV file\n", events.size() - most);
  }
}

json results_json(const Experiment& experiment, const std::vector<Result>& results, bool finished,
                  const std::vector<std::string>& files) {
  json runs = json::array();
  for (const Result& result : results) {
    json losses = json::array(), scales = json::array(), skips = json::array();
    for (std::size_t i = 0; i < result.run->steps.size(); ++i) {
      losses.push_back(number_json(result.run->steps[i].loss));
      scales.push_back(number_json(result.run->steps[i].scale));
      if (result.run->steps[i].skipped) skips.push_back(i + 1);
    }
    const auto fact = [&](double Trainer::GradientFacts::*which) {
      return result.gradients ? number_json((*result.gradients).*which) : json(nullptr);
    };
    runs.push_back({{"precision", name(result.run->precision)},
                    {"steps", result.run->steps.size()},
                    {"loss", number_json(result.loss)},
                    {"validation_loss", number_json(result.validation_loss)},
                    {"above_fp32", number_json(result.above_fp32)},
                    {"scale", number_json(result.run->scaler.scale)},
                    {"zero_Wq", fact(&Trainer::GradientFacts::zero_Wq)},
                    {"zero_Wk", fact(&Trainer::GradientFacts::zero_Wk)},
                    {"zero_Wv", fact(&Trainer::GradientFacts::zero_Wv)},
                    {"zero_others", fact(&Trainer::GradientFacts::zero_others)},
                    {"dO_of_a_token", fact(&Trainer::GradientFacts::dO_of_a_token)},
                    {"losses", losses},
                    {"scales", scales},
                    {"skipped_steps", skips},
                    {"problem", result.problem.empty() ? json(nullptr) : json(result.problem)}});
  }
  const Settings& s = experiment.settings;
  return {{"finished", finished},
          {"tokens_of_a_step", s.tokens() / s.shares},
          {"tokens_of_the_mean", s.tokens()},
          {"weights", weight_count(s.model)},
          {"seed", s.seed},
          {"text_bytes", experiment.text.size()},
          {"attention", experiment.code.tree.empty() ? "plain" : experiment.code.tree},
          {"backend", experiment.code.backend ? json(name(*experiment.code.backend)) : json(nullptr)},
          {"runs", runs},
          {"files", files}};
}

// ---- Files. --------------------------------------------------------------------------------------------------------

std::string csv(const std::vector<Result>& results) {
  std::string text = "step";
  for (const Result& result : results) {
    const char* run = name(result.run->precision);
    text += fmt::format(",{} loss,{} scale,{} skipped", run, run, run);
  }
  text += '\n';
  for (std::size_t i = 0; i < longest(results); ++i) {
    text += std::to_string(i + 1);
    for (const Result& result : results) {
      if (i < result.run->steps.size()) {
        const StepRecord& step = result.run->steps[i];
        text += fmt::format(",{},{},{}", step.loss, step.scale, int(step.skipped));
      } else {
        text += ",,,";
      }
    }
    text += '\n';
  }
  return text;
}

std::string gnuplot_script(const std::vector<Result>& results) {
  std::string script =
      "# Draws losses.svg from losses.csv: gnuplot losses.gnuplot\n"
      "set terminal svg size 900,600 background rgb 'white'\n"
      "set output 'losses.svg'\n"
      "set datafile separator ','\n"
      "set key autotitle columnhead top right\n"
      "set xlabel 'step'\n"
      "set ylabel 'loss, nats a byte'\n"
      "set grid\n"
      "plot ";
  for (std::size_t i = 0; i < results.size(); ++i) {
    script += fmt::format("{}'losses.csv' using 1:{} with lines title '{}'", i == 0 ? "" : ", \\\n     ", 2 + 3 * i,
                          name(results[i].run->precision));
  }
  return script + "\n";
}

/// losses.csv, losses.gnuplot, and losses.svg if there is gnuplot. Returns their paths; says why there is no plot.
std::vector<std::string> write_files(const fs::path& folder, const std::vector<Result>& results, std::string& note) {
  std::vector<std::string> files{(folder / "losses.csv").string(), (folder / "losses.gnuplot").string()};
  book::write_file(files[0], csv(results));
  book::write_file(files[1], gnuplot_script(results));
  if (longest(results) == 0) return files;
  if (worker::find_program("gnuplot").empty()) {
    note = "no plot: gnuplot is not installed; losses.gnuplot draws one where it is";
    return files;
  }
  worker::CommandOptions options;
  options.folder = folder;
  options.time = 60;
  const worker::CommandResult drawn = worker::run_command({"gnuplot", "losses.gnuplot"}, options);
  if (drawn.exit_code == 0 && !drawn.timed_out)
    files.push_back((folder / "losses.svg").string());
  else
    note = "no plot: gnuplot failed: " + drawn.output;
  return files;
}

// ---- The experiment. -----------------------------------------------------------------------------------------------

Experiment new_experiment(const Session& session, const TrainOptions& options) {
  Experiment experiment;
  Settings& s = experiment.settings;
  s.seed = options.seed;
  s.model.context = options.context;
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
  if (options.chapters || options.solutions) {
    const bool on_gpu = options.backend.empty() ? session.toolchain.can_build(Backend::cuda) && worker::gpu_present()
                                                : options.backend == name(Backend::cuda);
    experiment.code = {options.chapters ? "chapters" : "solutions", on_gpu ? Backend::cuda : Backend::sim};
  }
  experiment.text = text_bytes(session, options.text);
  for (const Precision precision : kPrecisions) {
    if (options.precision != "all" && options.precision != name(precision)) continue;
    experiment.runs.push_back(Trainer(s, precision, experiment.text).start());
  }
  return experiment;
}

/// Trains run i of the experiment up to `steps`, or until it is asked to stop or the chapters' code cannot go on; false
/// for the latter two. chapters: nullptr for the book's plain attention.
bool train_run(const Session& session, Experiment& experiment, std::size_t i, std::int64_t steps,
               TrainingChapters* chapters, const StopOnSignal& stop, Result& result) {
  RunState& run = experiment.runs[i];
  result.run = &run;
  Trainer trainer(experiment.settings, run.precision, experiment.text,
                  chapters == nullptr ? nullptr : chapters->attention(run.precision),
                  chapters == nullptr ? ScalingParts{} : chapters->scaling(run));
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t done = 0;
  while (std::int64_t(run.steps.size()) < steps) {
    if (stop.asked()) break;
    StepRecord record;
    const std::uint64_t random = run.random;
    try {
      record = trainer.step(run);
    } catch (const worker::Failure& failure) {
      run.random = random;  // the step has not been made
      result.problem = failure.ending == worker::Ending::todo ? fmt::format("exercise {} is still open", failure.todo)
                                                              : failure.what();
      break;
    }
    ++done;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    session.progress(fmt::format("{}: step {} of {}, loss {:.4f}, scale {}{}, {:.3f} s a step", name(run.precision),
                                 run.steps.size(), steps, record.loss, record.scale, record.skipped ? ", skipped" : "",
                                 seconds.count() / double(done)));
  }
  result.loss = mean_of_last_tenth(run);
  if (done > 0 && result.problem.empty()) result.gradients = trainer.gradient_facts();
  if (!run.steps.empty() && result.problem.empty()) result.validation_loss = trainer.validation_loss(run);
  return std::int64_t(run.steps.size()) >= steps;
}

void require_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    fail_input("--out {}: the folder cannot be made ({}); allowed: a folder that can be written to", folder.string(),
               error ? error.message() : "a file has that name");
  require_writable("--out", (folder / kCheckpoint).string());
}

}  // namespace

int train(const Session& session, const TrainOptions& options) {
  if (!options.resume.empty() && options.settings_given) {
    fail_input("--resume {}: it comes with its own settings and text; allowed beside it: --steps and --out",
               options.resume);
  }
  const fs::path folder = options.out.empty() ? session.book.root / ".workbook" / "train" : fs::path(options.out);
  Experiment experiment = options.resume.empty() ? new_experiment(session, options) : read_checkpoint(options.resume);
  const std::int64_t steps = options.steps != 0 ? options.steps : experiment.code.backend == Backend::sim ? 200 : 400;
  std::optional<TrainingChapters> chapters;
  if (!experiment.code.tree.empty()) {
    std::vector<Precision> precisions;
    for (const RunState& run : experiment.runs) precisions.push_back(run.precision);
    chapters.emplace(session, experiment.code, precisions);
  }
  require_folder(folder);
  const fs::path checkpoint = folder / kCheckpoint;

  std::vector<Result> results(experiment.runs.size());
  bool finished = true;
  {
    const StopOnSignal stop;
    for (std::size_t i = 0; i < results.size(); ++i) {
      try {
        finished =
            train_run(session, experiment, i, steps, chapters ? &*chapters : nullptr, stop, results[i]) && finished;
      } catch (...) {
        // What has been computed is not lost to what went wrong.
        write_checkpoint(checkpoint, experiment);
        session.progress("");
        fmt::print(stderr, "the runs so far are in {}\n", session.shown(checkpoint));
        throw;
      }
    }
    write_checkpoint(checkpoint, experiment);
  }
  session.progress("");
  compare_with_fp32(results);

  std::string note;
  std::vector<std::string> files = write_files(folder, results, note);
  files.push_back(checkpoint.string());
  for (std::string& file : files) file = session.shown(file);
  if (session.json) {
    print_json(results_json(experiment, results, finished, files));
  } else {
    print_results(session, experiment, chapters ? chapters->text() : "", results);
    fmt::print("\nwritten: {}\n", fmt::join(files, ", "));
  }
  if (!note.empty()) fmt::print(stderr, "{}\n", note);
  if (!finished) {
    fmt::print(stderr, "stopped before step {}; to go on: ./workbook train --resume {} --steps {}\n", steps,
               worker::shell_quoted(session.shown(checkpoint)), steps);
  }
  return finished ? kDone : kTestFailed;
}

}  // namespace workbook::cli
