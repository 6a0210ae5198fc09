// The layout of elements: banks, fragments, the rows of ldmatrix, taken from the simulator.
#include <algorithm>
#include <set>

#include "common/attention/positions.hpp"
#include "common/pictures/kinds.hpp"
#include "common/simt/banks.hpp"
#include "common/simt/fragment_layout.hpp"

namespace workbook::pictures {
namespace {

constexpr int kLanes = 32;

/// The wavefronts of lanes that access `bytes` at these addresses, one address per lane.
unsigned wavefronts(const std::vector<std::uint64_t>& addresses, int bytes) {
  std::uint64_t address[kLanes] = {};
  std::copy(addresses.begin(), addresses.end(), address);
  const auto mask = std::uint32_t((std::uint64_t(1) << addresses.size()) - 1);
  return simt::wavefronts(address, mask, unsigned(bytes), simt::lanes_per_wavefront_of(unsigned(bytes))).actual;
}

}  // namespace

/// Every padding that is a multiple of a lane's access, up to the length of a row; `shown`: the paddings in the
/// picture.
Facts banks_facts(const Request& request) {
  Parameters& p = request.parameters;
  const int rows = p.count("rows"), row_bytes = p.count("row_bytes"), access = p.count("access_bytes");
  Facts paddings = Facts::array();
  for (int padding = 0; padding <= row_bytes; padding += access) {
    std::vector<std::uint64_t> starts;
    for (int row = 0; row < rows; ++row) starts.push_back(std::uint64_t(row) * std::uint64_t(row_bytes + padding));
    paddings.push_back({{"padding", padding}, {"starts", starts}, {"wavefronts", wavefronts(starts, access)}});
  }
  std::vector<int> shown;
  for (const double padding : p.numbers("paddings")) {
    if (padding < 0 || padding > row_bytes || int(padding) % access != 0)
      p.fail("paddings must be multiples of access_bytes, up to row_bytes");
    shown.push_back(int(padding));
  }
  return {{"rows", rows},
          {"row_bytes", row_bytes},
          {"access_bytes", access},
          {"banks", int(simt::kBanks)},
          {"bank_bytes", int(simt::kBankBytes)},
          {"paddings", paddings},
          {"shown", shown}};
}

namespace {

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
  if (use != "a" && use != "b") p.fail("matrices must be \"a\", \"b\" or \"accumulator\"");
  type.use = use == "a" ? simt::FragmentType::a : simt::FragmentType::b;
  if (element != "half" && element != "tf32" && element != "e4m3")
    p.fail("element must be \"half\", \"tf32\" or \"e4m3\"");
  type.element = element == "half"   ? simt::ElementType::half
                 : element == "tf32" ? simt::ElementType::tf32
                                     : simt::ElementType::e4m3;
  return type;
}

/// For each lane, the positions of its elements and the lanes that hold elements of the same rows.
Facts matrix_facts(const std::string& name, const std::string& use, const simt::FragmentType& type) {
  std::vector<std::vector<std::pair<int, int>>> places(kLanes);
  std::vector<std::set<int>> rows(kLanes);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int e = 0; e < simt::rows_of(type) * simt::columns_of(type) / kLanes; ++e) {
      places[std::size_t(lane)].push_back(simt::fragment_position(type, lane, e));
      rows[std::size_t(lane)].insert(places[std::size_t(lane)].back().first);
    }
  }
  std::vector<std::vector<int>> mates(kLanes);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int other = 0; other < kLanes; ++other) {
      if (rows[std::size_t(other)] == rows[std::size_t(lane)]) mates[std::size_t(lane)].push_back(other);
    }
  }
  return {{"name", name},
          {"use", use},
          {"rows", simt::rows_of(type)},
          {"columns", simt::columns_of(type)},
          {"per_register", 4 / simt::bytes_of(type.element)},
          {"places", places},
          {"row_mates", mates}};
}

}  // namespace

Facts fragments_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::string element = p.text("element");
  const std::vector<double> shape = p.numbers("shape");
  const std::vector<std::string> uses = p.texts("matrices"), names = p.texts("names");
  if (shape.size() != 3 || names.size() != uses.size())
    p.fail("shape must be [m, n, k], and names must have one name per matrix");
  if (uses.size() != 1 && uses.size() != 3) p.fail("matrices must be one matrix, or the three of an MMA");
  Facts matrices = Facts::array();
  for (std::size_t i = 0; i < uses.size(); ++i)
    matrices.push_back(matrix_facts(names[i], uses[i], type_of(p, uses[i], element, shape)));
  return {{"lanes", kLanes}, {"matrices", matrices}};
}

/// For each lane, the (row, column) of its elements in a part of 16 x 8, of S or of its transpose; and the random byte
/// of each (query, key) pair of the block of 32 x 32 pairs at query 0 and key 0, in head 0.
Facts dropout_facts(const Request& request) {
  Parameters& p = request.parameters;
  const int dropped = p.count("dropped"), seed = p.count("seed");
  simt::FragmentType part = type_of(p, "accumulator", "half", {16, 8, 16});
  std::vector<std::vector<std::int32_t>> bytes(kLanes);
  for (int query = 0; query < kLanes; ++query) {
    for (int key = 0; key < kLanes; ++key) bytes[std::size_t(query)].push_back(random_byte(seed, 0, query, key));
  }
  return {{"dropped", dropped},
          {"seed", seed},
          {"places", matrix_facts("part", "accumulator", part).at("places")},
          {"bytes", bytes}};
}

namespace {

struct RowLayout {
  const char *title, *rule;
  int padding;
  bool swizzled;
};
constexpr int kChunkBytes = 16;
constexpr RowLayout kRowLayouts[] = {{"plain", "chunk c of row r at position c", 0, false},
                                     {"padded", "one chunk more a row", kChunkBytes, false},
                                     {"swizzled", "chunk c of row r at position c ^ r", 0, true}};

int address_of(const RowLayout& layout, int row_bytes, int row, int chunk) {
  const int place = layout.swizzled ? chunk ^ row % (row_bytes / kChunkBytes) : chunk;
  return row * (row_bytes + layout.padding) + place * kChunkBytes;
}

}  // namespace

/// The address of every chunk, and the wavefronts of reading each column.
Facts swizzle_facts(const Request& request) {
  Parameters& p = request.parameters;
  const int row_bytes = p.count("row_bytes"), wanted = p.count("chunk");
  constexpr int rows = 8;
  if (row_bytes != simt::kBanks * simt::kBankBytes || wanted >= row_bytes / kChunkBytes)
    p.fail("row_bytes must be one line of banks, and chunk must be within it");
  Facts layouts = Facts::array();
  for (const RowLayout& layout : kRowLayouts) {
    std::vector<std::vector<int>> addresses(std::size_t(rows), std::vector<int>{});
    std::vector<unsigned> passes;
    for (int chunk = 0; chunk < row_bytes / kChunkBytes; ++chunk) {
      std::vector<std::uint64_t> starts;
      for (int row = 0; row < rows; ++row) {
        addresses[std::size_t(row)].push_back(address_of(layout, row_bytes, row, chunk));
        starts.push_back(std::uint64_t(addresses[std::size_t(row)].back()));
      }
      passes.push_back(wavefronts(starts, kChunkBytes));
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

Facts diagram_facts(const Request& request) {
  return {{"text", request.parameters.text("text")}};
}

}  // namespace workbook::pictures
