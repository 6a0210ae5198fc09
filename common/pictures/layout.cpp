// Where elements lie: banks, fragments, the rows of ldmatrix. The places are the simulator's own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/pictures/kinds.hpp"
#include "common/simt/banks.hpp"
#include "common/simt/machine_place.hpp"

namespace workbook::pictures {
namespace {

constexpr int kLineBytes = simt::kBanks * simt::kBankBytes;
constexpr int kLanes = 32;

/// What lanes take that ask for `bytes` at these addresses, one address a lane.
unsigned wavefronts(const std::vector<std::uint64_t>& addresses, int bytes) {
  std::uint64_t address[kLanes] = {};
  std::copy(addresses.begin(), addresses.end(), address);
  const auto mask = std::uint32_t((std::uint64_t(1) << addresses.size()) - 1);
  return simt::wavefronts(address, mask, unsigned(bytes), simt::lanes_at_once_for(unsigned(bytes))).actual;
}

std::string wavefronts_text(unsigned count) {
  return count == 1 ? "1 wavefront" : fmt::format("{} wavefronts", count);
}

/// One panel of draw_banks, from `top` on; returns where it ends.
double banks_panel(Svg& svg, double top, int rows, int row_bytes, int access, int padding, std::string& description) {
  constexpr double left = 28, width = 21, height = 19;
  const int stride = row_bytes + padding;
  std::vector<std::uint64_t> starts;
  for (int row = 0; row < rows; ++row) starts.push_back(std::uint64_t(row) * std::uint64_t(stride));
  const unsigned passes = wavefronts(starts, access);
  const std::string title = padding == 0 ? fmt::format("Rows of {} bytes, one behind the other", row_bytes)
                                         : fmt::format("The same rows, {} bytes of padding behind each", padding);
  const std::string result = fmt::format("{} bytes of {} rows: {}", access, rows, wavefronts_text(passes));
  description += title + ": " + result + ". ";
  svg.text(left, top + 14, title, kHead);
  svg.colored(Svg::kWidth, top + 14, result, passes > 1 ? 4 : 2, right({Words::Size::normal, {}, true, false}));
  for (int bank = 0; bank < simt::kBanks; ++bank)
    svg.text(left + (bank + 0.5) * width, top + 31, fmt::format("{}", bank), kTiny);
  svg.text(0, top + 31, "bank", {Words::Size::tiny, {}, false, true});
  const double grid = top + 36;
  for (int byte = 0; byte < rows * stride; byte += simt::kBankBytes) {
    const int row = byte / stride, column = byte % stride, line = byte / kLineBytes;
    const double x = left + simt::bank_of(std::uint64_t(byte)) * width, y = grid + line * height;
    const bool read = column < access;
    Shape shape = pale(row);
    if (column >= row_bytes) shape = {Fill::none, 0, false, true};
    if (read) shape = tile(row);
    svg.rectangle(x, y, width, height, shape);
  }
  for (int row = 0; row < rows; ++row) {
    const int byte = row * stride, line = byte / kLineBytes;
    svg.text(left + simt::bank_of(std::uint64_t(byte)) * width + 3, grid + line * height + 14,
             fmt::format("row {}", row), kSmall);
  }
  const int lines = (rows * stride + kLineBytes - 1) / kLineBytes;
  return grid + lines * height;
}

/// For a page on which the padding can be chosen: every multiple of what a lane asks for, up to a row's length.
nlohmann::ordered_json banks_facts(int rows, int row_bytes, int access) {
  nlohmann::ordered_json paddings = nlohmann::ordered_json::array();
  for (int padding = 0; padding <= row_bytes; padding += access) {
    std::vector<std::uint64_t> starts;
    for (int row = 0; row < rows; ++row) starts.push_back(std::uint64_t(row) * std::uint64_t(row_bytes + padding));
    paddings.push_back({{"padding", padding}, {"starts", starts}, {"wavefronts", wavefronts(starts, access)}});
  }
  return {{"rows", rows},
          {"row_bytes", row_bytes},
          {"access_bytes", access},
          {"banks", int(simt::kBanks)},
          {"bank_bytes", int(simt::kBankBytes)},
          {"paddings", paddings}};
}

}  // namespace

Drawing draw_banks(const Request& request) {
  Parameters& p = request.parameters;
  const int rows = p.count("rows"), row_bytes = p.count("row_bytes"), access = p.count("access_bytes");
  Drawing drawing;
  double top = 4;
  for (const double padding : p.numbers("paddings"))
    top = banks_panel(drawing.svg, top, rows, row_bytes, access, int(padding), drawing.description) + 22;
  drawing.svg.text(28, top,
                   fmt::format("One line is {} bytes, once through all {} banks of {} bytes. Outlined in colour: the "
                               "first {} bytes of each row.",
                               kLineBytes, simt::kBanks, simt::kBankBytes, access),
                   kSoft);
  drawing.svg.text(28, top + 17, "Empty: padding, which nobody touches. A bank gives one line at a time.", kSoft);
  drawing.height = top + 26;
  drawing.facts = banks_facts(rows, row_bytes, access);
  return drawing;
}

namespace {

struct Matrix {
  simt::FragmentType type;
  std::string name;
  int elements() const { return simt::rows_of(type) * simt::columns_of(type) / kLanes; }
  /// How many elements a register of 32 bits holds.
  int packed() const { return 4 / simt::bytes_of(type.element); }
};

simt::FragmentType type_of(Parameters& p, const std::string& use, const std::string& element,
                           const std::vector<double>& mnk) {
  simt::FragmentType type{};
  type.m = std::uint8_t(mnk.at(0));
  type.n = std::uint8_t(mnk.at(1));
  type.k = std::uint8_t(mnk.at(2));
  if (use == "accumulator") {
    type.use = simt::FragmentType::accumulator;
    type.element = simt::ElementType::float32;
    return type;
  }
  if (use != "a" && use != "b") p.fail("matrices are of \"a\", \"b\" and \"accumulator\"");
  type.use = use == "a" ? simt::FragmentType::a : simt::FragmentType::b;
  if (element != "half" && element != "tf32" && element != "e4m3") p.fail("element is \"half\", \"tf32\" or \"e4m3\"");
  type.element = element == "half"   ? simt::ElementType::half
                 : element == "tf32" ? simt::ElementType::tf32
                                     : simt::ElementType::e4m3;
  return type;
}

void draw_matrix(Svg& svg, const Matrix& matrix, double left, double top, double cell) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int e = 0; e < matrix.elements(); ++e) {
      const auto [row, column] = simt::machine_place(matrix.type, lane, e);
      const double x = left + column * cell, y = top + row * cell;
      svg.rectangle(x, y, cell, cell, tile(e / matrix.packed()));
      svg.text(x + cell / 2, y + cell / 2 - 1, fmt::format("{}", lane),
               {cell > 30 ? Words::Size::normal : Words::Size::small, Words::Anchor::middle, true, false});
      svg.text(x + cell / 2, y + cell - 4, fmt::format("{}[{}]", matrix.name, e / matrix.packed()), kTiny);
    }
  }
}

