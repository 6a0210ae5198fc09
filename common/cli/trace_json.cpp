#include "common/cli/trace_json.hpp"

#include "common/cli/session.hpp"

namespace workbook::cli {
namespace {

using nlohmann::json;

json map_json(const judge::TileMap& map) {
  json rows = json::array();
  for (std::size_t i = 0; i < map.rows.size(); ++i) {
    json reads = json::array(), masked = json::array();
    for (std::size_t j = 0; j < map.columns(); ++j) {
      reads.push_back(map.cells[i][j].reads);
      if (map.cells[i][j].masked) masked.push_back(j);
    }
    rows.push_back({{"row", map.rows[i]}, {"reads", reads}, {"masked", masked}});
  }
  return {{"tensors", map.tensors},
          {"tile_rows", map.tile_rows},
          {"row_tensor", map.row_tensor.empty() ? json(nullptr) : json(map.row_tensor)},
          {"row_tile_rows", map.row_tensor.empty() ? json(nullptr) : json(map.row_tile_rows)},
          {"heads", map.matrices},
          {"divided", map.divided},
          {"rows", rows}};
}

json costs_json(const judge::LineCosts& costs) {
  return {{"shared_wavefronts", costs.wavefronts},
          {"shared_ideal", costs.ideal},
          {"ldsm", costs.ldsm},
          {"sectors", costs.sectors}};
}

/// "beside": by kernel name, null without a counterpart.
json beside_json(const std::vector<judge::TraceBeside>& beside,
                 const std::vector<std::optional<judge::LineCosts>>& costs) {
  json all = json::object();
  for (std::size_t i = 0; i < beside.size(); ++i)
    all[beside[i].name] = costs[i] ? costs_json(*costs[i]) : json(nullptr);
  return all;
}

}  // namespace

json launch_json(const judge::TracedLaunch& launch) {
  json tensors = json::array(), notes = json::array(), maps = json::array();
  for (const judge::TracedTensor& tensor : launch.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"bytes", tensor.bytes},
                       {"times_read", number_json(tensor.times_read())},
                       {"times_written", number_json(tensor.times_written())},
                       {"counters", tensor.counters}});
  }
  for (const judge::TracedNote& note : launch.notes) notes.push_back({{"label", note.label}, {"count", note.count()}});
  for (const judge::TileMap& map : tile_maps(launch)) maps.push_back(map_json(map));
  return {{"kernel", launch.kernel},
          {"device", launch.device},
          {"grid", launch.grid},
          {"block", launch.block},
          {"shared_bytes", launch.shared_bytes},
          {"counters", launch.counters},
          {"tensors", tensors},
          {"notes", notes},
          {"maps", maps},
          {"reports", launch.reports}};
}

json lines_json(const std::vector<judge::ComparedPart>& parts, const std::vector<judge::TraceBeside>& beside) {
  json all = json::array();
  for (const judge::ComparedPart& part : parts) {
    json lines = json::array();
    for (const judge::ComparedLine& line : part.lines) {
      lines.push_back({{"line", line.line},
                       {"text", line.text},
                       {"costs", costs_json(line.costs)},
                       {"beside", beside_json(beside, line.beside)},
                       {"worst", line.worst}});
    }
    all.push_back({{"file", part.file},
                   {"exercise", part.exercise.empty() ? json(nullptr) : json(part.exercise)},
                   {"function", part.function},
                   {"costs", costs_json(part.costs)},
                   {"beside", beside_json(beside, part.beside)},
                   {"lines", lines}});
  }
  return all;
}

}  // namespace workbook::cli
