// The pictures of the lessons: drawings as files, requested pictures, and outdated files. The gate checks that the
// committed pictures match the code.
#include "common/pictures/pictures.hpp"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "common/attention/half.hpp"
#include "common/attention/mask_text.hpp"
#include "common/attention/positions.hpp"
#include "common/book/files.hpp"
#include "common/pictures/kinds.hpp"
#include "common/worker/command.hpp"
#include "tests/book/fixtures/temporary_book.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::pictures;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

const fs::path kRoot = WORKBOOK_SOURCE;

using Values = std::map<std::string, Parameters::Value>;

Facts facts_of(Facts (*make)(const Request&), const Values& values) {
  const judge::Workspace workspace{book::load_book(kRoot), {}, {}};
  Parameters parameters("test:1", values);
  Facts facts = make({workspace, nullptr, parameters});
  parameters.finish();
  return facts;
}

/// The SVG text of facts, or nothing without Node.
std::string drawn(const char* kind, const Facts& facts) {
  if (!why_not_drawn().empty()) return "";
  const book::TemporaryFolder folder;
  judge::Workspace workspace{book::load_book(kRoot), {}, {}};
  workspace.toolchain.build_folder = folder.path();
  Facts all{{"kind", kind}, {"title", "a <title>"}};
  all.update(facts);
  return draw(workspace, Facts::array({all})).at(0);
}
/// Whether the picture's text for screen readers contains this.
void check_said(const char* kind, const Facts& facts, const std::vector<std::string>& said) {
  const std::string file = drawn(kind, facts);
  if (file.empty()) return;
  CHECK(contains(file, "<title id=\"title\">a &lt;title&gt;</title>"));
  for (const std::string& words : said) CHECK_THAT(file, ContainsSubstring(words));
}

/// All committed pictures.
std::vector<fs::path> committed() {
  std::vector<fs::path> files;
  for (const auto& chapter : fs::directory_iterator(kRoot / "chapters")) {
    if (!fs::is_directory(chapter.path() / "pictures")) continue;
    for (const auto& file : fs::directory_iterator(chapter.path() / "pictures")) files.push_back(file.path());
  }
  return files;
}

std::vector<State> states(const std::vector<Compared>& compared) {
  std::vector<State> all;
  for (const Compared& one : compared) all.push_back(one.state);
  return all;
}

}  // namespace

TEST_CASE("an outdated, a missing and an unused picture are reported") {
  const book::TemporaryFolder folder;
  const fs::path first = folder / "pictures" / "first.svg", second = folder / "pictures" / "second.svg";
  folder.write("pictures/first.svg", "<svg/>\n");
  folder.write("pictures/second.svg", "<svg/>\n");
  const std::vector<Picture> both{{first, "<svg/>\n", ""}, {second, "<svg/>\n", ""}};
  CHECK(states(compare(both)) == std::vector{State::current, State::current});

  folder.write("pictures/second.svg", "<svg />\n");
  CHECK(states(compare(both)) == std::vector{State::current, State::differs});
  CHECK(states(compare({both[0]})) == std::vector{State::current, State::unused});
  fs::remove(second);
  CHECK(states(compare(both)) == std::vector{State::current, State::missing});

  // A picture that cannot be drawn here is neither right nor wrong, but its file must exist.
  CHECK(states(compare({{first, "", "no simulator"}})) == std::vector{State::unknown});
  CHECK(states(compare({both[0], {second, "", "no simulator"}})) == std::vector{State::current, State::missing});
}

TEST_CASE("a pictures.toml is read strictly") {
  const book::TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    folder.write("pictures.toml", text);
    return read_tables(folder / "pictures.toml", "pictures.toml", "picture");
  };
  std::vector<Parameters> tables =
      read("[[picture]]\nrows = 8\nnames = ['a', 'b']\n\n[[picture]]\nsizes = [1, 2.5]\ncausal = true\n");
  REQUIRE(tables.size() == 2);
  CHECK(tables[0].count("rows") == 8);
  CHECK_THROWS_WITH(tables[0].finish(), "pictures.toml:1: unknown key names");
  CHECK(tables[0].texts("names") == std::vector<std::string>{"a", "b"});
  CHECK_NOTHROW(tables[0].finish());
  CHECK(tables[1].numbers("sizes") == std::vector{1, 2.5});
  CHECK_THROWS_WITH(tables[1].flag("arrows"), "pictures.toml:5: arrows is missing");
  CHECK_THROWS_WITH(tables[1].number("causal"), "pictures.toml:5: causal must be a number");
  CHECK_THROWS_WITH(tables[1].count("sizes"), "pictures.toml:5: sizes must be a number");

  CHECK_THROWS_WITH(read("[[picture]\n"), ContainsSubstring("pictures.toml:1: "));
  CHECK_THROWS_WITH(read("[[figure]]\n"), ContainsSubstring("only tables [[picture]]"));
  CHECK_THROWS_WITH(read("[[picture]]\nrows = [1, 'a']\n"), ContainsSubstring("numbers, or strings"));
}

