// What kernels do: the tiles that their blocks read, what happens between two barriers, the bytes that they ask for, as
// the simulator records it; and which warp has what, as their stages say it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <sstream>
#include <utility>

#include "common/attention/shape.hpp"
#include "common/book/text.hpp"
#include "common/judge/trace_timeline.hpp"
#include "common/pictures/axis.hpp"
#include "common/pictures/kinds.hpp"

namespace workbook::pictures {
const book::Chapter& own_chapter(const Request& request) {
  if (request.chapter == nullptr) request.parameters.fail("there is no chapter.toml beside it");
  return *request.chapter;
}

judge::TracedLaunch traced_launch(const Request& request) {
  Parameters& p = request.parameters;
  const std::int64_t Nq = p.count("queries"), Nk = p.count("keys"), d = p.count("d");
  const std::string wanted = p.text("launch");
  judge::Trace trace = traced(request, own_chapter(request), Nq, Nk, d, p.flag("causal"));
  const auto launch = std::ranges::find_if(
      trace.launches, [&](const judge::TracedLaunch& l) { return l.kernel.find(wanted) != std::string::npos; });
  if (launch == trace.launches.end()) p.fail(fmt::format("no kernel is called \"{}\"", wanted));
  return std::move(*launch);
}

namespace {

/// A name without namespace and template arguments: "ns::kernel<64>" -> "kernel".
std::string short_name(const std::string& kernel) {
  const std::string name = kernel.substr(0, kernel.find('<'));
  const std::size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

// --- Tiles -----------------------------------------------------------------------------------------------------------

enum class Cell { skipped, computed, masked };

/// The tiles of S in head 0, queries down, and what the blocks of one launch do with them.
struct Panel {
  std::string kernel;
  bool blocks_own_keys = false;  ///< a block keeps rows of K and V, and walks over those of Q
  std::int64_t row_tile, column_tile;
  std::vector<std::vector<Cell>> cells;  ///< [tile of queries][tile of keys]
  struct Walk {
    std::int64_t own_first, own_last, first, last;  ///< tiles that a block keeps, and that it walks over
  };
  std::vector<Walk> walks;
};

using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// What the launch does with the product of Q's and K's tiles; nothing if it does not read both by tiles.
std::optional<Panel> panel_of(const judge::TracedLaunch& launch) {
  const judge::TracedTensor *Q = launch.tensor("Q"), *K = launch.tensor("K");
  if (Q == nullptr || K == nullptr || !Q->tiling || !K->tiling || Q->reads.empty() || K->reads.empty()) return {};
  Panel panel;
  panel.kernel = short_name(launch.kernel);
  panel.row_tile = Q->tiling->tile_rows;
  panel.column_tile = K->tiling->tile_rows;
  panel.blocks_own_keys = judge::is_walked_over(*Q, *K);
  panel.cells.assign(std::size_t(Q->tiling->tiles()),
                     std::vector<Cell>(std::size_t(K->tiling->tiles()), Cell::skipped));
  const judge::TracedTensor &own = panel.blocks_own_keys ? *K : *Q, &walked = panel.blocks_own_keys ? *Q : *K;
  const auto masked = std::ranges::find(launch.notes, "masked tile", &judge::TracedNote::label);
  for (const auto& [block, own_runs] : own.tiles_of_block) {
    const std::int64_t own_first = own_runs.front().first, own_last = own_runs.back().second;
    if (own_last >= own.tiling->tiles() || !walked.tiles_of_block.contains(block)) continue;  // another head
    const Runs& walked_runs = walked.tiles_of_block.at(block);
    panel.walks.push_back({own_first, own_last, walked_runs.front().first, walked_runs.back().second});
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
    mark(walked_runs, Cell::computed);
    if (masked != launch.notes.end() && masked->values_of_block.contains(block))
      mark(masked->values_of_block.at(block), Cell::masked);
  }
  return panel;
}

Shape shape_of(Cell cell) {
  if (cell == Cell::skipped) return {Fill::faint, 0, false, true};
  return tile(cell == Cell::masked ? 1 : 0);
}

int count_of(const Panel& panel, Cell cell) {
  int count = 0;
  for (const auto& row : panel.cells) count += int(std::ranges::count(row, cell));
  return count;
}

/// A panel in a rectangle of this width.
void draw_panel(Svg& svg, const Panel& panel, double left, double top, double width, std::int64_t Nq, std::int64_t Nk,
                bool causal, bool walks) {
  const double unit = width / double(std::max(Nq, Nk));
  const auto x = [&](std::int64_t key) { return left + double(std::min(key, Nk)) * unit; };
  const auto y = [&](std::int64_t query) { return top + double(std::min(query, Nq)) * unit; };
  const auto rows = std::int64_t(panel.cells.size()), columns = std::int64_t(panel.cells[0].size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const double x0 = x(j * panel.column_tile), y0 = y(i * panel.row_tile);
      svg.rectangle(x0, y0, x((j + 1) * panel.column_tile) - x0, y((i + 1) * panel.row_tile) - y0,
                    shape_of(panel.cells[std::size_t(i)][std::size_t(j)]));
    }
  }
  if (causal) {  // where the last key lies that a query sees
    std::vector<std::pair<double, double>> border;
    for (std::int64_t i = 0; i < Nq; ++i) {
      const std::int64_t visible = visible_keys(i, Nq, Nk, true);
      if (visible == 0) continue;
      if (border.empty()) border.emplace_back(x(visible - 1), y(i));
      if (i == Nq - 1) border.emplace_back(x(visible), y(Nq));
    }
    svg.curve(border, 4);
  }
  for (const Panel::Walk& walk : walks ? panel.walks : std::vector<Panel::Walk>{}) {
    const std::int64_t own_tile = panel.blocks_own_keys ? panel.column_tile : panel.row_tile;
    const std::int64_t along_tile = panel.blocks_own_keys ? panel.row_tile : panel.column_tile;
    const std::int64_t own_rows = panel.blocks_own_keys ? Nk : Nq, along_rows = panel.blocks_own_keys ? Nq : Nk;
    const double own_end = double(std::min((walk.own_last + 1) * own_tile, own_rows));
    const double middle = (double(walk.own_first * own_tile) + own_end) / 2 * unit;
    const double from = double(walk.first * along_tile) * unit + 6;
    const double to = double(std::min((walk.last + 1) * along_tile, along_rows)) * unit - 6;
    if (panel.blocks_own_keys) {
      svg.line(left + middle, top + from, left + middle, top + to, Line::strong, 3);
    } else {
      svg.line(left + from, top + middle, left + to, top + middle, Line::strong, 3);
    }
  }
}

/// How many of its tiles a block keeps.
std::int64_t tiles_kept(const Panel& panel) {
  std::int64_t most = 1;
  for (const Panel::Walk& walk : panel.walks) most = std::max(most, walk.own_last - walk.own_first + 1);
  return most;
}

/// ".": skipped, "#": computed, "m": masked; a text a row of tiles. What a block keeps is one tile here.
nlohmann::ordered_json panels_facts(const std::vector<Panel>& panels, std::int64_t Nq, std::int64_t Nk) {
  nlohmann::ordered_json launches = nlohmann::ordered_json::array();
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
                        {"cells", rows}});
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

/// Of the drawing, and of what `also` asks for: "queries keys Br Bc" each.
nlohmann::ordered_json tiles_facts(const Request& request, const std::vector<Panel>& panels, std::int64_t Nq,
                                   std::int64_t Nk, std::int64_t d, bool causal) {
  Parameters& p = request.parameters;
  nlohmann::ordered_json facts = panels_facts(panels, Nq, Nk), more = nlohmann::ordered_json::array();
  facts["d"] = d;
  facts["causal"] = causal;
  for (const std::string& text : p.has("also") ? p.texts("also") : std::vector<std::string>{}) {
    std::istringstream words(text);
    std::int64_t queries = 0, keys = 0;
    judge::TraceRequest tiles;
    if (!(words >> queries >> keys >> tiles.Br >> tiles.Bc)) p.fail("also: \"queries keys Br Bc\" each, not " + text);
    more.push_back(
        panels_facts(panels_of(traced(request, own_chapter(request), queries, keys, d, causal, tiles)), queries, keys));
  }
  facts["also"] = more;
  return facts;
}

struct PanelsPlace {
  double left, width, bottom;  ///< width: of one panel
};

/// Beside a single panel with counts, below several without; leaves where it ends as the drawing's height.
void draw_tiles_legend(Drawing& drawing, const std::vector<Panel>& panels, PanelsPlace place, bool causal, bool walks) {
  Svg& svg = drawing.svg;
  const bool beside = panels.size() == 1;
  double x = beside ? place.left + place.width + 30 : place.left, y = beside ? 80 : place.bottom + 18;
  const auto entry = [&](const std::string& text, const std::function<void()>& draw_mark) {
    draw_mark();
    svg.text(x + 20, y + 12, text, kSmall);
    if (beside) {
      y += 24;
    } else {
      x += 34 + 6.6 * double(text.size());
    }
  };
  const auto cell = [&](Cell which, const std::string& text) {
    const int count = count_of(panels[0], which);
    if (count == 0) return;
    entry(beside ? fmt::format("{}: {} of {}", text, count, panels[0].cells.size() * panels[0].cells[0].size()) : text,
          [&] { svg.rectangle(x, y, 14, 14, shape_of(which)); });
  };
  cell(Cell::computed, "computed");
  cell(Cell::masked, "computed and masked");
  cell(Cell::skipped, "skipped");
  if (causal) entry("last visible key", [&] { svg.line(x, y + 7, x + 15, y + 7, Line::strong, 4); });
  if (walks) entry("the way of one block", [&] { svg.line(x, y + 7, x + 15, y + 7, Line::strong, 3); });
  drawing.height = y + (beside ? 0 : 20);
}

}  // namespace

