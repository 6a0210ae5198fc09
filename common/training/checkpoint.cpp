#include "common/training/checkpoint.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"

namespace workbook::training {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

constexpr std::string_view kBegin = "workbook training checkpoint, version ";
constexpr std::string_view kVersion = "2";

/// Calls take(name, member) for every setting, const or not, with its name in the file.
template <class Some, class Take>
void for_settings(Some& s, const Take& take) {
  take("context", s.model.context);
  take("heads", s.model.heads);
  take("head_dim", s.model.head_dim);
  take("blocks", s.model.blocks);
  take("expansion", s.model.expansion);
  take("sequences", s.sequences);
  take("micro_batches", s.micro_batches);
  take("shares", s.shares);
  take("learning_rate", s.learning_rate);
  take("warmup", s.warmup);
  take("beta1", s.beta1);
  take("beta2", s.beta2);
  take("epsilon", s.epsilon);
  take("weight_decay", s.weight_decay);
  take("seed", s.seed);
  take("initial_scale", s.scaler.initial);
  take("growth", s.scaler.growth);
  take("backoff", s.scaler.backoff);
  take("growth_interval", s.scaler.growth_interval);
  take("overflow_at", s.overflow_at);
}

void append(std::string& bytes, std::span<const float> values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

/// Reads values from the front of the remaining file.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) throw std::runtime_error("the file ends too early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n');
    if (end == std::string_view::npos) throw std::runtime_error("the file ends too early");
    const std::string_view taken = take(end + 1);
    return taken.substr(0, end);
  }
  std::vector<float> floats(std::size_t count) {
    if (count > bytes_.size() / sizeof(float)) throw std::runtime_error("the file ends too early");
    std::vector<float> values(count);
    std::memcpy(values.data(), take(count * sizeof(float)).data(), count * sizeof(float));
    return values;
  }
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

Experiment parse(std::string_view bytes) {
  Reader file(bytes);
  const std::string_view first = file.line();
  if (!first.starts_with(kBegin)) throw std::runtime_error("the file is not a training checkpoint of this book");
  const std::string_view version_and_hash = first.substr(kBegin.size());
  const std::size_t comma = version_and_hash.find(", ");
  if (version_and_hash.substr(0, comma) != kVersion) {
    throw std::runtime_error(
        fmt::format("the checkpoint has version {}; allowed: version {}", version_and_hash.substr(0, comma), kVersion));
  }
  if (comma == std::string_view::npos || version_and_hash.substr(comma + 2) != book::hash(file.rest()))
    throw std::runtime_error("the file is damaged: its contents do not match the hash in its first line");

  const json header = json::parse(file.line());
  Experiment experiment;
  for_settings(experiment.settings,
               [&](const char* name, auto& value) { header.at("settings").at(name).get_to(value); });
  check(experiment.settings);
  experiment.text = file.take(header.at("text_bytes").get<std::size_t>());
  experiment.code = {header.at("tree"), worker::backend_named(header.at("backend").get<std::string>()),
                     header.value("chapters", std::vector<std::int64_t>{})};
  const auto weights = std::size_t(weight_count(experiment.settings.model));
  for (const json& j : header.at("runs")) {
    RunState run;
    const std::string precision = j.at("precision");
    const auto known = std::find_if(kPrecisions.begin(), kPrecisions.end(),
                                    [&](MixedPrecision p) { return precision == training::name(p); });
    if (known == kPrecisions.end())
      throw std::runtime_error("the checkpoint has a run in the unknown precision \"" + precision + "\"");
    run.precision = *known;
    run.updates = j.at("updates");
    run.random = j.at("random");
    run.scaler = {j.at("scale").get<float>(), j.at("good_steps").get<std::int64_t>()};
    run.weights = file.floats(weights);
    run.m = file.floats(weights);
    run.v = file.floats(weights);
    const auto steps = j.at("steps").get<std::size_t>();
    const std::vector<float> losses = file.floats(steps), scales = file.floats(steps);
    const std::string_view skips = file.take(steps);
    for (std::size_t i = 0; i < steps; ++i) run.steps.push_back({losses[i], scales[i], skips[i] != 0});
    if (!(run.scaler.scale > 0) || !std::isfinite(run.scaler.scale) || run.scaler.good_steps < 0 || run.updates < 0 ||
        run.updates > std::int64_t(steps)) {
      throw std::runtime_error("its scale or counters are invalid");
    }
    experiment.runs.push_back(std::move(run));
  }
  if (!file.rest().empty()) throw std::runtime_error("the file is longer than its second line states");
  return experiment;
}

}  // namespace

void write_checkpoint(const std::filesystem::path& file, const Experiment& experiment) {
  json settings, runs = json::array();
  for_settings(experiment.settings, [&](const char* name, const auto& value) { settings[name] = value; });
  for (const RunState& run : experiment.runs) {
    runs.push_back({{"precision", name(run.precision)},
                    {"updates", run.updates},
                    {"random", run.random},
                    {"scale", run.scaler.scale},
                    {"good_steps", run.scaler.good_steps},
                    {"steps", run.steps.size()}});
  }
  std::string content = json{
      {"settings", settings},
      {"text_bytes", experiment.text.size()},
      {"tree", experiment.code.tree},
      {"backend", experiment.code.backend ? name(*experiment.code.backend) : ""},
      {"chapters", experiment.code.chapters},
      {"runs", runs}}.dump();
  content += '\n';
  content += experiment.text;
  for (const RunState& run : experiment.runs) {
    append(content, run.weights);
    append(content, run.m);
    append(content, run.v);
    std::vector<float> losses, scales;
    std::string skips;
    for (const StepRecord& step : run.steps) {
      losses.push_back(step.loss);
      scales.push_back(step.scale);
      skips += char(step.skipped);
    }
    append(content, losses);
    append(content, scales);
    content += skips;
  }
  book::write_file(file, fmt::format("{}{}, {}\n", kBegin, kVersion, book::hash(content)) + content);
}

Experiment read_checkpoint(const std::filesystem::path& file) {
  try {
    return parse(book::read_file(file));
  } catch (const std::exception& error) {  // including missing or mistyped JSON members
    fail_input("{}: {}", file.string(), error.what());
  }
}

}  // namespace workbook::training