TEST_CASE("formats reach as far as their codes do") {
  const Facts facts = facts_of(formats_facts, {{"names", std::vector<std::string>{"fp16", "bf16", "E4M3"}},
                                               {"exponent_bits", std::vector<double>{5, 8, 4}},
                                               {"mantissa_bits", std::vector<double>{10, 7, 3}},
                                               {"without_infinity", std::vector<std::string>{"E4M3"}}});
  const Facts& formats = facts["formats"];
  CHECK(formats[0]["largest"] == half_to_float(0x7BFF));
  CHECK(formats[0]["smallest_normal"] == half_to_float(0x0400));
  CHECK(formats[0]["smallest"] == half_to_float(0x0001));
  CHECK(formats[1]["largest"] == bfloat16_to_float(0x7F7F));
  CHECK(formats[2]["largest"] == 448);
  CHECK(formats[2]["smallest_normal"] == 0.015625);
  check_said("formats", facts, {"E4M3: 1 + 4 + 3 = 8 bits; largest 448, smallest normal 0.015625"});
}

TEST_CASE("banks and swizzles are counted as the simulator counts them") {
  const Facts banks = facts_of(
      banks_facts,
      {{"rows", 8.}, {"row_bytes", 128.}, {"access_bytes", 16.}, {"paddings", std::vector<double>{0, 16, 32}}});
  CHECK(banks["paddings"][0]["wavefronts"] == 8);
  CHECK(banks["paddings"][1]["wavefronts"] == 1);
  CHECK(banks["paddings"][2]["wavefronts"] == 2);
  check_said("banks", banks,
             {"contiguous: 16 bytes of 8 rows: 8 wavefronts",
              "16 bytes of padding after each: 16 bytes of 8 rows: 1 wavefront.",
              "32 bytes of padding after each: 16 bytes of 8 rows: 2 wavefronts."});
  check_said("swizzle", facts_of(swizzle_facts, {{"row_bytes", 128.}, {"chunk", 5.}}),
             {"plain: 8 wavefronts, 128 bytes per row. padded: 1 wavefront, 144 bytes per row. swizzled: 1 wavefront, "
              "128 bytes per row. "});
}

TEST_CASE("every element of a fragment is with one lane") {
  const Facts facts = facts_of(fragments_facts, {{"element", std::string("half")},
                                                 {"shape", std::vector<double>{16, 8, 16}},
                                                 {"matrices", std::vector<std::string>{"a", "b", "accumulator"}},
                                                 {"names", std::vector<std::string>{"A", "B", "D"}}});
  // PTX ISA, "Matrix fragments for mma.m16n8k16": D[1] of lane 5 is row 5 / 4 and column 5 % 4 * 2 + 1.
  check_said("fragments", facts, {"row 1 and column 3 of D are with lane 5"});
  // "Matrix fragments for mma.m16n8k32": A[1] of lane 5 is row 5 / 4 and column 5 % 4 * 4 + 1.
  check_said("fragments",
             facts_of(fragments_facts, {{"element", std::string("e4m3")},
                                        {"shape", std::vector<double>{16, 8, 32}},
                                        {"matrices", std::vector<std::string>{"a"}},
                                        {"names", std::vector<std::string>{"A"}}}),
             {"row 1 and column 5 of A are with lane 5"});
  const std::string file = drawn("fragments", facts);
  if (file.empty()) SKIP("Node is not here");
  std::set<std::string> places;  // of the cells
  std::size_t cells = 0;
  for (std::size_t at = file.find("<rect class=\"p"); at != std::string::npos;
       at = file.find("<rect class=\"p", at + 1)) {
    const std::size_t x = file.find(" x=", at);
    if (file.compare(at, 18, "<rect class=\"page\"") == 0) continue;
    places.insert(file.substr(x, file.find(" width", x) - x));
    ++cells;
  }
  CHECK(cells == 16 * 16 + 16 * 8 + 16 * 8);
  CHECK(places.size() == cells);
}

TEST_CASE("the running softmax ends where the whole row does") {
  const Facts facts = facts_of(softmax_facts, {{"scores", std::vector<double>{1, 3, 2, 5}}, {"block", 2.}});
  CHECK(facts.at("passes").size() == 4);
  check_said(
      "softmax", facts,
      {"After block 0: m = 3, factor 0.0000, l = 1.1353. After block 1: m = 5, factor 0.1353, l = 1.2034. In one "
       "pass: m = 5, l = 1.2034. LSE = 5 + log 1.2034 = 5.1852."});
}

TEST_CASE("a diagram has the boxes, bars and words of its text") {
  const Facts facts = facts_of(diagram_facts, {{"text", std::string("┌───┐\n│ a │──▶ b c\n└───┘\n [ d ]  e[0]\n")}});
  check_said("diagram", facts, {"a. b c. d. e[0]. ", "<rect class=\"p0\" ", "<rect class=\"p0 s0\" ", "<polygon "});
}

