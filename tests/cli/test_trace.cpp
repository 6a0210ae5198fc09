// `./workbook trace`: its counts equal the formulas', a map shows which block read which tile, and it explains why
// there is nothing to show.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/text.hpp"
#include "tests/cli/npy_files.hpp"
#include "tests/cli/schema.hpp"
#include "tests/cli/traced_book.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

const std::string kernel_file = "tiled_wmma.cu";

/// Chapter 3 solved in chapters/, with one text replaced.
void solve_chapter_3(const WorkbookCopy& book, const std::string& from = "", const std::string& to = "") {
  const std::string mine = "chapters/" + ch03 + "/" + kernel_file;
  book.write(mine, book.read("solutions/" + ch03 + "/" + kernel_file));
  if (!from.empty()) book.edit(mine, from, to);
}

const json& tensor_of(const json& launch, const std::string& name) {
  for (const json& tensor : launch["tensors"]) {
    if (tensor["name"] == name) return tensor;
  }
  throw std::runtime_error("no tensor " + name + " in " + launch.dump());
}

std::int64_t count_of(const json& launch, const std::string& tensor, const std::string& counter) {
  return tensor_of(launch, tensor)["counters"][counter];
}

std::int64_t tiles_of(std::int64_t n, std::int64_t rows) {
  return (n + rows - 1) / rows;
}

/// The line of the text that begins with these words, spaces folded; empty if there is none.
std::string line_with(const std::string& text, const std::string& words) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string folded;
    for (const char c : line) {
      if (c != ' ' || (!folded.empty() && folded.back() != ' ')) folded += c;
    }
    if (folded.starts_with(words)) return folded;
  }
  return "";
}

}  // namespace

TEST_CASE("trace 3: counters of every tensor, barrier and matmul match the formulas") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  struct Case {
    std::int64_t N, H, d, Br, Bc;
    int warps;  // 0: the chapter's tiles; otherwise given on the command line
  };
  for (const Case& c : {Case{200, 2, 64, 64, 64, 0}, {130, 1, 32, 32, 32, 2}, {192, 1, 64, 64, 128, 4}}) {
    std::vector<std::string> arguments{"trace",       "3",
                                       "--solutions", "--json",
                                       "--seq",       std::to_string(c.N),
                                       "--heads",     std::to_string(c.H),
                                       "--head-dim",  std::to_string(c.d)};
    if (c.warps > 0) {
      const std::string warps = fmt::format("warps={}", c.warps);
      arguments.insert(arguments.end(), {"--br", std::to_string(c.Br), "--bc", std::to_string(c.Bc), "--set", warps});
    }
    const Ran ran = book.run(arguments);
    REQUIRE(ran.exit_code == 0);
    const json document = ran.document();
    CHECK(document["result"] == "ok");
    CHECK(document["source"] == "solutions");
    REQUIRE(document["launches"].size() == 1);
    const json& launch = document["launches"][0];
    INFO(launch.dump(2));
    const std::int64_t q_tiles = tiles_of(c.N, c.Br), kv_tiles = tiles_of(c.N, c.Bc);
    const std::int64_t sectors = c.H * c.N * c.d * 2 / 32;  // of one tensor

    CHECK(contains(launch["kernel"], fmt::format("attention<{}, {}, {}", c.d, c.Br, c.Bc)));
    CHECK(launch["grid"] == json({c.H, 1, 1}));
    CHECK(launch["block"] == json({c.warps == 2 ? 64 : 128, 1, 1}));
    CHECK(count_of(launch, "Q", "load_sectors") == sectors);
    CHECK(count_of(launch, "O", "store_sectors") == sectors);
    CHECK(count_of(launch, "lse", "store_bytes") == c.H * c.N * 4);
    for (const char* name : {"K", "V"}) {
      CHECK(count_of(launch, name, "load_sectors") == q_tiles * sectors);
      CHECK(count_of(launch, name, "unique_read_sectors") == sectors);
      CHECK(tensor_of(launch, name)["times_read"] == q_tiles);
      CHECK(tensor_of(launch, name)["times_written"].is_null());
      CHECK(tensor_of(launch, name)["bytes"] == sectors * 32);
    }
    CHECK(tensor_of(launch, "Q")["times_read"] == 1);
    const json& counters = launch["counters"];
    CHECK(counters["block_barriers"] == c.H * q_tiles * (3 * kv_tiles + 1));
    CHECK(counters["multiply_calls"] == c.H * q_tiles * kv_tiles * 2 * (c.Br / 16) * (c.Bc / 16) * (c.d / 16));
    CHECK(counters["tensor_instructions"] == 2 * counters["multiply_calls"].get<std::int64_t>());
    CHECK(counters["async_instructions"] == 0);
    CHECK(counters["global.load_sectors"] == (1 + 2 * q_tiles) * sectors);

    // One block per head reads all K/V tiles once per Q tile.
    REQUIRE(launch["maps"].size() == 2);
    const json& map = launch["maps"][0];
    CHECK(map["tensors"] == json({"K", "V"}));
    CHECK(map["tile_rows"] == c.Bc);
    CHECK(map["row_tensor"].is_null());
    CHECK(map["heads"].size() == std::size_t(c.H));
    REQUIRE(map["rows"].size() == 1);
    CHECK(map["rows"][0]["reads"] == json(std::vector<double>(std::size_t(kv_tiles), double(q_tiles))));
    CHECK(map["rows"][0]["masked"].empty());
    CHECK(launch["maps"][1]["tensors"] == json({"Q"}));
    CHECK(launch["maps"][1]["rows"][0]["reads"] == json(std::vector<double>(std::size_t(q_tiles), 1.0)));
    CHECK(launch["reports"].empty());
    CHECK(document["reports"].empty());
  }
}

