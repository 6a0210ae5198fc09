// The maps of a trace: which block reads which tile, and how they are drawn.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "common/judge/trace_facts.hpp"
#include "common/judge/trace_launch.hpp"
#include "common/judge/trace_lines.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/text.hpp"

using namespace workbook;

namespace {

/// A tensor of `heads` matrices of `tiles` tiles, of 64 rows.
judge::TracedTensor tiled_tensor(const std::string& name, std::int64_t heads, std::int64_t tiles) {
  judge::TracedTensor tensor;
  tensor.name = name;
  tensor.tiling = {heads, 64 * tiles, 128, 64};
  tensor.reads.assign(std::size_t(heads * tiles), 0.0);
  return tensor;
}

void read(judge::TracedTensor& tensor, std::int64_t block, std::int64_t first, std::int64_t last, double times = 1) {
  tensor.tiles_of_block[block].emplace_back(first, last);
  for (std::int64_t tile = first; tile <= last; ++tile) tensor.reads[std::size_t(tile)] += times;
}

/// A causal forward pass: one block a tile of queries, two heads of `tiles` tiles; the diagonal is noted.
judge::TracedLaunch causal_launch(std::int64_t tiles) {
  judge::TracedLaunch launch;
  judge::TracedTensor Q = tiled_tensor("Q", 2, tiles), K = tiled_tensor("K", 2, tiles), V = tiled_tensor("V", 2, tiles);
  judge::TracedNote masked{"masked tile", {}};
  for (std::int64_t block = 0; block < 2 * tiles; ++block) {
    const std::int64_t head = block / tiles, tile = tiles - 1 - block % tiles;  // the longest first
    read(Q, block, head * tiles + tile, head * tiles + tile);
    read(K, block, head * tiles, head * tiles + tile);
    read(V, block, head * tiles, head * tiles + tile);
    masked.values_of_block[block].emplace_back(tile, tile);
  }
  launch.tensors = {Q, K, V};
  launch.notes = {masked};
  return launch;
}

std::vector<std::string> drawn_rows(const judge::TileMap& map, std::int64_t scale) {
  std::vector<std::string> rows;
  for (const auto& row : judge::draw(map, scale).cells) {
    rows.emplace_back();
    for (const judge::DrawnCell& cell : row) rows.back() += cell.text;
  }
  return rows;
}

}  // namespace

TEST_CASE("a counter missing in an interval of a record is 0") {
  const judge::Trace trace = judge::parse_trace(
      R"({"launches": [{"kernel": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "shared_bytes": 0, "counters": {},
          "tensors": [], "notes": [], "reports": [], "lines": [], "waits": [], "flights": [],
          "values": [{"label": "m", "row": 3, "at": [[0, "-inf"], [1, 2.5]]}],
          "intervals": [{"counters": {"shuffles": 3}, "tensors": {"K": {"async_bytes": 64}}},
                        {"counters": {}, "tensors": {"K": {"arrived_bytes": 64}}}]}], "reports": []})");
  REQUIRE(trace.launches.at(0).intervals.size() == 2);
  const auto &first = trace.launches[0].intervals[0], &second = trace.launches[0].intervals[1];
  REQUIRE(trace.launches[0].values.size() == 1);
  CHECK(trace.launches[0].values[0].at ==
        std::vector<std::pair<std::int64_t, double>>{{0, -std::numeric_limits<double>::infinity()}, {1, 2.5}});
  CHECK(first.counter("shuffles") == 3);
  CHECK(second.counter("shuffles") == 0);
  CHECK(first.counter("K", "async_bytes") == 64);
  CHECK(first.counter("K", "arrived_bytes") == 0);
  CHECK(first.counter("V", "async_bytes") == 0);
  CHECK(second.counter("K", "arrived_bytes") == 64);
}

TEST_CASE("a causal map has queries down, keys across, and the diagonal masked") {
  const std::vector<judge::TileMap> maps = judge::tile_maps(causal_launch(4));
  REQUIRE(maps.size() == 1);
  CHECK(maps[0].tensors == std::vector<std::string>{"K", "V"});
  CHECK(maps[0].row_tensor == "Q");
  CHECK(maps[0].matrices == std::vector<std::int64_t>{0, 1});
  CHECK_FALSE(maps[0].divided);
  CHECK(drawn_rows(maps[0], 1) == std::vector<std::string>{"m...", "#m..", "##m.", "###m"});
  // Two tiles per cell: cells with different tiles are marked as mixed.
  CHECK(drawn_rows(maps[0], 2) == std::vector<std::string>{"+.", "#+"});
  CHECK(drawn_rows(maps[0], 3) == std::vector<std::string>{"+.", "#m"});  // the last cell is one tile
  CHECK(
      contains(judge::map_note(maps[0], judge::draw(maps[0], 2)), "one cell stands for 2 x 2 tiles; there are 4 x 4"));
}

