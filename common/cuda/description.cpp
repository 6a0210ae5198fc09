#include "common/cuda/description.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

namespace workbook::cuda {
namespace {

using nlohmann::json;

/// Operations by name. Constructed on first use, because operations are added before main in an unspecified order.
Operations::Table& operations() {
  static Operations::Table all;
  return all;
}

std::vector<StageOperations>& stages() {
  static std::vector<StageOperations> all;
  return all;
}

/// "32, 64 and 128"
template <class Range, class Text>
std::string list(const Range& values, Text text) {
  std::string result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) result += i + 1 < values.size() ? ", " : " and ";
    result += text(values[i]);
  }
  return result;
}

std::size_t shared_limit(const Description& stage, const Arguments* call) {
  const std::size_t device = stage.shared_limit ? stage.shared_limit() : SIZE_MAX;
  if (call == nullptr || !call->has("shared_limit")) return device;
  return std::min(device, std::size_t(call->integer("shared_limit")));
}

bool is_built(const Description& stage, int d, const Sizes& sizes) {
  return !stage.shared_bytes || stage.shared_bytes(d, sizes) > 0;
}
bool fits(const Description& stage, int d, const Sizes& sizes, std::size_t limit) {
  return is_built(stage, d, sizes) && (!stage.shared_bytes || stage.shared_bytes(d, sizes) <= limit);
}

/// Whether the call gives these sizes or leaves them open.
bool is_requested(const Description& stage, const Arguments& call, const Sizes& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (call.integer(stage.size_names[i], sizes[i]) != sizes[i]) return false;
  return true;
}

/// "Br = 48, Bc = 64": the sizes that the call gives.
std::string given_text(const Description& stage, const Arguments& call) {
  std::string text;
  for (const char* name : stage.size_names) {
    if (call.has(name))
      text += (text.empty() ? "" : ", ") + std::string(name) + " = " + std::to_string(call.integer(name));
  }
  return text;
}

/// Throws Unavailable if the requested sizes, or all sizes, are built for d but need more shared memory than the device
/// has.
void require_room(const Description& stage, const Arguments& call, int d) {
  if (!stage.shared_limit || !stage.shared_bytes) return;
  std::size_t least = SIZE_MAX;
  for (const Sizes& sizes : stage.sizes)
    if (is_requested(stage, call, sizes) && is_built(stage, d, sizes))
      least = std::min(least, stage.shared_bytes(d, sizes));
  const std::size_t device = stage.shared_limit();
  if (least == SIZE_MAX || least <= device) return;
  const std::string given = given_text(stage, call);
  throw Unavailable((given.empty() ? "the smallest kernel" : given) + " needs " + std::to_string(least) +
                    " bytes of shared memory per thread block for d = " + std::to_string(d) +
                    "; a thread block of this GPU has at most " + std::to_string(device));
}

[[noreturn]] void refuse_sizes(const Description& stage, const Arguments& call, int d, std::size_t limit) {
  std::vector<Sizes> allowed;
  for (const Sizes& sizes : stage.sizes) {
    if (fits(stage, d, sizes, limit)) allowed.push_back(sizes);
  }
  const auto& names = stage.size_names;
  const std::string given = given_text(stage, call);
  std::string message = (given.empty() ? "the kernels" : given) + ": not built for d = " + std::to_string(d) +
                        " with at most " + std::to_string(limit) + " bytes of shared memory per thread block; ";
  if (allowed.empty()) throw std::invalid_argument(message + "no sizes are");
  message += std::string("allowed: (") + names[0] + ", " + names[1] + ", " + names[2] + ") = ";
  throw std::invalid_argument(message + list(allowed, [](const Sizes& s) {
                                return "(" + std::to_string(s[0]) + ", " + std::to_string(s[1]) + ", " +
                                       std::to_string(s[2]) + ")";
                              }));
}

/// Numbers that every stage's call may have in addition to its setting, sizes and variants: see stage.hpp, timing.hpp
/// and worker_device.cpp.
constexpr const char* kNumbers[] = {
    "unobserved", "float_gradients", "workers", "lane_seed", "shared_limit", "trace",           "budget",  "backward",
    "rows",       "profile",         "sinks",   "sequences", "lse_gradient", "skipped_batches", "requests"};

