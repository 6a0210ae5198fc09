#include "common/worker/description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace workbook::worker {
namespace {

using nlohmann::json;

constexpr std::size_t kMostText = std::size_t(1) << 16;

StageTiles tiles_from(const json& entry) {
  StageTiles tiles;
  for (const auto& [name, value] : entry.items()) {
    if (name == "d") {
      if (!value.is_null()) tiles.d = value.get<int>();
    } else if (name == "default") {
      tiles.is_default = value;
    } else if (name == "shared_bytes") {
      tiles.shared_bytes = value;
    } else {
      tiles.sizes[name] = value;
    }
  }
  return tiles;
}

StageDescription stage_from(const json& entry) {
  StageDescription stage;
  stage.pass = entry.at("pass");
  stage.operation = entry.at("operation");
  stage.element = entry.at("element");
  stage.float_gradients = entry.at("float_gradients");
  for (const std::string name : entry.at("masks")) stage.masks.push_back(part_named(name).value());
  stage.shared_heads = entry.at("shared_heads");
  if (!entry.at("head_dims").is_null()) stage.head_dims = entry.at("head_dims").get<std::vector<int>>();
  for (const json& tiles : entry.at("tiles")) stage.tiles.push_back(tiles_from(tiles));
  stage.any_tiles = entry.at("any_tiles");
  stage.rows_per_warp = entry.at("rows_per_warp");
  stage.warps_split_keys = entry.at("warps_split_keys");
  stage.compute = entry.at("compute");
  stage.compute_only = entry.at("compute_only");
  stage.runs_here = entry.at("runs_here");
  for (const json& array : entry.at("extra")) stage.extra.push_back({array.at("name"), array.at("bytes")});
  stage.number = entry.value("number", "");
  stage.value = entry.value("value", 0);
  for (const json& variant : entry.at("variants")) stage.variants.push_back(stage_from(variant));
  return stage;
}

}  // namespace

bool StageDescription::does(std::int64_t d) const {
  return !head_dims || std::find(head_dims->begin(), head_dims->end(), d) != head_dims->end();
}

bool StageDescription::has(const Mask& mask) const {
  return part_not_in(masks, mask).empty();
}

const StageTiles* StageDescription::default_tiles(std::int64_t d) const {
  const auto found = std::find_if(tiles.begin(), tiles.end(),
                                  [&](const StageTiles& t) { return t.is_default && (!t.d || *t.d == d); });
  return found == tiles.end() ? nullptr : &*found;
}

bool WorkerDescription::has(const std::string& operation) const {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

const StageDescription* WorkerDescription::find(const std::string& operation) const {
  const auto found =
      std::find_if(stages.begin(), stages.end(), [&](const StageDescription& s) { return s.operation == operation; });
  return found == stages.end() ? nullptr : &*found;
}

const StageDescription* WorkerDescription::find(const std::string& pass, Element element) const {
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [&](const StageDescription& s) { return s.pass == pass && s.element == element; });
  return found == stages.end() ? nullptr : &*found;
}

WorkerDescription describe(const std::function<Reply(const Call&)>& send, const Shape& shape, std::int64_t only_d) {
  Call request("describe");
  for_shape_numbers(shape, [&](const char* name, std::int64_t value) { request.number(name, double(value)); });
  if (only_d != 0) request.number("only_d", double(only_d));
  request.output<std::uint8_t>("text", kMostText);
  const Reply reply = send(request);
  try {
    const json document = json::parse(text_of(reply));
    WorkerDescription description;
    for (const json& stage : document.at("stages")) description.stages.push_back(stage_from(stage));
    description.operations = document.at("operations").get<std::vector<std::string>>();
    return description;
  } catch (const json::exception& error) {
    throw Failure(Ending::broke_protocol, fmt::format("the description of its stages is invalid: {}", error.what()));
  }
}

std::string text_of(const Reply& reply) {
  const std::vector<std::byte>& bytes = reply.outputs.at("text");
  const auto end = std::find(bytes.begin(), bytes.end(), std::byte{0xFF});
  return {reinterpret_cast<const char*>(bytes.data()), std::size_t(end - bytes.begin())};
}

}  // namespace workbook::worker
