// Training runs: bitwise repeatable and resumable, and the effect of the scaler.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <limits>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/training/checkpoint.hpp"
#include "common/training/trainer.hpp"

using namespace workbook;
using namespace workbook::training;
namespace fs = std::filesystem;

namespace {

std::string text() {
  std::string result;
  for (int i = 0; i < 60; ++i) result += "line " + std::to_string(i * i) + ": the quick brown fox; ";
  return result;
}

Settings small() {
  Settings settings;
  settings.model = {16, 2, 4, 2, 2};
  settings.sequences = 4;
  settings.shares = 1;
  settings.warmup = 5;
  settings.learning_rate = 1e-2;
  settings.scaler.growth_interval = 3;
  return settings;
}

RunState trained(const Settings& settings, MixedPrecision precision, int steps) {
  Trainer trainer(settings, precision, text());
  RunState run = trainer.start();
  for (int i = 0; i < steps; ++i) trainer.step(run);
  return run;
}

/// A folder that is deleted after the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("workbook_training_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("the loss falls, in every precision") {
  for (const MixedPrecision precision : kPrecisions) {
    const RunState run = trained(small(), precision, 60);
    INFO(name(precision) << ": from " << run.steps.front().loss << " to " << run.steps.back().loss);
    CHECK(std::abs(run.steps.front().loss - std::log(256.0)) < 1);  // at first every byte is about as likely
    CHECK(run.steps.back().loss < 0.7 * run.steps.front().loss);
  }
}

TEST_CASE("the same settings give the same run, bit for bit; another seed another") {
  for (const MixedPrecision precision : kPrecisions)
    CHECK(trained(small(), precision, 8) == trained(small(), precision, 8));
  Settings other = small();
  other.seed = 2;
  CHECK(trained(other, MixedPrecision::fp32, 1).steps[0].loss !=
        trained(small(), MixedPrecision::fp32, 1).steps[0].loss);
}

TEST_CASE("all precisions see the same batches") {
  const std::uint64_t after = trained(small(), MixedPrecision::fp32, 5).random;
  for (const MixedPrecision precision : kPrecisions) CHECK(trained(small(), precision, 5).random == after);
}

TEST_CASE("micro batches add up to the batch that they are parts of") {
  Settings whole = small(), parts = small();
  parts.sequences = 1;
  parts.micro_batches = 4;
  CHECK(whole.tokens() == parts.tokens());
  const RunState a = trained(whole, MixedPrecision::fp32, 3), b = trained(parts, MixedPrecision::fp32, 3);
  for (std::size_t i = 0; i < a.steps.size(); ++i) CHECK(std::abs(a.steps[i].loss - b.steps[i].loss) < 1e-4);
}

TEST_CASE("shares of a larger batch change nothing in fp32, and lose gradients in fp16 without scaling") {
  Settings many = small();
  many.shares = 1 << 14;
  // Powers of two: not a bit.
  CHECK(trained(many, MixedPrecision::fp32, 5).weights == trained(small(), MixedPrecision::fp32, 5).weights);
  const auto zeros = [&](MixedPrecision precision) {  // of AdamW's moment: every gradient has been 0
    const RunState run = trained(many, precision, 5);
    return std::count(run.m.begin(), run.m.end(), 0.0f);
  };
  CHECK(zeros(MixedPrecision::fp16) > 10 * zeros(MixedPrecision::fp16_scaled) + 100);
}

TEST_CASE("an overflow is skipped, halves the scale, and the scale grows back") {
  Settings settings = small();
  settings.overflow_at = 5;
  Trainer trainer(settings, MixedPrecision::fp16_scaled, text());
  RunState run = trainer.start();
  for (int i = 0; i < 4; ++i) CHECK_FALSE(trainer.step(run).skipped);
  CHECK(run.scaler.scale == 131072);  // grew once, after three good steps
  const std::vector<float> before = run.weights, m = run.m, v = run.v;
  CHECK(trainer.step(run).skipped);
  CHECK(run.weights == before);
  CHECK(run.m == m);
  CHECK(run.v == v);
  CHECK(run.updates == 4);
  CHECK(run.scaler == ScalerState{65536, 0});
  for (int i = 0; i < 3; ++i) CHECK_FALSE(trainer.step(run).skipped);
  CHECK(run.scaler == ScalerState{131072, 0});
  CHECK(run.weights != before);
  for (const float weight : run.weights) REQUIRE(std::isfinite(weight));
}

TEST_CASE("the scaler keeps the scale finite and above zero") {
  const ScalerOptions options{65536, 2, 0.5, 1};
  ScalerState state{1, 0};
  for (int i = 0; i < 1000; ++i) state = updated(state, options, false);
  CHECK(state.scale == 0x1p127f);
  for (int i = 0; i < 1000; ++i) state = updated(state, options, true);
  CHECK(state.scale == 0x1p-126f);
  CHECK(std::isfinite(1 / state.scale));
}