TEST_CASE("trace 3 as text: the same figures, and the map") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const Ran ran = book.run({"trace", "3", "--solutions", "--seq", "200", "--heads", "2"});
  INFO(ran.out);
  REQUIRE(ran.exit_code == 0);
  CHECK(ran.err.empty());
  CHECK(contains(ran.out, "Chapter 3: Tiled WMMA (the book's solution, on the simulator)"));
  CHECK(contains(ran.out, "B=1, H=2, Nq=200, Nk=200, d=64, not causal"));
  CHECK(contains(ran.out, "grid (2, 1, 1), block (128, 1, 1): 2 blocks of 128 threads"));
  CHECK(line_with(ran.out, "Q read") == "Q read 50.0 KiB 50.0 KiB 100 1600 1600 1");
  CHECK(line_with(ran.out, "K read") == "K read 50.0 KiB 200.0 KiB 400 6400 1600 4");
  CHECK(line_with(ran.out, "O written") == "O written 50.0 KiB 50.0 KiB 100 1600 1600 1");
  CHECK(contains(line_with(ran.out, "tensor cores"), "4096 mma_sync, 8192 instructions"));
  CHECK(contains(line_with(ran.out, "barriers"), "104 __syncthreads, 52 per block, 3.25 per tile of K"));
  CHECK(contains(line_with(ran.out, "tiles of K"), "8 of 64 rows, 8.0 KiB each (the last of a head has 8 rows); 32 "));
  CHECK(contains(ran.out, "blocks down, K and V tiles of 64 rows across; heads 0-1 alike, head 0 is drawn"));
  CHECK(line_with(ran.out, "block 0 4") == "block 0 4444");
  CHECK_FALSE(contains(ran.out, "\x1b["));  // no terminal, no colours
  CHECK_FALSE(contains(ran.out, "l1tex__"));
}

TEST_CASE("trace --metrics uses Nsight Compute's names, as the simulator's headers do") {
  require_counts();
  const WorkbookCopy book;
  const Ran ran = book.run({"trace", "1", "--metrics", "--seq", "64", "--heads", "1"});
  REQUIRE(ran.exit_code == 0);
  // Every metric name in the output is in counters.hpp.
  const std::string header = book::read_file(fs::path(WORKBOOK_SOURCE) / "common/simt/counters.hpp");
  std::istringstream words(ran.out);
  int found = 0;
  for (std::string word; words >> word;) {
    if (!contains(word, "__") || !contains(word, ".sum")) continue;
    word = word.substr(0, word.find(".sum") + 4);
    INFO(word);
    // The header may omit the beginning of a second name: "…_op_atom.sum".
    const std::size_t operation = std::min(word.rfind("_op_"), word.rfind("_tensor_op_"));
    CHECK((contains(header, word) || contains(header, "…" + word.substr(operation))));
    ++found;
  }
  CHECK(found >= 3 * 14);
  CHECK(contains(line_with(ran.out, "shared.matrix_loads"), "smsp__sass_inst_executed_op_ldsm.sum"));
}