Drawing draw_tiles(const Request& request) {
  Parameters& p = request.parameters;
  const std::int64_t Nq = p.count("queries"), Nk = p.count("keys"), d = p.count("d");
  const bool causal = p.flag("causal"), walks = p.flag("walks");
  const std::vector<Panel> panels = panels_of(traced(request, own_chapter(request), Nq, Nk, d, causal));
  if (panels.empty()) p.fail("no launch of this chapter reads Q and K by tiles");
  Drawing drawing;
  Svg& svg = drawing.svg;
  constexpr double gap = 46, left = 46, top = 64;
  const double width = std::min(400., (Svg::kWidth - left - gap * double(panels.size() - 1)) / double(panels.size()));
  const double unit = width / double(std::max(Nq, Nk));
  double x0 = left;
  for (const Panel& panel : panels) {
    const std::int64_t all = std::int64_t(panel.cells.size() * panel.cells[0].size());
    const Panel::Walk& first = panel.walks.at(0);
    svg.text(x0, 16, panel.kernel, kHead);
    svg.text(x0, 33,
             fmt::format(
                 "a block keeps {} rows of {}",
                 (first.own_last - first.own_first + 1) * (panel.blocks_own_keys ? panel.column_tile : panel.row_tile),
                 panel.blocks_own_keys ? "K and V" : "Q"),
             kSoft);
    svg.text(x0, 58, fmt::format("keys, {} a tile →", panel.column_tile), kSoft);
    const std::int64_t every = std::max<std::int64_t>(1, std::int64_t(panel.cells.size()) / 8);
    for (std::int64_t i = 0; i < std::int64_t(panel.cells.size()); i += every) {
      const double from = double(i * panel.row_tile) * unit;
      svg.text(x0 - 6, top + from + 11, fmt::format("{}", i * panel.row_tile), right(kSoft));
    }
    draw_panel(svg, panel, x0, top, width, Nq, Nk, causal, walks);
    drawing.description += fmt::format(
        "{}: of {} tiles of {} queries and {} keys, {} are computed without a mask, {} are masked and {} skipped. ",
        panel.kernel, all, panel.row_tile, panel.column_tile, count_of(panel, Cell::computed),
        count_of(panel, Cell::masked), count_of(panel, Cell::skipped));
    x0 += width + gap;
  }
  svg.text(0, 58, "query", kSoft);
  const double bottom = top + double(Nq) * unit;
  draw_tiles_legend(drawing, panels, {left, width, bottom}, causal, walks);
  const double below = drawing.height;
  svg.text(panels.size() == 1 ? left + width + 30 : left, below + 14,
           fmt::format("Nq = {}, Nk = {}, d = {}", Nq, Nk, d), kSoft);
  drawing.height = std::max(bottom, below + 14) + 6;
  drawing.facts = tiles_facts(request, panels, Nq, Nk, d, causal);
  return drawing;
}