TEST_CASE("unscaling finds every kind of non-finite number at every index") {
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const std::size_t place : {0, 1, 99}) {
      std::vector<float> gradients(100, 512.0f);
      CHECK(unscale(gradients, 256));
      CHECK(gradients == std::vector<float>(100, 2.0f));
      gradients[place] = bad;
      CHECK_FALSE(unscale(gradients, 256));
    }
}

TEST_CASE("a resumed experiment goes on to the same run, bit for bit") {
  const Folder folder;
  const fs::path file = folder.path / "a.checkpoint";
  Settings settings = small();
  settings.overflow_at = 4;
  for (const MixedPrecision precision : kPrecisions) {
    write_checkpoint(file, {settings, text(), {trained(settings, precision, 6)}, {"chapters", Backend::sim}});
    const Experiment resumed = read_checkpoint(file);
    CHECK(resumed.settings == settings);
    CHECK(resumed.text == text());
    CHECK(resumed.code == CodeUnderTraining{"chapters", Backend::sim});
    REQUIRE(resumed.runs.size() == 1);
    RunState run = resumed.runs[0];
    CHECK(run == trained(settings, precision, 6));
    Trainer trainer(resumed.settings, run.precision, resumed.text);
    for (int i = 0; i < 6; ++i) trainer.step(run);
    CHECK(run == trained(settings, precision, 12));
  }
}

TEST_CASE("a damaged checkpoint is refused with the reason") {
  const Folder folder;
  const fs::path file = folder.path / "a.checkpoint";
  write_checkpoint(file, {small(), text(), {trained(small(), MixedPrecision::fp16_scaled, 2)}, {}});
  const std::string good = book::read_file(file);
  const auto refusal = [&](const std::string& bytes) {
    book::write_file(file, bytes);
    try {
      read_checkpoint(file);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  const auto holds = [](const std::string& message, const std::string& part) {
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  holds(refusal(""), "ends too early");
  holds(refusal("some text\n"), "not a training checkpoint");
  holds(refusal(good.substr(0, good.size() - 1)), "damaged");
  holds(refusal(good + "x"), "damaged");
  std::string flipped = good;
  flipped[good.size() / 2] = char(flipped[good.size() / 2] ^ 1);
  holds(refusal(flipped), "damaged");
  std::string later = good;
  later.replace(good.find("version 2"), 9, "version 3");
  holds(refusal(later), "version 3");
  // A file with a valid hash and invalid contents.
  const std::string begin = "workbook training checkpoint, version 2, ";
  for (const std::string& content : {std::string("{}\n"), std::string("no json\n"), std::string("[]\n")})
    holds(refusal(begin + book::hash(content) + "\n" + content), file.string());
  CHECK_THROWS_AS(read_checkpoint(folder.path / "missing"), InputError);
  CHECK_THROWS_AS(read_checkpoint(folder.path), InputError);
}

TEST_CASE("settings that make no sense are refused") {
  const auto refused = [](auto change) {
    Settings settings = small();
    change(settings);
    CHECK_THROWS_AS(Trainer(settings, MixedPrecision::fp32, text()), InputError);
  };
  refused([](Settings& s) { s.sequences = 0; });
  refused([](Settings& s) { s.micro_batches = -1; });
  refused([](Settings& s) { s.shares = 0; });
  refused([](Settings& s) { s.learning_rate = std::nan(""); });
  refused([](Settings& s) { s.warmup = -1; });
  refused([](Settings& s) { s.model.context = 0; });
  refused([](Settings& s) { s.model.context = 4096; });  // longer than the validation text
  refused([](Settings& s) { s.scaler.initial = 1e60; });
  refused([](Settings& s) { s.scaler.growth = 1; });
  refused([](Settings& s) { s.scaler.backoff = 1; });
  refused([](Settings& s) { s.scaler.growth_interval = 0; });
  refused([](Settings& s) { s.sequences = std::numeric_limits<std::int64_t>::max() / 2; });
  refused([](Settings& s) { s.sequences = 65537 / s.model.context + 1; });
  refused([](Settings& s) { s.shares = std::numeric_limits<std::int64_t>::max(); });
}

TEST_CASE("an exception of the attention ends the step and is passed to the caller") {
  struct Failing : AttentionCore<float> {
    void forward(const AttentionCall&) override { throw std::runtime_error("exercise 4.2 is open"); }
    void backward(const GradientCall&) override {}
  };
  Trainer trainer(small(), MixedPrecision::fp16, text(), std::make_unique<Failing>());
  RunState run = trainer.start();
  CHECK_THROWS_AS(trainer.step(run), std::runtime_error);
  CHECK(run.steps.empty());
}