bool is_known(const Description& stage, std::string_view name) {
  const auto is_it = [&](std::string_view known) { return known == name; };
  bool known = std::ranges::any_of(stage.size_names, is_it) || std::ranges::any_of(kNumbers, is_it) ||
               std::ranges::any_of(stage.variants, is_it, &Description::Variant::number);
  for_numbers(Setting(), [&](std::string_view number, auto) { known |= is_it(number); });
  return known;
}

void require_known_numbers(const Description& stage, const Arguments& call) {
  for (const std::string& name : call.names()) {
    if (is_known(stage, name)) continue;
    std::vector<std::string> own(stage.size_names.begin(), stage.size_names.end());
    for (const Description::Variant& variant : stage.variants) {
      if (std::find(own.begin(), own.end(), variant.number) == own.end()) own.push_back(variant.number);
    }
    throw std::invalid_argument(
        name + " = " + std::to_string(call.integer(name)) +
        ": this stage has no such number; allowed: " + list(own, [](const std::string& each) { return each; }));
  }
}

/// The first sizes of a stage, each replaced by the call's value if it gives one.
Sizes any_sizes(const Description& stage, const Arguments& call) {
  Sizes sizes = stage.sizes.front();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t value = call.integer(stage.size_names[i], sizes[i]);
    if (sizes[i] != 0 && value < 1)
      throw std::invalid_argument(std::string(stage.size_names[i]) + " = " + std::to_string(value) +
                                  ": allowed: a number from 1 on");
    sizes[i] = int(value);
  }
  return sizes;
}

std::vector<std::string> mask_names(const Description& stage) {
  std::vector<std::string> names;
  for (const Mask& mask : stage.serves.masks) names.emplace_back(part_name(mask));
  return names;
}

void require_served(const Description& stage, const Setting& setting) {
  if (const std::string_view lacking = part_not_in(stage.serves.masks, setting.mask); !lacking.empty())
    throw std::invalid_argument("mask = " + setting.mask.name() + ": this stage does not have " +
                                (lacking == part_name(setting.mask) ? "it" : std::string(lacking)) +
                                "; allowed: " + list(mask_names(stage), [](const std::string& each) { return each; }));
  const auto [B, H, Hkv, Nq, Nk, d] = setting.shape;
  if (H != Hkv && !stage.serves.shared_heads)
    throw std::invalid_argument("Hkv = " + std::to_string(Hkv) + ", H = " + std::to_string(H) +
                                ": in this stage no heads share K and V; allowed: Hkv = H");
}

// --- describe --------------------------------------------------------------------------------------------------------

/// One entry for each d and sizes that a stage can run with on this device. With the number "only_d", entries for that
/// d only, because a worker may contain no kernels for others.
json sizes_json(const Description& stage, const Arguments& call) {
  json all = json::array();
  const std::int64_t requested = call.integer("only_d", 0);
  const std::size_t limit = shared_limit(stage, &call);
  for (const int d : stage.head_dims.empty() ? std::vector<int>{0} : stage.head_dims) {
    if (requested != 0 && d != 0 && d != requested) continue;
    bool first = true;
    for (const Sizes& sizes : stage.sizes) {
      if (!fits(stage, d, sizes, limit)) continue;
      json entry{{"d", d == 0 ? json(nullptr) : json(d)}, {"default", first}};
      for (std::size_t i = 0; i < sizes.size(); ++i) entry[stage.size_names[i]] = sizes[i];
      entry["shared_bytes"] = stage.shared_bytes ? stage.shared_bytes(d, sizes) : 0;
      all.push_back(std::move(entry));
      first = false;
    }
  }
  return all;
}

json extra_json(const Description& stage, const Arguments& call) {
  json all = json::array();
  for (const ScratchArray& array : stage.extra) {
    json entry{{"name", array.name}, {"element_bytes", array.element_bytes}};
    if (call.has("Nq")) entry["bytes"] = array.element_bytes * array.size({.shape = call.shape(), .mask = {}});
    all.push_back(std::move(entry));
  }
  return all;
}