// --- Timeline --------------------------------------------------------------------------------------------------------

namespace {

int color_of(judge::TimelineLane::Kind kind) {
  switch (kind) {
    case judge::TimelineLane::Kind::copied:
      return 1;
    case judge::TimelineLane::Kind::loaded:
      return 0;
    case judge::TimelineLane::Kind::stored:
      return 6;
    case judge::TimelineLane::Kind::products:
      return 2;
    case judge::TimelineLane::Kind::shared:
      return 3;
    case judge::TimelineLane::Kind::shuffles:
      return 5;
  }
  return 0;
}

nlohmann::ordered_json timeline_facts(const judge::TracedLaunch& launch,
                                      const std::vector<judge::TimelineLane>& lanes) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const judge::TimelineLane& lane : lanes) {
    nlohmann::ordered_json bars = nlohmann::ordered_json::array();
    for (const judge::TimelineBar& bar : lane.bars)
      bars.push_back({{"first", bar.first}, {"last", bar.last}, {"text", bar.text}});
    if (!lane.bars.empty()) all.push_back({{"name", lane.name}, {"kind", judge::name(lane.kind)}, {"bars", bars}});
  }
  return {{"kernel", short_name(launch.kernel)},
          {"warps", launch.threads() / 32},
          {"intervals", launch.intervals.size()},
          {"lanes", all}};
}

}  // namespace