TEST_CASE("different heads, partly read tiles and shared tiles are drawn as such") {
  judge::TracedLaunch launch = causal_launch(2);
  launch.tensors.resize(2);  // Q and K
  judge::TracedTensor& K = launch.tensors[1];
  K.reads[3] = 0.5;  // the last tile of head 1, half of it
  std::vector<judge::TileMap> maps = judge::tile_maps(launch);
  REQUIRE(maps.size() == 2);
  CHECK(maps[0].matrices == std::vector<std::int64_t>{0});
  CHECK(maps[1].matrices == std::vector<std::int64_t>{1});
  CHECK(drawn_rows(maps[1], 1) == std::vector<std::string>{"m.", "#~"});

  // Tile 0 of head 0 has two readers and three reads, so they cannot be attributed.
  K.reads[0] = 3;
  maps = judge::tile_maps(launch);
  CHECK(maps[0].divided);
  CHECK(maps[0].cells[0][0].reads == 1.5);
  CHECK(contains(judge::map_note(maps[0], judge::draw(maps[0], 1)), "divided evenly"));
  CHECK_FALSE(maps[1].divided);
}

TEST_CASE("resident tiles are not drawn as masked, even if masked tiles have the same indices") {
  // One block owns two tiles of K and loops over Q: tile 1 of Q is masked.
  judge::TracedLaunch launch;
  judge::TracedTensor Q = tiled_tensor("Q", 1, 4), K = tiled_tensor("K", 1, 4);
  for (std::int64_t block = 0; block < 2; ++block) {
    read(Q, block, 0, 3);
    read(K, block, 2 * block, 2 * block + 1);
  }
  launch.tensors = {K, Q};
  launch.notes = {{"masked tile", {{0, {{1, 1}}}}}};
  const std::vector<judge::TileMap> maps = judge::tile_maps(launch);
  REQUIRE(maps.size() == 2);
  CHECK(maps[0].tensors == std::vector<std::string>{"Q"});
  CHECK(drawn_rows(maps[0], 1) == std::vector<std::string>{"#m##", "####"});
  CHECK(drawn_rows(maps[1], 1) == std::vector<std::string>{"##..", "..##"});
}

TEST_CASE("masked tiles are drawn even if most blocks read a Q tile and no K/V tile") {
  // 16 tiles of queries, 2 of keys: the mask leaves keys only for the last two tiles of queries.
  judge::TracedLaunch launch;
  judge::TracedTensor Q = tiled_tensor("Q", 1, 16), K = tiled_tensor("K", 1, 2);
  for (std::int64_t block = 0; block < 16; ++block) read(Q, block, block, block);
  read(K, 14, 0, 0);
  read(K, 15, 0, 1);
  launch.tensors = {Q, K};
  launch.notes = {{"masked tile", {{14, {{0, 0}}}, {15, {{1, 1}}}}}};
  std::vector<std::string> expected(14, "..");
  expected.insert(expected.end(), {"m.", "#m"});
  CHECK(drawn_rows(judge::tile_maps(launch).at(0), 1) == expected);
  CHECK(judge::is_streamed(K, Q));
  CHECK_FALSE(judge::is_streamed(Q, K));

  // A single tile of keys, which one block reads: it is still the streamed tensor.
  judge::TracedTensor one = tiled_tensor("K", 1, 1);
  read(one, 15, 0, 0);
  CHECK(judge::is_streamed(one, Q));
  CHECK_FALSE(judge::is_streamed(Q, one));
}

TEST_CASE("blocks that read every tile are drawn as one row, with the number of reads of each tile") {
  judge::TracedLaunch launch;
  judge::TracedTensor Q = tiled_tensor("Q", 2, 12), K = tiled_tensor("K", 2, 3);
  for (std::int64_t block = 0; block < 2; ++block) {
    read(Q, block, 12 * block, 12 * block + 11);
    read(K, block, 3 * block, 3 * block + 2, 12);
  }
  launch.tensors = {Q, K};
  const std::vector<judge::TileMap> maps = judge::tile_maps(launch);
  REQUIRE(maps.size() == 2);
  CHECK(maps[0].tensors == std::vector<std::string>{"K"});  // what is read most comes first
  CHECK(maps[0].row_tensor.empty());
  CHECK(maps[0].rows == std::vector<std::int64_t>{0});
  CHECK(drawn_rows(maps[0], 1) == std::vector<std::string>{"121212"});
  CHECK(maps[0].matrices == std::vector<std::int64_t>{0, 1});
}