bool has_instructions(int device, int compute, bool only) {
  return only ? device == compute : device >= compute;
}

json stage_json(const Description& stage, const Arguments& call) {
  json variants = json::array();
  for (const Description::Variant& variant : stage.variants) {
    json entry = stage_json(variant.description, call);
    entry["number"] = variant.number;
    entry["value"] = variant.value;
    variants.push_back(std::move(entry));
  }
  return {{"pass", stage.pass},
          {"operation", stage.operation},
          {"element", stage.element},
          {"float_gradients", stage.float_gradients},
          {"masks", mask_names(stage)},
          {"shared_heads", stage.serves.shared_heads},
          {"head_dims", stage.head_dims.empty() ? json(nullptr) : json(stage.head_dims)},
          {"tiles", sizes_json(stage, call)},
          {"any_tiles", stage.any_sizes},
          {"rows_per_warp", stage.rows_per_warp},
          {"compute", stage.compute},
          {"compute_only", stage.compute_only},
          {"runs_here",
           !stage.device_compute || has_instructions(stage.device_compute(), stage.compute, stage.compute_only)},
          {"warps_split_keys", stage.warps_split_keys},
          {"extra", extra_json(stage, call)},
          {"variants", variants}};
}

// With the numbers of Arguments::shape(): extra memory for that shape. With only_d: tiles for this d only. -> text, as
// JSON:
//   {"stages": [{"pass": "forward", "operation": "forward", "element": "float16", "float_gradients": false,
//      "masks": ["none", …], "shared_heads": false, "head_dims": [32, 64, 128] or null, "any_tiles": false,
//      "rows_per_warp": 32, "compute": 80, "compute_only": false, "runs_here": true, "warps_split_keys": false,
//      "extra": [{"name": "S", "element_bytes": 4, "bytes": 4096}],
//      "tiles": [{"d": 64, "default": true, "Br": 128, "Bc": 64, "warps": 4, "shared_bytes": …}],
//      "variants": [{"number": "kernel", "value": 1, … as a stage}]}],
//    "operations": ["forward", …]}
// A tile's "d" is null if the stage supports any d. The names are "Bc", "Br", "warps" in a backward pass.
void describe(const Arguments& call) {
  json document{{"stages", json::array()}, {"operations", json::array()}};
  for (const StageOperations& stage : stages()) document["stages"].push_back(stage_json(stage.description, call));
  for (const auto& [name, run] : Operations::all()) document["operations"].push_back(name);
  answer_text(call, document.dump());
}

// See timing.hpp. The number "backward" selects the pass; without it, the first stage with a "bench" is timed.
// `element` restricts the choice to stages for that element.
void bench(const Arguments& call, std::optional<Element> element) {
  for (const StageOperations& stage : stages()) {
    const bool pass_wanted =
        !call.has("backward") || (stage.description.pass == "backward") == (call.integer("backward") != 0);
    const bool element_wanted = !element || stage.description.element == element;
    if (stage.bench && pass_wanted && element_wanted) return stage.bench(call);
  }
  throw std::invalid_argument("backward = " + std::to_string(call.integer("backward")) +
                              ": this chapter has no stage of that pass to time");
}

}  // namespace

Setting Arguments::setting() const {
  Setting setting = setting_from([&](std::string_view name) { return number(name); });
  const auto take_all = [&]<class T>(std::vector<T>& values, std::string_view name) {
    const std::span<T> given = array<T>(name);
    values.assign(given.begin(), given.end());
  };
  if (integer("sinks", 0) > 0) take_all(setting.mask.sink, "sink");
  if (integer("sequences", 0) > 0) take_all(setting.mask.lengths, "lengths");
  if (integer("requests", 0) > 0) take_all(setting.mask.cache, "cache");
  return setting;
}

Operations::Operations(std::initializer_list<Operation> added) {
  for (const Operation& operation : added) add(operation);
}
void Operations::add(const Operation& operation) {
  if (!operations().emplace(operation.name, operation.run).second)
    throw std::logic_error("two operations have the name " + operation.name);
}
const Operations::Table& Operations::all() {
  return operations();
}