Drawing draw_timeline(const Request& request) {
  Parameters& p = request.parameters;
  const auto first = std::size_t(p.number("first")), count = std::size_t(p.count("count"));
  const judge::TracedLaunch launch = traced_launch(request);
  const std::size_t intervals = launch.intervals.size(), end = std::min(first + count, intervals);
  if (first >= end) p.fail(fmt::format("there are {} intervals", intervals));
  Drawing drawing;
  Svg& svg = drawing.svg;
  constexpr double left = 108, top = 56, row = 27;
  const double width = (Svg::kWidth - left - 4) / double(end - first);
  const std::vector<judge::TimelineLane> lanes = judge::timeline_of(launch);
  svg.text(0, 16, fmt::format("{}: block 0, {} warps, all together", short_name(launch.kernel), launch.threads() / 32),
           kHead);
  double y = top;
  for (const judge::TimelineLane& lane : lanes) {
    const bool shown =
        std::ranges::any_of(lane.bars, [&](const judge::TimelineBar& b) { return b.last >= first && b.first < end; });
    if (!shown) continue;
    svg.text(0, y + 16, lane.name, kSmall);
    std::string said;
    for (const judge::TimelineBar& bar : lane.bars) {
      if (bar.last < first || bar.first >= end) continue;
      const double from = left + (double(std::max(bar.first, first)) - double(first)) * width + 3,
                   to = left + (double(std::min(bar.last + 1, end)) - double(first)) * width - 3;
      svg.rectangle(from, y, to - from, row - 6, tile(color_of(lane.kind)), 3);
      svg.text((from + to) / 2, y + 15, bar.text, middle(kSmall));
      said += fmt::format(
          "{}{} in {}", said.empty() ? "" : ", ", bar.text,
          bar.first == bar.last ? fmt::format("{}", bar.first) : fmt::format("{} to {}", bar.first, bar.last));
    }
    drawing.description += fmt::format("{}: {}. ", lane.name, said);
    y += row;
  }
  for (std::size_t i = first; i <= end; ++i) {
    const double x = left + double(i - first) * width;
    const bool barrier = i > 0 && i < intervals;
    svg.line(x, top - 8, x, y, barrier ? Line::strong : Line::thin, barrier ? 4 : -1);
    if (i < end) svg.text(x + width / 2, top - 12, fmt::format("{}", i), middle(kSoft));
  }
  svg.text(0, top - 12, "interval", kSoft);
  svg.line(left, y + 16, left + 16, y + 16, Line::strong, 4);
  svg.text(left + 22, y + 20, "a barrier of the block", kSmall);
  svg.text(left + 170, y + 20, "Shared memory: wavefronts. Tensor cores, shuffles: instructions.", kSoft);
  drawing.description = fmt::format("What block 0 of {} does between two barriers, by the number of the interval. ",
                                    short_name(launch.kernel)) +
                        drawing.description;
  drawing.height = y + 30;
  drawing.facts = timeline_facts(launch, lanes);
  drawing.facts.update({{"queries", p.count("queries")},
                        {"keys", p.count("keys")},
                        {"d", p.count("d")},
                        {"causal", p.flag("causal")},
                        {"first", first}});
  return drawing;
}

// --- Owners ----------------------------------------------------------------------------------------------------------

