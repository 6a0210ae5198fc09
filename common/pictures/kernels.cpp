// Facts about kernels: the tiles that thread blocks read, the events between two barriers and the requested bytes, from
// the simulator's record; and the rows of each warp, from the stages' descriptions.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "common/attention/mask_text.hpp"
#include "common/judge/trace_timeline.hpp"
#include "common/pictures/kinds.hpp"

namespace workbook::pictures {
namespace {

const book::Chapter& own_chapter(const Request& request) {
  if (request.chapter == nullptr) request.parameters.fail("the folder has no chapter.toml");
  return *request.chapter;
}

/// The launch that a picture shows, of the picture's own chapter. queries, keys, d, causal; launch: a part of the
/// kernel's name. book::ManifestError if no kernel matches.
judge::TracedLaunch traced_launch(const Request& request) {
  Parameters& p = request.parameters;
  const std::int64_t Nq = p.count("queries"), Nk = p.count("keys"), d = p.count("d");
  const std::string wanted = p.text("launch");
  judge::Trace trace = traced(request, own_chapter(request), Nq, Nk, d, p.flag("causal"));
  const auto launch = std::ranges::find_if(
      trace.launches, [&](const judge::TracedLaunch& l) { return l.kernel.find(wanted) != std::string::npos; });
  if (launch == trace.launches.end()) p.fail(fmt::format("no kernel's name contains \"{}\"", wanted));
  return std::move(*launch);
}

enum class Cell { skipped, computed, masked };

/// The tiles of S in head 0, with queries as rows, and what the thread blocks of one launch do with them.
struct Panel {
  std::string kernel;
  bool blocks_own_keys = false;  ///< a block keeps K/V tiles and iterates over Q tiles
  std::int64_t row_tile, column_tile;
  std::vector<std::vector<Cell>> cells;  ///< [tile of queries][tile of keys]
  struct Loop {
    std::int64_t own_first, own_last, first, last;  ///< tiles that a block keeps, and tiles that it iterates over
  };
  std::vector<Loop> loops;
};

using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// What the launch does with the tiles of S; nothing if it does not read both Q and K by tiles.
std::optional<Panel> panel_of(const judge::TracedLaunch& launch) {
  const judge::TracedTensor *Q = launch.tensor("Q"), *K = launch.tensor("K");
  if (Q == nullptr || K == nullptr || !Q->tiling || !K->tiling || Q->reads.empty() || K->reads.empty()) return {};
  Panel panel;
  panel.kernel = judge::short_name(launch.kernel);
  panel.row_tile = Q->tiling->tile_rows;
  panel.column_tile = K->tiling->tile_rows;
  panel.blocks_own_keys = judge::is_streamed(*Q, *K);
  panel.cells.assign(std::size_t(Q->tiling->tiles()),
                     std::vector<Cell>(std::size_t(K->tiling->tiles()), Cell::skipped));
  const judge::TracedTensor &own = panel.blocks_own_keys ? *K : *Q, &streamed = panel.blocks_own_keys ? *Q : *K;
  const auto masked = std::ranges::find(launch.notes, "masked tile", &judge::TracedNote::label);
  for (const auto& [block, own_runs] : own.tiles_of_block) {
    const std::int64_t own_first = own_runs.front().first, own_last = own_runs.back().second;
    if (own_last >= own.tiling->tiles() || !streamed.tiles_of_block.contains(block)) continue;  // another head
    const Runs& streamed_runs = streamed.tiles_of_block.at(block);
    panel.loops.push_back({own_first, own_last, streamed_runs.front().first, streamed_runs.back().second});
    const auto mark = [&](const Runs& runs, Cell cell) {
      for (const auto& [first, last] : runs) {
        for (std::int64_t along = first; along <= last; ++along) {
          for (std::int64_t at = own_first; at <= own_last; ++at) {
            (panel.blocks_own_keys ? panel.cells[std::size_t(along)][std::size_t(at)]
                                   : panel.cells[std::size_t(at)][std::size_t(along)]) = cell;
          }
        }
      }
    };
    mark(streamed_runs, Cell::computed);
    if (masked != launch.notes.end() && masked->values_of_block.contains(block))
      mark(masked->values_of_block.at(block), Cell::masked);
  }
  return panel;
}

/// The number of tiles that a block keeps.
std::int64_t tiles_kept(const Panel& panel) {
  std::int64_t most = 1;
  for (const Panel::Loop& loop : panel.loops) most = std::max(most, loop.own_last - loop.own_first + 1);
  return most;
}

/// ".": skipped, "#": computed, "m": masked; one text per row of tiles. The tiles that a block keeps are drawn as one.
Facts panels_facts(const std::vector<Panel>& panels, std::int64_t Nq, std::int64_t Nk, bool loops) {
  Facts launches = Facts::array();
  for (const Panel& panel : panels) {
    const std::int64_t kept = tiles_kept(panel), down = panel.blocks_own_keys ? 1 : kept,
                       across = panel.blocks_own_keys ? kept : 1;
    std::vector<std::string> rows;
    for (std::size_t i = 0; i < panel.cells.size(); i += std::size_t(down)) {
      std::string& text = rows.emplace_back();
      for (std::size_t j = 0; j < panel.cells[i].size(); j += std::size_t(across)) {
        const Cell cell = panel.cells[i][j];
        text += cell == Cell::skipped ? '.' : cell == Cell::masked ? 'm' : '#';
      }
    }
    launches.push_back({{"kernel", panel.kernel},
                        {"row_tile", panel.row_tile * down},
                        {"column_tile", panel.column_tile * across},
                        {"blocks_own_keys", panel.blocks_own_keys},
                        {"kept", kept * (panel.blocks_own_keys ? panel.column_tile : panel.row_tile)},
                        {"cells", rows}});
    for (const Panel::Loop& loop : loops ? panel.loops : std::vector<Panel::Loop>{})
      launches.back()["loops"].push_back({loop.own_first / kept, loop.own_last / kept, loop.first, loop.last});
  }
  return {{"queries", Nq}, {"keys", Nk}, {"launches", launches}};
}

std::vector<Panel> panels_of(const judge::Trace& trace) {
  std::vector<Panel> panels;
  for (const judge::TracedLaunch& launch : trace.launches) {
    if (auto panel = panel_of(launch)) panels.push_back(std::move(*panel));
  }
  return panels;
}

/// The mask described by a picture's text.
Mask mask_said(const Parameters& p, const std::string& text) {
  const std::optional<Mask> mask = mask_of(text);
  if (!mask) p.fail(fmt::format("mask: {}{}, not {}", mask_texts, cache_texts, text));
  return *mask;
}

}  // namespace

/// For the picture's own call and those in `also`: "queries keys Br Bc" each, optionally followed by another mask.
Facts tiles_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::int64_t Nq = p.count("queries"), Nk = p.count("keys"), d = p.count("d");
  const bool loops = p.flag("loops"), any_mask = p.has("mask");
  const Mask mask = any_mask ? mask_said(p, p.text("mask")) : Mask(p.flag("causal"));
  const std::vector<Panel> panels = panels_of(traced(request, own_chapter(request), Nq, Nk, d, mask));
  if (panels.empty()) p.fail("no launch of this chapter reads Q and K by tiles");
  Facts facts = panels_facts(panels, Nq, Nk, loops), more = Facts::array();
  facts["d"] = d;
  if (any_mask)
    facts["mask"] = mask.name();
  else
    facts["causal"] = mask.kind == Mask::causal;
  for (const std::string& text : p.has("also") ? p.texts("also") : std::vector<std::string>{}) {
    std::istringstream words(text);
    std::int64_t queries = 0, keys = 0;
    judge::TraceRequest tiles;
    if (!(words >> queries >> keys >> tiles.Br >> tiles.Bc)) p.fail("also: \"queries keys Br Bc\" each, not " + text);
    std::string other_mask;
    const Mask other = words >> other_mask ? mask_said(p, other_mask) : mask;
    const std::vector<Panel> others = panels_of(traced(request, own_chapter(request), queries, keys, d, other, tiles));
    more.push_back(panels_facts(others, queries, keys, false));
    if (!other_mask.empty()) more.back()["mask"] = other.name();
  }
  facts["also"] = more;
  return facts;
}