TEST_CASE("trace 1: the three given kernels write S and P once and read them once") {
  require_counts();
  const WorkbookCopy book;
  constexpr std::int64_t N = 200, H = 2, d = 64, stride = 208, tiles = 4;  // rows of S are padded to 16 scores
  // The reader's own code: the kernels are given, so open exercises on the CPU do not prevent the trace.
  const Ran ran = book.run({"trace", "1", "--json", "--seq", "200", "--heads", "2", "--causal"});
  REQUIRE(ran.exit_code == 0);
  const json document = ran.document();
  CHECK(document["source"] == "chapters");
  CHECK(document["input"]["causal"] == true);
  REQUIRE(document["launches"].size() == 3);
  const json &scores = document["launches"][0], &softmax = document["launches"][1], &output = document["launches"][2];
  CHECK(contains(scores["kernel"], "scores"));
  CHECK(contains(softmax["kernel"], "softmax"));
  CHECK(contains(output["kernel"], "output"));
  CHECK(scores["grid"] == json({H * tiles * tiles, 1, 1}));
  CHECK(softmax["grid"] == json({H * N, 1, 1}));

  CHECK(count_of(scores, "S", "store_bytes") == H * N * stride * 4);
  CHECK(count_of(softmax, "S", "load_bytes") == H * N * stride * 4);
  CHECK(count_of(softmax, "P", "store_bytes") == H * N * stride * 2);
  CHECK(count_of(output, "P", "load_bytes") == H * N * stride * 2);
  for (const auto& [launch, name] : {std::pair{&scores, "Q"}, {&scores, "K"}, {&output, "V"}}) {
    CHECK(count_of(*launch, name, "load_sectors") == tiles * H * N * d * 2 / 32);
    CHECK(tensor_of(*launch, name)["times_read"] == tiles);
  }

  // One block per pair of tiles: the rows are Q's.
  REQUIRE(scores["maps"].size() == 1);
  const json& map = scores["maps"][0];
  CHECK(map["row_tensor"] == "Q");
  CHECK(map["row_tile_rows"] == 64);
  CHECK(map["tensors"] == json({"K"}));
  CHECK(map["heads"] == json({0, 1}));
  REQUIRE(map["rows"].size() == tiles);
  for (const json& row : map["rows"]) CHECK(row["reads"] == json(std::vector<double>(tiles, 1.0)));
  CHECK(softmax["maps"].empty());

  const Ran shown = book.run({"trace", "1", "--seq", "200", "--heads", "2"});
  CHECK(contains(shown.out, "all launches together"));
  CHECK(line_with(shown.out, "S 325.0 KiB") == "S 325.0 KiB 325.0 KiB 325.0 KiB");
}

TEST_CASE("trace takes the input that run takes") {
  require_counts();
  const WorkbookCopy book;
  const std::vector<std::string> input{"--json", "--seq", "64", "--heads", "2", "--head-dim", "32", "--seed", "3"};
  std::vector<std::string> trace{"trace", "1"}, run{"run"};
  trace.insert(trace.end(), input.begin(), input.end());
  run.insert(run.end(), input.begin(), input.end());
  CHECK(book.run(trace).document()["input"] == book.run(run).document()["input"]);

  const std::string q = good_npy("q.npy", normal_tensor({2, 2, 40, 64}, 1));
  const std::string kv = good_npy("kv.npy", normal_tensor({2, 2, 100, 64}, 2));
  const json document = book.run({"trace", "1", "--json", "--q", q, "--k", kv, "--v", kv}).document();
  CHECK(document["input"]["source"] == "npy");
  CHECK(document["input"]["Nk"] == 100);
  CHECK(document["launches"][0]["maps"][0]["heads"] == json({0, 1, 2, 3}));
}

