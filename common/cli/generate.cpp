// generate: writes text with a trained model, byte by byte.
#include <filesystem>
#include <memory>
#include <optional>

#include "common/attention/error.hpp"
#include "common/book/foreign_text.hpp"
#include "common/cli/train.hpp"
#include "common/cli/verbs.hpp"
#include "common/training/chapters.hpp"
#include "common/training/generate.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using namespace workbook::training;

/// The run with this precision, or the last one that has made a step.
const RunState& run_of(const Experiment& experiment, const std::string& precision, const std::string& file) {
  const RunState* found = nullptr;
  std::string there;
  for (const RunState& run : experiment.runs) {
    if (run.steps.empty()) continue;
    there += (there.empty() ? "" : ", ") + std::string(name(run.precision));
    if (precision.empty() || precision == name(run.precision)) found = &run;
  }
  if (found == nullptr && precision.empty()) fail_input("{}: no run has made a step", file);
  if (found == nullptr)
    fail_input("--precision {}: {} has no such run with a step; it has: {}", precision, file,
               there.empty() ? "none" : there);
  return *found;
}

/// Prints the prompt and the new bytes as they come, each character when it is complete.
class Printer {
 public:
  explicit Printer(const std::string& prompt) : pending_(prompt) {}
  void add(char byte) {
    const bool continues = (byte & 0xc0) == 0x80;
    if (!continues) flush();
    pending_ += byte;
    if ((byte & 0x80) == 0) flush();
  }
  void flush() {
    fmt::print("{}", book::clean_text(pending_));
    std::fflush(stdout);
    pending_.clear();
  }

 private:
  std::string pending_;
};

}  // namespace

int generate(const Session& session, const GenerateOptions& options) {
  const fs::path usual = session.book.root / ".workbook" / "train" / kCheckpoint;
  const fs::path file = options.from.empty() ? usual : fs::path(options.from);
  if (options.from.empty() && !fs::exists(file))
    fail_input("there is no trained model yet: ./workbook train --head-dim 64 trains one in minutes, and writes {}",
               session.shown(file));
  const Experiment experiment = given_checkpoint("--from", file);
  const RunState& run = run_of(experiment, options.precision, session.shown(file));
  const ModelShape& model = experiment.settings.model;

  GenerateRequest request{options.prompt, options.bytes, options.temperature, options.seed, !options.no_cache};
  if (request.bytes == 0) request.bytes = std::max<std::int64_t>(1, model.context - std::ssize(request.prompt));

  // The kernels take fp16; all other tensors stay in fp32, so that their rounding seldom decides about a byte.
  constexpr MixedPrecision of_kernels = MixedPrecision::fp16;
  const CodeUnderTraining code = code_under_training(session, options.chapters, options.solutions, options.backend);
  std::optional<TrainingChapters> chapters;
  std::unique_ptr<AttentionCore<float>> prefill, decode;
  if (code.tree.empty()) {
    prefill = std::make_unique<PlainAttention<float>>(Storage::fp32);
    decode = std::make_unique<PlainAttention<float>>(Storage::fp32);
  } else {
    chapters.emplace(session, code, std::vector{of_kernels}, model.head_dim, Purpose::generation);
    prefill = chapters->forward_pass(of_kernels, /*decoding=*/false);
    decode = chapters->forward_pass(of_kernels, /*decoding=*/true);
  }

  session.progress("");
  Printer printer(options.prompt);
  Generated generated;
  try {
    generated = training::generate(model, Storage::fp32, run.weights, *prefill, *decode, request, [&](char byte) {
      if (!session.json) printer.add(byte);
    });
  } catch (const worker::Failure& failure) {
    if (!session.json) printer.flush();
    print_error("\n{}\n", failure.ending == worker::Ending::todo
                              ? fmt::format("exercise {} is still open", failure.todo)
                              : failure.what());
    return kTestFailed;
  }
  const std::string attention = chapters ? chapters->text() : "plain attention on the CPU";
  const double rate = generated.seconds > 0 ? double(request.bytes - 1) / generated.seconds : 0;
  if (session.json) {
    print_json({{"precision", name(run.precision)},
                {"prompt", request.prompt},
                {"text", generated.text},
                {"bytes", request.bytes},
                {"cache", request.cache},
                {"attention", code.tree.empty() ? "plain" : code.tree},
                {"backend", code.backend ? nlohmann::json(name(*code.backend)) : nlohmann::json()},
                {"prompt_seconds", generated.prompt_seconds},
                {"bytes_per_second", rate > 0 ? nlohmann::json(rate) : nlohmann::json()}});
    return kDone;
  }
  printer.flush();
  fmt::print("\n\n{}, weights of the {} run, {}: first byte after {:.3g} s", attention, name(run.precision),
             request.cache ? "with a cache of K and V" : "without a cache", generated.prompt_seconds);
  fmt::print("{}\n", rate > 0 ? fmt::format(", then {:.3g} bytes per second", rate) : "");
  return kDone;
}

}  // namespace workbook::cli
