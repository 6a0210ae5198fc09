#include "common/worker/reports.hpp"

namespace workbook::worker {
namespace {

using nlohmann::json;

json side_json(const simt::Side& side) {
  return {{"action", side.action},
          {"file", side.source.file},
          {"line", side.source.line},
          {"function", side.source.function},
          {"known_as", side.source.known_as},
          {"warp", side.warp},
          {"lanes", side.lanes}};
}

simt::Side side_from_json(const json& json) {
  simt::Side side;
  side.action = json.at("action");
  side.source = {json.at("file"), json.at("line"), json.at("function"), json.at("known_as")};
  side.warp = json.at("warp");
  side.lanes = json.at("lanes");
  return side;
}

}  // namespace

json reports_json(const std::vector<simt::Report>& reports) {
  json all = json::array();
  for (const simt::Report& report : reports) {
    all.push_back({{"kind", simt::name(report.mistake)},
                   {"variable", report.variable},
                   {"what", report.what},
                   {"advice", report.advice},
                   {"side", side_json(report.side)},
                   {"other", report.other ? side_json(*report.other) : json(nullptr)},
                   {"block", report.block},
                   {"count", report.count}});
  }
  return all;
}

std::vector<simt::Report> reports_from_json(const json& json) {
  std::vector<simt::Report> reports;
  for (const auto& each : json) {
    simt::Report report{};
    report.mistake = simt::mistake_named(each.at("kind").get<std::string>());
    report.variable = each.at("variable");
    report.what = each.at("what");
    report.advice = each.at("advice");
    report.side = side_from_json(each.at("side"));
    if (!each.at("other").is_null()) report.other = side_from_json(each.at("other"));
    report.block = each.at("block").get<std::array<std::uint32_t, 3>>();
    report.count = each.at("count");
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace workbook::worker