Facts blocks_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::int64_t Nq = p.count("queries"), Nk = p.count("keys"), d = p.count("d");
  Facts facts;
  for (const std::string& text : p.texts("masks")) {
    Facts more =
        panels_facts(panels_of(traced(request, own_chapter(request), Nq, Nk, d, mask_said(p, text))), Nq, Nk, false);
    for (Facts& launch : more["launches"]) {
      launch["kernel"] = text;
      if (!facts.is_null()) facts["launches"].push_back(launch);
    }
    if (facts.is_null()) facts = more;
  }
  facts["d"] = d;
  return facts;
}

Facts timeline_facts(const Request& request) {
  Parameters& p = request.parameters;
  const auto first = std::size_t(p.number("first")), count = std::size_t(p.count("count"));
  const judge::TracedLaunch launch = traced_launch(request);
  if (first >= launch.intervals.size())
    p.fail(fmt::format("first must be below {}, the number of intervals", launch.intervals.size()));
  Facts facts = judge::timeline_facts(launch);
  facts.update({{"queries", p.count("queries")},
                {"keys", p.count("keys")},
                {"d", p.count("d")},
                {"causal", p.flag("causal")},
                {"first", first},
                {"count", count}});
  return facts;
}

Facts waits_facts(const Request& request) {
  Parameters& p = request.parameters;
  const auto first = std::size_t(p.number("first")), count = std::size_t(p.count("count"));
  const judge::TracedLaunch launch = traced_launch(request);
  std::set<std::int64_t> ends;
  for (const judge::TracedWait& wait : launch.waits) ends.insert(wait.end);
  for (const judge::TracedFlight& flight : launch.flights) ends.insert(flight.end);
  if (first + count > ends.size() + 1)
    p.fail(fmt::format("first + count must be at most {}, the number of steps", ends.size() + 1));
  Facts facts{{"kernel", judge::short_name(launch.kernel)}, {"warps", launch.threads() / 32}};
  facts.update(judge::waits_facts(launch, /*lines=*/false));
  facts.update({{"first", first}, {"count", count}});
  return facts;
}

