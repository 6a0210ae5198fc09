#include "common/judge/trace_launch.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "common/judge/observation.hpp"

namespace workbook::judge {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TraceTiling, matrices, rows, row_bytes, tile_rows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TracedInterval, counters, tensors)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TracedLine, file, line, function, counters, worst)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TracedWait, warp, what, file, line, begin, end, interval)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TracedFlight, warp, what, barrier, begin, end, interval, last)

namespace {

using nlohmann::json;
using Runs = std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>>;

Runs runs_of(const json& list) {
  Runs runs;
  for (const json& run : list) runs[run.at(0)].emplace_back(run.at(1), run.at(2));
  return runs;
}

TracedTensor tensor_of(const json& record) {
  TracedTensor tensor;
  tensor.name = record.at("name");
  tensor.bytes = record.at("bytes");
  tensor.counters = record.at("counters").get<std::map<std::string, std::int64_t>>();
  record.at("tiling").get_to(tensor.tiling);
  for (const json& run : record.at("reads")) {
    tensor.reads.insert(tensor.reads.end(), run.at(0).get<std::size_t>(), run.at(1).get<double>());
  }
  tensor.tiles_of_block = runs_of(record.at("blocks"));
  return tensor;
}

TracedLaunch launch_of(const json& record) {
  TracedLaunch launch;
  launch.kernel = record.at("kernel");
  launch.device = record.value("device", std::int64_t(0));
  record.at("grid").get_to(launch.grid);
  record.at("block").get_to(launch.block);
  launch.shared_bytes = record.at("shared_bytes");
  launch.registers = record.value("registers", std::int64_t(0));
  launch.counters = record.at("counters").get<std::map<std::string, std::int64_t>>();
  for (const json& tensor : record.at("tensors")) launch.tensors.push_back(tensor_of(tensor));
  for (const json& note : record.at("notes")) {
    launch.notes.push_back({note.at("label"), runs_of(note.at("values"))});
  }
  record.at("intervals").get_to(launch.intervals);
  record.at("lines").get_to(launch.lines);
  record.at("waits").get_to(launch.waits);
  record.at("flights").get_to(launch.flights);
  for (const json& values : record.at("values")) {
    TracedValues& row = launch.values.emplace_back(TracedValues{values.at("label"), values.at("row"), {}});
    for (const json& value : values.at("at")) row.at.emplace_back(value.at(0), number_from_json(value.at(1)));
  }
  launch.reports = record.at("reports").get<std::vector<std::string>>();
  return launch;
}

std::optional<double> ratio(std::int64_t sectors, std::int64_t unique) {
  return unique == 0 ? std::nullopt : std::optional(double(sectors) / double(unique));
}

/// Whether every block that reads the tensor reads exactly one tile of it.
bool one_tile_per_block(const TracedTensor& tensor) {
  return !tensor.tiles_of_block.empty() &&
         std::all_of(tensor.tiles_of_block.begin(), tensor.tiles_of_block.end(), [](const auto& entry) {
           return entry.second.size() == 1 && entry.second[0].first == entry.second[0].second;
         });
}

/// The number of blocks that read each tile.
std::vector<std::int64_t> readers_of(const TracedTensor& tensor) {
  std::vector<std::int64_t> readers(tensor.reads.size(), 0);
  for (const auto& [block, runs] : tensor.tiles_of_block) {
    for (const auto& [first, last] : runs) {
      for (std::int64_t tile = first; tile <= last; ++tile) ++readers.at(std::size_t(tile));
    }
  }
  return readers;
}

/// The number of tile reads of the tensor by blocks that read the other tensor too.
double tile_reads_beside(const TracedTensor& tensor, const TracedTensor& other) {
  const std::vector<std::int64_t> readers = readers_of(tensor);
  double reads = 0;
  for (const auto& [block, runs] : tensor.tiles_of_block) {
    if (!other.tiles_of_block.contains(block)) continue;
    for (const auto& [first, last] : runs) {
      for (auto tile = std::size_t(first); tile <= std::size_t(last); ++tile)
        reads += tensor.reads[tile] / double(readers[tile]);
    }
  }
  return reads;
}

/// The maps of one tensor's tiles, one per matrix. `own`: the tensor whose tiles are the rows; null: the rows are
/// blocks.
std::vector<TileMap> maps_of(const TracedLaunch& launch, const TracedTensor& tensor, const TracedTensor* own) {
  const std::int64_t columns = tensor.tiling->tiles(), own_tiles = own == nullptr ? 0 : own->tiling->tiles();
  const std::vector<std::int64_t> readers = readers_of(tensor);
  // Masked tiles are among those over which a block loops, not among those that it owns.
  const bool streamed = std::none_of(launch.tensors.begin(), launch.tensors.end(),
                                     [&](const TracedTensor& other) { return is_streamed(other, tensor); });
  const TracedNote* masked = nullptr;
  for (const TracedNote& note : launch.notes) {
    if (streamed && note.label == "masked tile") masked = &note;
  }
  const auto is_masked = [&](std::int64_t block, std::int64_t column) {
    if (masked == nullptr || !masked->values_of_block.contains(block)) return false;
    const auto& runs = masked->values_of_block.at(block);
    return std::any_of(runs.begin(), runs.end(),
                       [&](const auto& run) { return run.first <= column && column <= run.second; });
  };

  std::map<std::int64_t, TileMap> maps;  // by matrix
  for (const auto& [block, runs] : tensor.tiles_of_block) {
    for (const auto& [first, last] : runs) {
      for (std::int64_t tile = first; tile <= last; ++tile) {
        const std::int64_t column = tile % columns;
        const std::int64_t own_tile = own == nullptr ? 0 : own->tiles_of_block.at(block)[0].first;
        const std::int64_t matrix = own == nullptr ? tile / columns : own_tile / own_tiles;
        TileMap& map = maps[matrix];
        if (map.tensors.empty()) {
          map.tensors = {tensor.name};
          map.tile_rows = tensor.tiling->tile_rows;
          map.matrices = {matrix};
          if (own != nullptr) {
            map.row_tensor = own->name;
            map.row_tile_rows = own->tiling->tile_rows;
            map.cells.assign(std::size_t(own_tiles), std::vector<TileCell>(std::size_t(columns)));
            for (std::int64_t row = 0; row < own_tiles; ++row) map.rows.push_back(row);
          }
        }
        if (own == nullptr && (map.rows.empty() || map.rows.back() != block)) {
          map.rows.push_back(block);
          map.cells.emplace_back(std::size_t(columns));
        }
        TileCell& cell =
            (own == nullptr ? map.cells.back() : map.cells[std::size_t(own_tile % own_tiles)])[std::size_t(column)];
        const double share = tensor.reads[std::size_t(tile)] / double(readers[std::size_t(tile)]);
        cell.reads += share;
        cell.masked = cell.masked || is_masked(block, column);
        map.divided = map.divided || (readers[std::size_t(tile)] > 1 && share != 1);
      }
    }
  }
  std::vector<TileMap> list;
  for (auto& [matrix, map] : maps) list.push_back(std::move(map));
  return list;
}

}  // namespace