/// The lanes that hold elements of the same rows as this one.
std::vector<int> row_mates(const Matrix& matrix, int lane) {
  const auto rows = [&](int of) {
    std::set<int> all;
    for (int e = 0; e < matrix.elements(); ++e) all.insert(simt::machine_place(matrix.type, of, e).first);
    return all;
  };
  std::vector<int> mates;
  for (int other = 0; other < kLanes; ++other) {
    if (rows(other) == rows(lane)) mates.push_back(other);
  }
  return mates;
}

/// For a page on which a lane can be chosen: by matrix and lane, where its elements lie, and who shares its rows.
nlohmann::ordered_json fragments_facts(const std::vector<std::string>& uses, const std::vector<Matrix>& matrices) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& matrix = matrices[i];
    nlohmann::ordered_json places = nlohmann::ordered_json::array(), mates = nlohmann::ordered_json::array();
    for (int lane = 0; lane < kLanes; ++lane) {
      nlohmann::ordered_json& of_lane = places.emplace_back(nlohmann::ordered_json::array());
      for (int e = 0; e < matrix.elements(); ++e) of_lane.push_back(simt::machine_place(matrix.type, lane, e));
      mates.push_back(row_mates(matrix, lane));
    }
    all.push_back({{"name", matrix.name},
                   {"use", uses[i]},
                   {"rows", simt::rows_of(matrix.type)},
                   {"columns", simt::columns_of(matrix.type)},
                   {"per_register", matrix.packed()},
                   {"places", places},
                   {"row_mates", mates}});
  }
  return {{"lanes", kLanes}, {"matrices", all}};
}

}  // namespace