TEST_CASE("a tile that the kernel notes as masked is one in the map") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  solve_chapter_3(
      book, "      multiply_QK(smem);",
      "      if (keys < Bc) workbook::cuda::note(\"masked tile\", first_key / Bc);\n      multiply_QK(smem);");
  const std::vector<std::string> arguments{"trace", "3", "--seq", "150", "--heads", "2"};
  std::vector<std::string> as_json = arguments;
  as_json.push_back("--json");
  const Ran ran = book.run(as_json);
  REQUIRE(ran.exit_code == 0);
  const json launch = ran.document()["launches"][0];
  CHECK(launch["notes"] == json::array({{{"label", "masked tile"}, {"count", 2}}}));
  CHECK(launch["maps"][0]["rows"][0]["masked"] == json({2}));
  const std::string out = book.run(arguments).out;
  INFO(out);
  CHECK(line_with(out, "block 0 3 ") == "block 0 3 3 3m");
  CHECK(contains(line_with(out, "\"masked tile\""), "noted 2 times"));
}

TEST_CASE("trace of a backward pass: each kernel reads its resident rows once, the others once per block") {
  require_counts();
  if (!fs::exists(fs::path(WORKBOOK_SOURCE) / "chapters" / ch06)) SKIP("chapter 6 is not in the book yet");
  const WorkbookCopy book = book_with(ch06);
  const std::vector<std::string> arguments{"trace", "6", "--solutions", "--json", "--seq", "256", "--heads", "1"};
  const Ran ran = book.run(arguments);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const json launches = ran.document()["launches"];
  REQUIRE(launches.size() == 3);
  constexpr int blocks = 256 / 128;  // of 128 keys, or queries
  const json &keys = launches[1], &queries = launches[2];
  CHECK(contains(keys["kernel"], "key_gradients"));
  CHECK(contains(queries["kernel"], "query_gradients"));
  for (const char* name : {"K", "V"}) {
    CHECK(tensor_of(keys, name)["times_read"] == 1);
    CHECK(tensor_of(queries, name)["times_read"] == blocks);
  }
  for (const char* name : {"Q", "dO"}) {
    CHECK(tensor_of(keys, name)["times_read"] == blocks);
    CHECK(tensor_of(queries, name)["times_read"] == 1);
  }
  for (const char* name : {"dK", "dV"}) CHECK(tensor_of(keys, name)["times_written"] == 1);
  CHECK(tensor_of(queries, "dQ")["times_written"] == 1);
  REQUIRE(keys["maps"].size() == 2);
  CHECK(keys["maps"][0]["tensors"] == json({"Q", "dO"}));
  CHECK(queries["maps"][0]["tensors"] == json({"K", "V"}));
  for (const json& row : queries["maps"][0]["rows"]) CHECK(row["reads"] == json(std::vector<double>(8, 1.0)));

  std::vector<std::string> with_tiles = arguments;
  with_tiles.insert(with_tiles.end(), {"--bc", "64"});
  const Ran refused = book.run(with_tiles);
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "--bc: chapter 6 chooses its own tile sizes"));
}

TEST_CASE("an open exercise: which one, where, and exit code 1") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const std::string page = scratch("trace.html").string();
  const Ran ran = book.run({"trace", "3", "--seq", "64", "--heads", "1", "--html", page});
  CHECK(ran.exit_code == 1);
  const std::string file = "chapters/" + ch03 + "/" + kernel_file;
  CHECK(contains(ran.out, fmt::format("exercise 3.6 is still open: {}:{}", file, book.line_of(file, "TODO(3.6)"))));
  CHECK(contains(ran.out, "./workbook trace 3 --solutions"));
  CHECK_FALSE(fs::exists(page));
  CHECK(contains(ran.err, "nothing was written"));

  const Ran as_json = book.run({"trace", "3", "--seq", "64", "--heads", "1", "--json"});
  CHECK(as_json.exit_code == 1);
  const json document = as_json.document();
  CHECK(document["result"] == "todo");
  CHECK(contains(document["message"], "exercise 3.6 is still open"));
  CHECK(document["launches"].empty());

  // The fused kernel needs no warm-up.
  solve_chapter_3(book);
  CHECK(book.run({"trace", "3", "--seq", "64", "--heads", "1"}).exit_code == 0);
}

TEST_CASE("mistakes do not end the trace: it shows the counters and the reports") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const std::vector<std::string> arguments{"trace", "3", "--json", "--seq", "128", "--heads", "1"};
  solve_chapter_3(book, "      __syncthreads();                                    // Q, K and V are there\n", "");
  const Ran race = book.run(arguments);
  CHECK(race.exit_code == 1);
  const json document = race.document();
  CHECK(document["result"] == "ok");
  REQUIRE(document["launches"].size() == 1);
  CHECK(count_of(document["launches"][0], "K", "load_sectors") == 2 * 128 * 64 * 2 / 32);
  REQUIRE_FALSE(document["launches"][0]["reports"].empty());
  CHECK(contains(document["launches"][0]["reports"][0], "race"));
  CHECK(contains(document["launches"][0]["reports"][0], kernel_file));
  const Ran shown = book.run({"trace", "3", "--seq", "128", "--heads", "1"});
  CHECK(shown.exit_code == 1);
  CHECK(contains(shown.out, "the simulator reports"));
}