bool is_streamed(const TracedTensor& streamed, const TracedTensor& kept) {
  const double streamed_reads = tile_reads_beside(streamed, kept), kept_reads = tile_reads_beside(kept, streamed);
  constexpr double rounding = 1e-6;  // shares of a tile's reads are fractions
  if (std::abs(streamed_reads - kept_reads) > rounding) return streamed_reads > kept_reads;
  return streamed_reads > 0 && streamed.tiles_of_block.size() < kept.tiles_of_block.size();
}

std::optional<double> TracedTensor::times_read() const {
  return ratio(read_sectors(), counter("unique_read_sectors"));
}
std::optional<double> TracedTensor::times_written() const {
  return ratio(written_sectors(), counter("unique_written_sectors"));
}

std::int64_t TracedTensor::bulk(const char* name) const {
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

std::int64_t TracedLine::counter(const std::string& name) const {
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

double TracedTensor::tile_reads() const {
  return std::accumulate(reads.begin(), reads.end(), 0.0);
}

std::int64_t TracedNote::count() const {
  std::int64_t count = 0;
  for (const auto& [block, runs] : values_of_block) {
    for (const auto& [first, last] : runs) count += last - first + 1;
  }
  return count;
}

std::int64_t TracedInterval::counter(const std::string& name) const {
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

std::int64_t TracedInterval::counter(const std::string& tensor, const std::string& name) const {
  const auto touched = tensors.find(tensor);
  if (touched == tensors.end()) return 0;
  const auto found = touched->second.find(name);
  return found == touched->second.end() ? 0 : found->second;
}

const TracedTensor* TracedLaunch::tensor(const std::string& name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

double TileMap::most_reads() const {
  double most = 0;
  for (const auto& row : cells) {
    for (const TileCell& cell : row) most = std::max(most, cell.reads);
  }
  return most;
}

Trace parse_trace(const std::string& text) {
  Trace trace;
  try {
    const json record = json::parse(text);
    if (record.contains("bytes")) {
      trace.too_large = record.at("bytes");
      return trace;
    }
    for (const json& launch : record.at("launches")) trace.launches.push_back(launch_of(launch));
    for (const json& sent : record.value("transfers", json::array()))
      trace.transfers.push_back({sent.at("from"), sent.at("to"), sent.at("bytes"), sent.at("step")});
    trace.reports = record.at("reports").get<std::vector<std::string>>();
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string("cannot parse the record of the launches: ") + error.what());
  }
  return trace;
}

std::vector<TileMap> tile_maps(const TracedLaunch& launch) {
  std::vector<const TracedTensor*> tiled;
  for (const TracedTensor& tensor : launch.tensors) {
    if (tensor.tiling && !tensor.tiles_of_block.empty()) tiled.push_back(&tensor);
  }
  // The rows are tiles of the first tensor of which each block reads one tile, if every block that reads other tensors
  // reads this one too.
  const auto own_at = std::find_if(tiled.begin(), tiled.end(), [&](const TracedTensor* own) {
    return one_tile_per_block(*own) && std::all_of(tiled.begin(), tiled.end(), [&](const TracedTensor* other) {
             return std::all_of(other->tiles_of_block.begin(), other->tiles_of_block.end(),
                                [&](const auto& entry) { return own->tiles_of_block.contains(entry.first); });
           });
  });
  const TracedTensor* own = own_at == tiled.end() ? nullptr : *own_at;
  // The columns are the other tensors. Those with one tile per block are used only if there are no others.
  std::vector<const TracedTensor*> streamed;
  for (const bool single : {false, true}) {
    if (!streamed.empty()) break;
    for (const TracedTensor* tensor : tiled) {
      if (tensor != own && one_tile_per_block(*tensor) == single) streamed.push_back(tensor);
    }
  }

  std::vector<TileMap> all;
  for (const TracedTensor* tensor : streamed) {
    for (TileMap& map : maps_of(launch, *tensor, own)) {
      // Matrices with equal cells share a map, and so do tensors. Rows that are blocks always have different indices.
      const auto alike = [&](const TileMap& other) {
        return other.cells == map.cells && other.tile_rows == map.tile_rows && other.divided == map.divided;
      };
      const auto same_tensor = std::find_if(
          all.begin(), all.end(), [&](const TileMap& other) { return other.tensors == map.tensors && alike(other); });
      if (same_tensor == all.end()) {
        all.push_back(std::move(map));
      } else {
        same_tensor->matrices.push_back(map.matrices[0]);
      }
    }
  }
  std::vector<TileMap> merged;
  for (TileMap& map : all) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const TileMap& other) {
      return other.cells == map.cells && other.matrices == map.matrices && other.rows == map.rows &&
             other.tile_rows == map.tile_rows;
    });
    if (same == merged.end()) {
      merged.push_back(std::move(map));
    } else {
      same->tensors.push_back(map.tensors[0]);
    }
  }
  // The maps with most reads come first: those of the tensors over which the blocks loop.
  const auto reads = [](const TileMap& map) {
    double sum = 0;
    for (const auto& row : map.cells) {
      for (const TileCell& cell : row) sum += cell.reads;
    }
    return sum;
  };
  std::stable_sort(merged.begin(), merged.end(),
                   [&](const TileMap& a, const TileMap& b) { return reads(a) > reads(b); });
  return merged;
}

}  // namespace workbook::judge