Drawing draw_owners(const Request& request) {
  Parameters& p = request.parameters;
  const int d = p.count("d");
  const worker::StageDescription stage = described(request);
  const worker::StageTiles* tiles = stage.default_tiles(d);
  if (tiles == nullptr || !tiles->sizes.contains("Br") || !tiles->sizes.contains("warps"))
    p.fail("the stage has no tiles of queries and keys for this d");
  const int Br = tiles->sizes.at("Br"), Bc = tiles->sizes.at("Bc"), warps = tiles->sizes.at("warps");
  const bool by_keys = stage.warps_split_keys;
  if (!by_keys && stage.rows_per_warp == 0) p.fail("the stage does not say what a warp has");
  Drawing drawing;
  Svg& svg = drawing.svg;
  constexpr double gap = 52, top = 50, between = 34;
  const double unit = std::min((Svg::kWidth - 2 * gap) / (2 * d + Bc), 400. / (Br + std::max(Bc, d)));
  const double q = d * unit, s = Bc * unit, br = Br * unit, left = (Svg::kWidth - 2 * q - s - 2 * gap) / 2;
  const double x_q = left, x_s = x_q + q + gap, x_o = x_s + s + gap;
  const double y_s = top + std::max(Bc, d) * unit + between, y_k = y_s - between - q, y_v = y_s - between - s;
  const auto label = [&](double x, double y, const std::string& text) { svg.text(x, y - 6, text, kSmall); };
  /// A matrix in stripes of the warps, down or across; no stripes: all warps read all of it.
  const auto matrix = [&](double x, double y, double w, double h, int stripes, bool down) {
    if (stripes == 0) svg.rectangle(x, y, w, h, {Fill::faint, 0, false, true});
    for (int i = 0; i < stripes; ++i) {
      const double part = (down ? h : w) / stripes;
      const double sx = down ? x : x + i * part, sy = down ? y + i * part : y;
      svg.rectangle(sx, sy, down ? w : part, down ? part : h, tile(i % warps));
      const double cx = sx + (down ? w : part) / 2, cy = sy + (down ? part : h) / 2 + 4;
      if ((down ? part : h) > 14 && (down ? w : part) > 14)
        svg.text(cx, cy, fmt::format("{}", i % warps), middle(kSmall));
    }
  };
  const int stripes = by_keys ? warps : Br / stage.rows_per_warp;
  label(x_q, y_s, fmt::format("Q ({}, {})", Br, d));
  label(x_s, y_k, fmt::format("Kᵀ ({}, {})", d, Bc));
  label(x_s, y_s, fmt::format("S, P ({}, {})", Br, Bc));
  label(x_o, y_v, fmt::format("V ({}, {})", Bc, d));
  label(x_o, y_s, fmt::format("O ({}, {})", Br, d));
  matrix(x_q, y_s, q, br, by_keys ? 0 : stripes, true);
  matrix(x_s, y_k, s, q, by_keys ? stripes : 0, false);
  matrix(x_s, y_s, s, br, stripes, !by_keys);
  matrix(x_o, y_v, q, s, by_keys ? stripes : 0, true);
  if (by_keys) {  // every warp has a part of every element of O: sheets that are added
    for (int w = warps - 1; w >= 0; --w) {
      svg.rectangle(x_o + w * 9, y_s + w * 9, q - 9 * (warps - 1), br - 9 * (warps - 1), tile(w));
    }
    svg.text(x_o + (q - 9 * (warps - 1)) / 2, y_s + br / 2 - 9, "one part a warp,", middle(kSmall));
    svg.text(x_o + (q - 9 * (warps - 1)) / 2, y_s + br / 2 + 7, "to be added up", middle(kSmall));
  } else {
    matrix(x_o, y_s, q, br, stripes, true);
  }
  const std::string whose =
      by_keys ? fmt::format(
                    "Warp w has {} of the tile's {} keys: columns of S and P, rows of K and V. For O each warp "
                    "has a part of every element; the parts are added up.",
                    Bc / warps, Bc)
              : fmt::format(
                    "Warp w has {} of the tile's {} queries: rows of Q, S, P and O. It needs all of K and V, "
                    "and nothing of what other warps compute.",
                    stage.rows_per_warp, Br);
  drawing.description = fmt::format("{} warps. {}", warps, whose);
  const std::size_t cut = whose.find(". ") + 1;
  svg.text(0, 16, fmt::format("A block: {} warps, tiles of {} queries and {} keys, d = {}", warps, Br, Bc, d), kHead);
  svg.text(left, y_s + br + 24, whose.substr(0, cut), kSoft);
  svg.text(left, y_s + br + 41, whose.substr(cut + 1) + " Grey: read by all warps.", kSoft);
  drawing.height = y_s + br + 52;
  return drawing;
}