TEST_CASE("outputs that are not written, no launch, code that does not compile: trace says so") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const std::vector<std::string> arguments{"trace", "3", "--json", "--seq", "128", "--heads", "1"};
  solve_chapter_3(book, "    store_rounded(values, O_tile, row * threads_per_row + chunk_index);",
                  "    if (row > 3) store_rounded(values, O_tile, row * threads_per_row + chunk_index);");
  const Ran missing = book.run(arguments);
  CHECK(missing.exit_code == 1);
  const json document = missing.document();
  REQUIRE(document["reports"].size() == 1);
  CHECK(contains(document["reports"][0], "elements of O were never written"));
  CHECK(count_of(document["launches"][0], "O", "store_bytes") == (128 - 2 * 4) * 64 * 2);

  // A kernel that is not launched at all, and one that does not compile.
  solve_chapter_3(book, "    if constexpr (fits<d, t.Br, t.Bc, t.warps>)\n", "    if constexpr (false)\n");
  const Ran nothing = book.run({"trace", "3", "--seq", "128", "--heads", "1"});
  CHECK(nothing.exit_code == 1);
  CHECK(contains(nothing.out, "no kernel was launched"));
  solve_chapter_3(book, "call.scale * log2_e);", "call.scale * log2_e)");
  const Ran broken = book.run(arguments);
  CHECK(broken.exit_code == 1);
  CHECK(broken.document()["result"] == "not compiled");
  CHECK(contains(broken.document()["message"], kernel_file));
}