namespace {

judge::Trace lines_of(const std::string& file, const std::vector<std::tuple<int, std::string, std::int64_t>>& lines) {
  judge::TracedLaunch launch;
  for (const auto& [line, function, wavefronts] : lines) {
    launch.lines.push_back(
        {file,
         function,
         line,
         {{"shared.load_wavefronts", wavefronts}, {"shared.load_ideal", 1}, {"global.load_sectors", 2}},
         std::nullopt});
  }
  judge::Trace trace;
  trace.launches = {launch};
  return trace;
}

}  // namespace

TEST_CASE("lines of two kernels are matched by their text, within one exercise or function") {
  const TemporaryFolder folder;
  judge::Workspace workspace;
  workspace.book.root = folder.path();
  const std::string begin = "void f() {\n  // TODO(3.1) Do.\n  // BEGIN 3.1\n", end = "  // END 3.1\n}\n";
  folder.write("chapters/03_x/a.cu", begin + "  load(a);\n  mine();\n  load(a);\n" + end);
  folder.write("solutions/03_x/a.cu", begin + "  load(a);\n  load(a);\n  store();\n" + end);
  const judge::Trace mine = lines_of("chapters/03_x/a.cu", {{4, "ch03::f<64>(int)", 8}, {5, "g", 5}, {6, "f", 3}});
  judge::TraceBeside book{"book", true, {}}, other{"ch 2", false, {}};
  book.traced.trace = lines_of("solutions/03_x/a.cu", {{4, "f", 4}, {5, "f", 6}, {6, "f", 7}});
  other.traced.trace = lines_of("solutions/02_y/b.cu", {{1, "void ch02::(anonymous namespace)::f<1>(int)", 9}});
  const std::vector<judge::ComparedPart> parts = judge::compare_lines(workspace, mine, {book, other});
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].name() == "f (exercise 3.1)");
  REQUIRE(parts[0].lines.size() == 3);
  CHECK(parts[0].costs == judge::LineCosts{16, 3, 0, 6});
  CHECK(parts[0].beside.at(0) == judge::LineCosts{17, 3, 0, 6});
  CHECK(parts[0].beside.at(1) == judge::LineCosts{9, 1, 0, 2});
  CHECK(parts[0].lines[0].beside.at(0)->wavefronts == 4);  // the first of two lines of one text
  CHECK_FALSE(parts[0].lines[1].beside.at(0));             // mine alone
  CHECK(parts[0].lines[2].beside.at(0)->wavefronts == 6);
  CHECK_FALSE(parts[0].lines[0].beside.at(1));  // its file does not exist, so its text is unknown
  const auto table = judge::lines_table(parts[0], {book, other}).rows;
  CHECK(table.at(1) == std::vector<std::string>{"4", "load(a);", "8", "7", "0", "2", "4", "3", "2", "-", "-", "-"});
}

TEST_CASE("TMA traffic and mbarriers are facts of a launch that has them") {
  judge::TracedLaunch launch = causal_launch(2);
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  for (const char* name : {"tensor_instructions", "multiply_calls", "async_instructions", "block_barriers",
                           "named_barriers", "warp_barriers", "shuffles", "votes", "shared.atomic_instructions"})
    launch.counters[name] = 0;
  const auto fact = [&](const std::string& named) -> std::string {
    for (const auto& [name, text] : judge::launch_facts(launch))
      if (name == named) return text;
    return "";
  };
  CHECK(fact("TMA").empty());
  CHECK(fact("mbarriers").empty());
  launch.counters.insert({{"bulk_loads", 3}, {"mbarrier_waits", 70}, {"mbarrier_arrivals", 5}});
  launch.tensors[1].counters["bulk_load_bytes"] = 2048;
  CHECK(fact("TMA") == "3 loads, 0 stores; K loaded, 2.0 KiB");
  CHECK(fact("mbarriers") == "70 waits and 5 arrivals of threads");
  CHECK(fact("exp2").empty());
  launch.counters["exponentials"] = 4096;
  CHECK(fact("exp2") == "4096 by threads; an SM computes 16 per cycle");
}