Drawing draw_fragments(const Request& request) {
  Parameters& p = request.parameters;
  const std::string element = p.text("element");
  const std::vector<double> shape = p.numbers("shape");
  const std::vector<std::string> uses = p.texts("matrices"), names = p.texts("names");
  if (shape.size() != 3 || names.size() != uses.size()) p.fail("shape is [m, n, k], and each matrix has a name");
  std::vector<Matrix> matrices;
  for (std::size_t i = 0; i < uses.size(); ++i) matrices.push_back({type_of(p, uses[i], element, shape), names[i]});
  Drawing drawing;
  Svg& svg = drawing.svg;
  std::string held;
  for (const Matrix& matrix : matrices) {
    held += fmt::format("{}{} ({} x {}): {} elements a lane", held.empty() ? "" : "; ", matrix.name,
                        simt::rows_of(matrix.type), simt::columns_of(matrix.type), matrix.elements());
    if (matrix.packed() > 1) held += fmt::format(", {} to a register", matrix.packed());
  }
  const auto [row, column] = simt::machine_place(matrices.back().type, 5, 1);
  drawing.description = fmt::format(
      "Each cell is an element: the number of the lane that holds it, and in which of that lane's registers. {}. For "
      "example, row {} and column {} of {} are with lane 5.",
      held, row, column, matrices.back().name);
  drawing.facts = fragments_facts(uses, matrices);
  if (matrices.size() == 1) {
    constexpr double cell = 40;
    const int columns = simt::columns_of(matrices[0].type), rows = simt::rows_of(matrices[0].type);
    const double left = (Svg::kWidth - columns * cell) / 2;
    for (int c = 0; c < columns; ++c) svg.text(left + (c + 0.5) * cell, 14, fmt::format("{}", c), middle(kSoft));
    for (int r = 0; r < rows; ++r) svg.text(left - 6, 20 + (r + 0.6) * cell, fmt::format("{}", r), right(kSoft));
    draw_matrix(svg, matrices[0], left, 20, cell);
    drawing.height = 20 + rows * cell + 4;
    return drawing;
  }
  // As in a product on paper: the left operand beside the result, the right one above it.
  if (matrices.size() != 3) p.fail("matrices: one, or the three of a product");
  constexpr double cell = 28, gap = 12;
  const double across = simt::columns_of(matrices[0].type) * cell, down = simt::rows_of(matrices[1].type) * cell;
  const double result_left = across + gap, result_top = down + gap;
  draw_matrix(svg, matrices[0], 0, result_top, cell);
  draw_matrix(svg, matrices[1], result_left, 0, cell);
  draw_matrix(svg, matrices[2], result_left, result_top, cell);
  double y = 22;
  const auto say = [&](const std::string& text, Words words) {
    svg.text(0, y, text, words);
    y += 22;
  };
  say(fmt::format("m{}n{}k{}: {} = {} {} + {}", shape[0], shape[1], shape[2], names[2], names[0], names[1], names[2]),
      kHead);
  say("Each cell: the lane that holds it, and in which of its registers.", kSmall);
  for (const Matrix& matrix : matrices) {
    say(fmt::format("{} ({} x {}): {} elements a lane{}", matrix.name, simt::rows_of(matrix.type),
                    simt::columns_of(matrix.type), matrix.elements(),
                    matrix.packed() > 1 ? fmt::format(", {} to a register of 32 bits", matrix.packed()) : ""),
        kSmall);
  }
  const auto fours = [&](std::size_t i, const char* what) {
    return fmt::format("In {} lanes 0 to 3 share {}, lanes 4 to 7 the next one, and so on.", names[i], what);
  };
  say(fours(0, "a row"), kSmall);
  say(fours(1, "a column"), kSmall);
  say(fours(2, "a row"), kSmall);
  drawing.height = result_top + simt::rows_of(matrices[0].type) * cell + 4;
  return drawing;
}