TEST_CASE("trace --html writes a page that needs nothing beside it and says the same") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const std::string page = scratch("trace.html").string();
  RunOptions there;  // a file name is relative to the current folder
  there.folder = fs::path(page).parent_path();
  const Ran ran =
      book.run({"trace", "3", "--solutions", "--seq", "200", "--heads", "2", "--html", "trace.html"}, there);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.out, "written: trace.html"));
  const std::string html = book::read_file(page);
  CHECK(html.starts_with("<!DOCTYPE html>"));
  CHECK(html.ends_with("</html>\n"));
  const std::string named = book::replaced(html, "http://www.w3.org/2000/svg", "");  // a name, not an address
  for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import", "import {", "\nexport ", "{{"}) {
    INFO(outside);
    CHECK_FALSE(contains(named, outside));
  }
  CHECK(contains(html, "light-dark("));
  const json facts = page_facts(html);
  REQUIRE(facts["columns"].size() == 1);
  REQUIRE(facts["columns"][0]["launches"].size() == 1);
  const json& launch = facts["columns"][0]["launches"][0];
  CHECK(launch["kernel"] == "ch03::attention<64, 64, 64, 4>");
  CHECK(launch["tables"][0]["rows"][2] == json({"K", "read", "50.0 KiB", "200.0 KiB", "400", "6400", "1600", "4"}));
  REQUIRE(launch["drawn_maps"].size() == 2);  // K and V; Q
  CHECK(launch["drawn_maps"][0]["column_name"] == "K and V tile");
  CHECK(launch["drawn_maps"][0]["cells"] == json::array({json(std::vector<json>(4, json({"read", "4"})))}));
  CHECK(contains(launch["metrics"].dump(), "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"));
  // The intervals of block 0, which moves all of the first head: 200 rows of 64 and of 1.
  CHECK(launch["timeline"]["intervals"] > 4);
  CHECK(launch["timeline"]["intervals"] == launch["moved"].size());
  std::map<std::string, std::int64_t> written;
  for (const json& interval : launch["moved"]) {
    for (const auto& [name, bytes] : interval.items()) written[name] += bytes[1].get<std::int64_t>();
  }
  CHECK(written["O"] == 200 * 64 * 2);
  CHECK(written["lse"] == 200 * 4);
  CHECK(launch["waits"].size() == 4 * (launch["timeline"]["intervals"].get<std::size_t>() - 1));
}

TEST_CASE("trace 14: the heads of a group read K and V together") {
  require_counts();
  const WorkbookCopy book = book_with("14_grouped_queries");
  // The answers to the lesson's "Predict before you run".
  std::vector<std::string> arguments{"trace",      "14", "--solutions", "--json", "--heads", "32",
                                     "--kv-heads", "4",  "--queries",   "1",      "--seq",   "1024"};
  const auto traced = [&] {
    const json document = book.run(arguments).document();
    CHECK(document["input"]["Hkv"] == 4);
    CHECK(document["input"]["Nq"] == 1);
    return document["launches"][0];
  };
  const json packed = traced();
  arguments.insert(arguments.end(), {"--set", "pack=1"});
  const json apart = traced();
  CHECK(packed["grid"] == json({4, 1, 1}));
  CHECK(apart["grid"] == json({32, 1, 1}));
  CHECK(count_of(packed, "K", "async_bytes") == 512 * 1024);
  CHECK(count_of(apart, "K", "async_bytes") == 4096 * 1024);
  CHECK(tensor_of(packed, "K")["times_read"] == 1);
  CHECK(tensor_of(apart, "K")["times_read"] == 8);
  const json backward = book.run({"trace", "14", "--solutions", "--json", "--pass", "backward", "--heads", "8",
                                  "--kv-heads", "2", "--seq", "512"})
                            .document()["launches"][1];
  CHECK(backward["grid"] == json({8, 1, 1}));
  CHECK(count_of(backward, "dK", "store_bytes") == 128 * 1024);
  CHECK(count_of(backward, "dV", "store_bytes") == 128 * 1024);
  CHECK(tensor_of(backward, "K")["times_read"] == 1);
  expect_refused(book, {"trace", "1", "--pass", "backward"},
                 {"--pass backward", "chapter 1 has no such pass", "allowed: forward"});
  expect_refused(
      book,
      {"trace", "14", "--solutions", "--kv-heads", "2", "--html", scratch("trace.html").string(), "--beside", "1"},
      {"--beside 1", "chapter 1 does not support Hkv < H on the simulator",
       "allowed: as many K/V heads as query heads"});
}

TEST_CASE("trace --json follows notes/json.md") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  solve_chapter_3(book, "      multiply_QK(smem);",
                  "      workbook::cuda::note(\"masked tile\", 0);\n      multiply_QK(smem);");
  const std::vector<std::string> small{"--json", "--seq", "64", "--heads", "1"};
  const auto traced = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), small.begin(), small.end());
    return book.run(arguments).document();
  };
  expect_schema(book, "trace", {traced({"trace", "3"}), traced({"trace", "1"})});
}

TEST_CASE("trace refuses invalid arguments, with exit code 2") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const std::string page = scratch("trace.html").string(), folder = scratch("missing/trace.html").string();
  const std::string odd = good_npy("odd.npy", normal_tensor({1, 1, 8, 40}, 1));
  struct Case {
    std::vector<std::string> arguments, said;
  };
  for (const Case& wrong : {
           Case{{"2"}, {"trace 2", "chapter 2 runs on the CPU", "allowed", "1, 3"}},
           Case{{"17"}, {"17"}},
           Case{{}, {"chapter", "required"}},
           Case{{"3", "--causal"}, {"--causal", "chapter 3 has no causal mask", "allowed"}},
           Case{{"3", "--kv-heads", "2"},
                {"--kv-heads 2", "chapter 3 does not support Hkv < H on the simulator",
                 "allowed: as many K/V heads as query heads, or a chapter with kernels"}},
           Case{{"3", "--seq", "0"}, {"--seq", "\"0\"", "allowed"}},
           Case{{"3", "--br", "0"}, {"--br", "\"0\"", "allowed"}},
           Case{{"3", "--br", "9223372036854775807"},
                {"--br", "\"9223372036854775807\"", "from 1 to 9007199254740992"}},
           Case{{"3", "--bc", "x"}, {"--bc", "\"x\"", "allowed"}},
           Case{{"3", "--solutions", "--seq", "64", "--heads", "1", "--br", "48"}, {"--br", "48", "not built"}},
           Case{{"1", "--seq", "64", "--heads", "1", "--br", "32"},
                {"--br", "Br = 32: not built", "allowed: (Br, Bc, warps) = (64, 64, 4)"}},
           Case{{"1", "--seq", "64", "--heads", "1", "--bc", "128"},
                {"--bc", "Bc = 128: not built", "allowed: (Br, Bc, warps) = (64, 64, 4)"}},
           Case{{"1", "--q", odd, "--k", odd, "--v", odd}, {"40", "32, 64"}},
           Case{{"1", "--q", odd}, {"--q, --k and --v", "1 of the three"}},
           Case{{"3", "--backend", "sim"}, {"--backend"}},
           Case{{"3", "--set", "warps"}, {"--set warps", "NAME=NUMBER"}},
           Case{{"3", "--set", "warps=two"}, {"--set warps=two", "NAME=NUMBER"}},
           Case{{"3", "--set", "warps=1e300"}, {"--set warps=1e300", "a number from -9007199254740992"}},
           Case{{"3", "--set", "=2"}, {"--set =2", "NAME=NUMBER"}},
           Case{{"3", "--set", "Nk=4096"}, {"--set Nk=4096", "--set cannot change Nk", "allowed"}},
       }) {
    std::vector<std::string> arguments{"trace"};
    arguments.insert(arguments.end(), wrong.arguments.begin(), wrong.arguments.end());
    arguments.insert(arguments.end(), {"--json", "--html", page});
    expect_refused(book, arguments, wrong.said);
  }
  expect_refused(book, {"trace", "1", "--html", folder}, {"--html " + folder, "does not exist"});
}