Description::Description() = default;
Description::Description(const Description&) = default;
Description::Description(Description&&) noexcept = default;
Description& Description::operator=(const Description&) = default;
Description& Description::operator=(Description&&) noexcept = default;
Description::~Description() = default;

void Description::add_variant(const char* number, int value, const Description& description) {
  variants.push_back({number, value, description});
}

void require_compute(int device, int compute, bool only) {
  if (has_instructions(device, compute, only)) return;
  const auto text = [](int x) { return std::to_string(x / 10) + "." + std::to_string(x % 10); };
  throw Unavailable("these kernels need compute capability " + text(compute) + (only ? " exactly" : "") +
                    "; this GPU has " + text(device));
}

int chosen_variant(const Description& stage, const Arguments& call) {
  require_known_numbers(stage, call);
  for (const Description::Variant& requested : stage.variants) {
    const std::int64_t value = call.integer(requested.number, 0);
    if (value == 0) continue;
    std::vector<int> allowed{0};
    for (std::size_t i = 0; i < stage.variants.size(); ++i) {
      if (stage.variants[i].number != requested.number) continue;
      if (stage.variants[i].value == value) return int(i);
      allowed.push_back(stage.variants[i].value);
    }
    throw std::invalid_argument(requested.number + " = " + std::to_string(value) + ": allowed: " +
                                list(allowed, [](int v) { return std::to_string(v); }) + " (0: the chapter's kernels)");
  }
  return -1;
}

Sizes chosen_sizes(const Description& stage, const Arguments& call) {
  const auto& dims = stage.head_dims;
  const std::int64_t d = call.integer("d");
  if (!dims.empty() && std::find(dims.begin(), dims.end(), d) == dims.end())
    throw std::invalid_argument("d = " + std::to_string(d) + " is not supported; allowed: " + list(dims, [](int each) {
                                  return std::to_string(each);
                                }));
  require_served(stage, call.setting());
  if (stage.device_compute) require_compute(stage.device_compute(), stage.compute, stage.compute_only);
  if (stage.sizes.empty()) return {};
  if (stage.any_sizes) return any_sizes(stage, call);
  const std::size_t limit = shared_limit(stage, &call);
  for (const Sizes& sizes : stage.sizes)
    if (is_requested(stage, call, sizes) && fits(stage, int(d), sizes, limit)) return sizes;
  require_room(stage, call, int(d));
  refuse_sizes(stage, call, int(d), limit);
}

void answer_text(const Arguments& call, const std::string& text) {
  const auto bytes = call.array<std::uint8_t>("text");
  if (text.size() > bytes.size())
    throw std::length_error("the answer has " + std::to_string(text.size()) + " bytes; the call has space for " +
                            std::to_string(bytes.size()));
  std::copy(text.begin(), text.end(), bytes.begin());
}

std::string folder_of(const char* file) {
  const std::string path = file;
  const std::size_t end = path.rfind('/');
  if (end == std::string::npos) return "";
  const std::size_t before = path.rfind('/', end - 1);
  return path.substr(before + 1, end - before - 1);
}

const std::vector<StageOperations>& all_stages() {
  return stages();
}

void add_stage(StageOperations stage) {
  if (!stages().empty() && stages().front().folder != stage.folder) {
    stages().push_back(std::move(stage));
    return;
  }
  Description& description = stage.description;
  const auto same_operation = [&](const StageOperations& other) {
    return other.description.operation == description.operation && other.description.element != description.element;
  };
  const std::string suffix =
      std::any_of(stages().begin(), stages().end(), same_operation) ? "_" + name(description.element) : "";
  const std::optional<Element> element = suffix.empty() ? std::nullopt : std::optional(description.element);
  description.operation += suffix;
  if (stages().empty()) Operations::add({"describe", describe});
  if (stage.bench && Operations::all().count("bench" + suffix) == 0)
    Operations::add({"bench" + suffix, [=](const Arguments& call) { bench(call, element); }});
  Operations::add({description.operation, stage.run});
  if (stage.blocks) Operations::add({"blocks" + suffix, stage.blocks});
  stages().push_back(std::move(stage));
}

}  // namespace workbook::cuda