namespace {

struct RowLayout {
  const char *title, *rule;
  int padding;
  bool swizzled;
};
constexpr int kChunkBytes = 16;
constexpr RowLayout kRowLayouts[] = {{"plain", "chunk c of row r in place c", 0, false},
                                     {"padded", "one chunk more a row", kChunkBytes, false},
                                     {"swizzled", "chunk c of row r in place c ^ r", 0, true}};

int address_of(const RowLayout& layout, int row_bytes, int row, int chunk) {
  const int place = layout.swizzled ? chunk ^ row % (row_bytes / kChunkBytes) : chunk;
  return row * (row_bytes + layout.padding) + place * kChunkBytes;
}

/// For a page on which layout and chunk can be chosen: every chunk's address, and the wavefronts of reading each
/// column.
nlohmann::ordered_json swizzle_facts(int rows, int row_bytes, int wanted) {
  nlohmann::ordered_json layouts = nlohmann::ordered_json::array();
  for (const RowLayout& layout : kRowLayouts) {
    std::vector<std::vector<int>> addresses(std::size_t(rows), std::vector<int>{});
    std::vector<unsigned> passes;
    for (int chunk = 0; chunk < row_bytes / kChunkBytes; ++chunk) {
      std::vector<std::uint64_t> asked;
      for (int row = 0; row < rows; ++row) {
        addresses[std::size_t(row)].push_back(address_of(layout, row_bytes, row, chunk));
        asked.push_back(std::uint64_t(addresses[std::size_t(row)].back()));
      }
      passes.push_back(wavefronts(asked, kChunkBytes));
    }
    layouts.push_back({{"name", layout.title},
                       {"rule", layout.rule},
                       {"row_bytes", row_bytes + layout.padding},
                       {"addresses", addresses},
                       {"wavefronts", passes}});
  }
  return {{"chunk_bytes", kChunkBytes},
          {"chunk", wanted},
          {"banks", int(simt::kBanks)},
          {"bank_bytes", int(simt::kBankBytes)},
          {"layouts", layouts}};
}

}  // namespace

Drawing draw_swizzle(const Request& request) {
  Parameters& p = request.parameters;
  const int row_bytes = p.count("row_bytes"), wanted = p.count("chunk");
  constexpr int rows = 8, chunk_bytes = kChunkBytes, groups = kLineBytes / chunk_bytes;
  const int chunks = row_bytes / chunk_bytes;
  if (row_bytes != kLineBytes || wanted >= chunks) p.fail("row_bytes is one line of banks, chunk lies within it");
  constexpr double left = 44, cell = 25, gap = 17, top = 58;
  Drawing drawing;
  Svg& svg = drawing.svg;
  double x0 = left;
  for (const RowLayout& panel : kRowLayouts) {
    svg.text(x0, 14, panel.title, kHead);
    svg.text(x0, 31, panel.rule, kSoft);
    for (int group = 0; group < groups; ++group) {
      svg.text(x0 + (group + 0.5) * cell, 50, fmt::format("{}", group * chunk_bytes / simt::kBankBytes), kTiny);
    }
    std::vector<std::uint64_t> asked;
    for (int row = 0; row < rows; ++row) {
      for (int c = 0; c < chunks; ++c) {
        const int address = address_of(panel, row_bytes, row, c);
        const int place = simt::bank_of(std::uint64_t(address)) * simt::kBankBytes / chunk_bytes;
        const double x = x0 + place * cell;
        const double y = top + row * (cell + 2);
        svg.rectangle(x, y, cell, cell, c == wanted ? tile(row) : Shape{Fill::faint, 0, false, false});
        svg.text(x + cell / 2, y + 17, fmt::format("{}", c),
                 {Words::Size::small, Words::Anchor::middle, c == wanted, c != wanted});
        if (c == wanted) asked.push_back(std::uint64_t(address));
      }
    }
    const unsigned passes = wavefronts(asked, chunk_bytes);
    const std::string taken = fmt::format("{} bytes a row", row_bytes + panel.padding);
    svg.colored(x0, top + rows * (cell + 2) + 16, wavefronts_text(passes), passes > 1 ? 4 : 2, {{}, {}, true, false});
    svg.text(x0, top + rows * (cell + 2) + 33, taken, kSmall);
    drawing.description += fmt::format("{}: {}, {}. ", panel.title, wavefronts_text(passes), taken);
    x0 += groups * cell + gap;
  }
  svg.text(0, 50, "bank", {Words::Size::tiny, {}, false, true});
  for (int row = 0; row < rows; ++row) svg.text(0, top + row * (cell + 2) + 17, fmt::format("lane {}", row), kSoft);
  const double end = top + rows * (cell + 2) + 58;
  svg.text(left, end,
           fmt::format("ldmatrix: lanes 0 to 7 name chunk {} of rows 0 to 7, 16 bytes each. A column of cells is four "
                       "banks.",
                       wanted),
           kSoft);
  drawing.height = end + 9;
  drawing.facts = swizzle_facts(rows, row_bytes, wanted);
  return drawing;
}

}  // namespace workbook::pictures