TEST_CASE("without the simulator, or without its counters, trace says why, with exit code 3") {
  const WorkbookCopy book;
  const std::string file = "build/default/toolchain.json";
  const json toolchain = json::parse(book.read(file));
  json without = toolchain;
  without["backends"].erase("sim");
  without["unavailable"]["sim"] = "Boost.Context was not found";
  book.write(file, without.dump());
  const Ran missing = book.run({"trace", "1"});
  CHECK(missing.exit_code == 3);
  CHECK(missing.out.empty());
  CHECK(contains(missing.err, "trace needs the simulator"));
  CHECK(contains(missing.err, "Boost.Context was not found"));

  if (!toolchain["backends"].contains("sim")) return;
  json uncounted = toolchain;
  uncounted["counts"] = false;
  uncounted["simulator"] = "clang++ does not count";
  book.write(file, uncounted.dump());
  const Ran blind = book.run({"trace", "1"});
  CHECK(blind.exit_code == 3);
  CHECK(contains(blind.err, "clang++ does not count"));
}

TEST_CASE("a map larger than the line is scaled down, and says so") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  // 66 tiles of 32 keys, each read by one Q tile: one-digit numbers fit; 66 rows would not.
  const std::string q = good_npy("q.npy", normal_tensor({1, 1, 32, 32}, 1));
  const std::string kv = good_npy("kv.npy", normal_tensor({1, 1, 8192, 32}, 2));
  const Ran ran = book.run({"trace", "3", "--solutions", "--q", q, "--k", kv, "--v", kv});
  INFO(ran.out);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.out, "one cell stands for 2 x 2 tiles; there are 1 x 128"));
  CHECK(contains(ran.out, "Q 0 " + std::string(64, '#') + "\n"));
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) {
    if (contains(line, "###")) CHECK(line.size() <= 120);
  }
}

TEST_CASE("a race in a given file is reported at the reader's copy, not at the copy that the judge builds") {
  require_counts();
  const WorkbookCopy book = book_with(ch06);
  const std::string mine = "chapters/" + ch06 + "/backward.cu", given = "chapters/" + ch06 + "/fragments.hpp";
  book.write(mine, book.read("solutions/" + ch06 + "/backward.cu"));
  book.edit(mine, "    team_barrier<T>();  // the team's P and dS are visible\n", "");
  const std::vector<std::string> test{"--only", "dK and dV do not depend on how the work is divided"};
  const Ran ran = book.run({"test", "6.7", "--backend", "sim", test[0], test[1]});
  INFO(ran.out << ran.err);
  CHECK(ran.exit_code == 1);
  const int line = book.line_of(given, "wmma::store_matrix_sync(reinterpret_cast<half*>(&tile[row][column])");
  CHECK(contains(ran.out, fmt::format("writes at {}:{}, ", given, line)));
  CHECK_FALSE(contains(ran.out, "grafts"));
}