// --- Traffic ---------------------------------------------------------------------------------------------------------

Drawing draw_traffic(const Request& request) {
  Parameters& p = request.parameters;
  const std::vector<std::string> chapters = p.texts("chapters");
  const std::vector<double> lengths = p.numbers("lengths");
  const std::int64_t d = p.count("d");
  struct Curve {
    std::string name;
    std::vector<double> asked, least;
  };
  std::vector<Curve> curves;
  double lowest = 1e300, highest = 0;
  for (const std::string& which : chapters) {
    const book::Chapter& chapter = request.workspace.book.chapter(which);
    Curve& curve = curves.emplace_back();
    curve.name = fmt::format("{}: {}", chapter.number, chapter.title);
    for (const double length : lengths) {
      double asked = 0, least = 0;
      const judge::Trace trace = traced(request, chapter, std::int64_t(length), std::int64_t(length), d, false);
      for (const judge::TracedLaunch& launch : trace.launches) {
        for (const judge::TracedTensor& tensor : launch.tensors) {
          asked += double(tensor.read_bytes() + tensor.counter("store_bytes"));
          least += 32. * double(tensor.counter("unique_read_sectors") + tensor.counter("unique_written_sectors"));
        }
      }
      curve.asked.push_back(asked);
      curve.least.push_back(least);
      lowest = std::min(lowest, least);
      highest = std::max(highest, asked);
    }
  }
  Drawing drawing;
  Svg& svg = drawing.svg;
  const LogAxis x{lengths.front() / 1.15, lengths.back() * 1.15, 80, 500},
      y{std::exp2(std::floor(std::log2(lowest))), std::exp2(std::ceil(std::log2(highest))), 330, 30};
  svg.text(0, 16, "bytes of one head", kSoft);
  for (double bytes = y.low; bytes <= y.high * 1.01; bytes *= 4) {
    svg.line(x.from, y(bytes), x.to, y(bytes), Line::thin);
    svg.text(x.from - 6, y(bytes) + 4, book::bytes_text(bytes), right(kSoft));
  }
  for (const double length : lengths) {
    svg.line(x(length), y.to, x(length), y.from, Line::thin);
    svg.text(x(length), y.from + 18, fmt::format("{:g}", length), middle(kSoft));
  }
  svg.text(x.to, y.from + 36, "sequence length N", right(kSoft));
  int color = 0;
  for (const Curve& curve : curves) {
    std::vector<std::pair<double, double>> asked, least;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      asked.emplace_back(x(lengths[i]), y(curve.asked[i]));
      least.emplace_back(x(lengths[i]), y(curve.least[i]));
    }
    svg.curve(asked, color);
    svg.curve(least, color, true);
    for (const auto& [px, py] : asked) svg.dot(px, py, 4, color);
    svg.colored(x.to + 8, asked.back().second - 2, curve.name, color, {Words::Size::small, {}, true, false});
    svg.colored(x.to + 8, asked.back().second + 13, "asks for " + book::bytes_text(curve.asked.back()), color, kSmall);
    svg.colored(x.to + 8, std::max(least.back().second + 8, asked.back().second + 28),
                "at least " + book::bytes_text(curve.least.back()), color, kSmall);
    drawing.description +=
        fmt::format("{}: at N = {:g} {} are asked for, at least {} must move. ", curve.name, lengths.back(),
                    book::bytes_text(curve.asked.back()), book::bytes_text(curve.least.back()));
    color = color == 0 ? 1 : color + 1;
  }
  svg.text(0, y.from + 60, "Counted on the simulator. Lines: the bytes that the kernels ask for.", kSoft);
  svg.text(0, y.from + 77, "Dashed: each sector of 32 bytes once a launch, which no cache can avoid.", kSoft);
  drawing.height = y.from + 86;
  nlohmann::ordered_json counted = nlohmann::ordered_json::array();
  for (const Curve& curve : curves)
    counted.push_back({{"name", curve.name}, {"asked", curve.asked}, {"least", curve.least}});
  drawing.facts = {{"lengths", lengths}, {"d", d}, {"curves", counted}};
  return drawing;
}

}  // namespace workbook::pictures