Facts owners_facts(const Request& request) {
  Parameters& p = request.parameters;
  const int d = p.count("d");
  const worker::StageDescription stage = described(request);
  const worker::StageTiles* tiles = stage.default_tiles(d);
  if (tiles == nullptr || !tiles->sizes.contains("Br") || !tiles->sizes.contains("warps"))
    p.fail("the stage has no tiles of queries and keys for this d");
  if (!stage.warps_split_keys && stage.rows_per_warp == 0) p.fail("the stage does not describe the rows of a warp");
  return {
      {"Br", tiles->sizes.at("Br")},       {"Bc", tiles->sizes.at("Bc")},       {"d", d},
      {"warps", tiles->sizes.at("warps")}, {"by_keys", stage.warps_split_keys}, {"rows_per_warp", stage.rows_per_warp}};
}

Facts packing_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::int64_t Nk = p.count("keys"), d = p.count("d");
  const std::string number = p.text("packing");
  const worker::StageDescription stage = described(request);
  const worker::StageTiles* tiles = stage.default_tiles(d);
  if (tiles == nullptr || !tiles->sizes.contains("Br")) p.fail("the stage has no Q tiles for this d");
  Facts runs = Facts::array();
  for (const double queries : p.numbers("lengths")) {
    Facts blocks = Facts::array(), bytes = Facts::array();
    const auto run = [&](std::map<std::string, double> numbers) {
      judge::TraceRequest trace;
      trace.numbers = std::move(numbers);
      return traced(request, own_chapter(request), std::int64_t(queries), Nk, d, Mask::none, trace).launches.at(0);
    };
    for (const double packing : {1., 2.}) {
      const judge::TracedLaunch launch = run({{number, packing}});
      const judge::TracedTensor *K = launch.tensor("K"), *V = launch.tensor("V");
      if (K == nullptr || V == nullptr) p.fail("the first launch does not read K and V");
      blocks.push_back(launch.blocks());
      bytes.push_back(K->read_bytes() + V->read_bytes());
    }
    const bool packs = run({}).blocks() < blocks.at(0).get<std::int64_t>();
    runs.push_back({{"queries", queries}, {"blocks", blocks}, {"bytes", bytes}, {"packs", packs}});
  }
  return {{"heads", p.count("heads")},
          {"queries", p.count("queries")},
          {"keys", Nk},
          {"d", d},
          {"Br", tiles->sizes.at("Br")},
          {"runs", runs}};
}

Facts traffic_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::vector<double> lengths = p.numbers("lengths");
  const std::int64_t d = p.count("d");
  Facts curves = Facts::array();
  for (const std::string& which : p.texts("chapters")) {
    const book::Chapter& chapter = request.workspace.book.chapter(which);
    std::vector<double> all_requested, all_least;
    for (const double length : lengths) {
      double& requested = all_requested.emplace_back(0);
      double& least = all_least.emplace_back(0);
      const judge::Trace trace = traced(request, chapter, std::int64_t(length), std::int64_t(length), d, false);
      for (const judge::TracedLaunch& launch : trace.launches) {
        for (const judge::TracedTensor& tensor : launch.tensors) {
          requested += double(tensor.read_bytes() + tensor.counter("store_bytes"));
          least += 32. * double(tensor.counter("unique_read_sectors") + tensor.counter("unique_written_sectors"));
        }
      }
    }
    curves.push_back({{"name", fmt::format("{}: {}", chapter.number, chapter.title)},
                      {"requested", all_requested},
                      {"least", all_least}});
  }
  return {{"lengths", lengths}, {"d", d}, {"curves", curves}};
}

}  // namespace workbook::pictures