TEST_CASE("a plot has the chosen curves of a bench figure, under the chosen names") {
  const auto plot = [](const std::string& curve) {
    return facts_of(plot_facts, {{"figure", std::string("speed_forward")},
                                 {"panel", std::string("forward, d = 64")},
                                 {"curves", std::vector<std::string>{curve, "11_wgmma", "SDPA cuDNN"}},
                                 {"names", std::vector<std::string>{"first", "second", "third"}}});
  };
  const Facts facts = plot("04_q_split");
  const Facts& curves = facts["panels"][0]["curves"];
  REQUIRE(curves.size() == 3);
  CHECK(curves[1]["title"] == "second");
  CHECK(curves[2]["style"] == "dashed");
  CHECK(curves[0]["points"] != curves[1]["points"]);
  check_said("plot", facts, {"forward, d = 64, first: "});
  CHECK_THROWS_WITH(plot("04"), ContainsSubstring("test:1: notes/figures/speed_forward.json has no \"04\""));
}

TEST_CASE("a plot may have a curve of a run in the speed log") {
  const auto plot = [](const std::string& column) {
    return facts_of(plot_facts, {{"figure", std::string("speed_forward")},
                                 {"panel", std::string("forward, d = 128")},
                                 {"curves", std::vector<std::string>{"11_wgmma"}},
                                 {"names", std::vector<std::string>{"chapter 11"}},
                                 {"log", std::string("Chapters 11 and 12 in the same run")},
                                 {"log_rows", std::string("128, yes")},
                                 {"log_column", column},
                                 {"log_name", std::string("other")}});
  };
  const Facts curve = plot("FlashAttention-3")["panels"][0]["curves"][1];
  CHECK(curve["title"] == "other");
  // The rows "128, yes" of the section's first table.
  CHECK(curve["points"] == Facts::parse("[[1024, 490], [2048, 601], [4096, 673], [8192, 707], [16384, 650]]"));
  CHECK_THROWS_WITH(plot("FlashAttention-9"), ContainsSubstring("test:1: the table has no \"FlashAttention-9\""));
}

TEST_CASE("the random bytes of a picture drop the pairs that the oracle drops") {
  const Facts facts = facts_of(dropout_facts, {{"dropped", 26.}, {"seed", 7.}});
  Setting setting;
  setting.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 32, .Nk = 32, .d = 64};
  setting.mask = *mask_of("none+dropout=0.1,7");
  REQUIRE(setting.mask.dropped == 26);
  for (int query = 0; query < 32; ++query) {
    for (int key = 0; key < 32; ++key) CHECK((facts["bytes"][query][key] < 26) == (kept(setting, query, key) == 0));
  }
  // PTX ISA, "Matrix fragments for mma.m16n8k16": D[3] of lane 5 is row 5 / 4 + 8 and column 5 % 4 * 2 + 1.
  CHECK(facts["places"][5][3] == Facts::parse("[9, 3]"));
  check_said("dropout", facts,
             {"S: lane 0, elements 1 and 3 of each part", "Sᵀ: lane 4, elements 0 and 2 of each part"});
}

TEST_CASE("a picture that Node cannot draw is an error with Node's message") {
  if (!why_not_drawn().empty()) SKIP("Node is not here");
  CHECK_THROWS_WITH(drawn("no such kind", Facts::object()), ContainsSubstring("node cannot draw the pictures"));
}

TEST_CASE("the committed pictures are valid, and lessons show only pictures that exist") {
  const std::vector<fs::path> files = committed();
  CHECK(files.size() >= 28);  // facts and drawings
  for (const fs::path& file : files) {
    INFO(file.string());
    const std::string text = book::read_file(file);
    if (file.extension() == ".json") {
      CHECK(nlohmann::json::parse(text).at("title").is_string());
      continue;
    }
    CHECK(file.extension() == ".svg");
    CHECK(contains(text, "<title id=\"title\">"));
    CHECK(contains(text, "<desc id=\"desc\">"));
    CHECK(contains(text, "prefers-color-scheme:dark"));
    if (worker::find_program("xmllint").empty()) continue;
    const worker::CommandResult valid = worker::run_command({"xmllint", "--noout", file.string()});
    INFO(valid.output);
    CHECK(valid.exit_code == 0);
  }
  int shown = 0;
  for (const auto& chapter : fs::directory_iterator(kRoot / "chapters")) {
    if (!fs::exists(chapter.path() / "README.md")) continue;
    const std::string lesson = book::read_file(chapter.path() / "README.md");
    for (std::size_t at = lesson.find("](pictures/"); at != std::string::npos;
         at = lesson.find("](pictures/", at + 1)) {
      const std::string name = lesson.substr(at + 2, lesson.find(')', at) - at - 2);
      INFO(chapter.path().filename().string() << "/" << name);
      CHECK(fs::exists(chapter.path() / name));
      ++shown;
    }
  }
  CHECK(shown > 0);
}
