// The pictures of the lessons: drawings as files, what is asked for, and when a file is out of date. That the committed
// ones are what the code says is the gate's to find out.
#include "common/pictures/pictures.hpp"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "common/attention/half.hpp"
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

Drawing drawn(Drawing (*draw)(const Request&), const Values& values) {
  const judge::Workspace workspace{book::load_book(kRoot), {}, {}};
  Parameters parameters("test:1", values);
  Drawing drawing = draw({workspace, nullptr, parameters});
  parameters.finish();
  return drawing;
}

std::string file_of(const Drawing& drawing) {
  return drawing.svg.file(drawing.height, "a <title>", drawing.description);
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

TEST_CASE("a file that is not what is drawn is told, one that is missing, and one that nobody asks for") {
  const book::TemporaryFolder folder;
  const fs::path first = folder / "pictures" / "first.svg", second = folder / "pictures" / "second.svg";
  folder.write("pictures/first.svg", "<svg/>\n");
  folder.write("pictures/second.svg", "<svg/>\n");
  const std::vector<Picture> both{{first, "<svg/>\n", ""}, {second, "<svg/>\n", ""}};
  CHECK(states(compare(both)) == std::vector{State::current, State::current});

  folder.write("pictures/second.svg", "<svg />\n");
  CHECK(states(compare(both)) == std::vector{State::current, State::differs});
  CHECK(states(compare({both[0]})) == std::vector{State::current, State::unasked});
  fs::remove(second);
  CHECK(states(compare(both)) == std::vector{State::current, State::missing});

  // What cannot be drawn here is neither right nor wrong; but its file has to be there.
  CHECK(states(compare({{first, "", "no simulator"}})) == std::vector{State::unknown});
  CHECK(states(compare({both[0], {second, "", "no simulator"}})) == std::vector{State::current, State::missing});
}

TEST_CASE("what a pictures.toml says is read strictly") {
  const book::TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    folder.write("pictures.toml", text);
    return read_tables(folder / "pictures.toml", "pictures.toml", "picture");
  };
  std::vector<Parameters> tables =
      read("[[picture]]\nrows = 8\nnames = ['a', 'b']\n\n[[picture]]\nsizes = [1, 2.5]\ncausal = true\n");
  REQUIRE(tables.size() == 2);
  CHECK(tables[0].count("rows") == 8);
  CHECK_THROWS_WITH(tables[0].finish(), "pictures.toml:1: names means nothing here");
  CHECK(tables[0].texts("names") == std::vector<std::string>{"a", "b"});
  CHECK_NOTHROW(tables[0].finish());
  CHECK(tables[1].numbers("sizes") == std::vector{1, 2.5});
  CHECK_THROWS_WITH(tables[1].flag("arrows"), "pictures.toml:5: arrows is missing");
  CHECK_THROWS_WITH(tables[1].number("causal"), "pictures.toml:5: causal must be a number");
  CHECK_THROWS_WITH(tables[1].count("sizes"), "pictures.toml:5: sizes must be a number");

  CHECK_THROWS_WITH(read("[[picture]\n"), ContainsSubstring("pictures.toml:1: "));
  CHECK_THROWS_WITH(read("[[figure]]\n"), ContainsSubstring("tables [[picture]] alone"));
  CHECK_THROWS_WITH(read("[[picture]]\nrows = [1, 'a']\n"), ContainsSubstring("numbers, or strings"));
}

TEST_CASE("formats reach as far as their codes do") {
  const std::string facts = drawn(draw_formats, {{"names", std::vector<std::string>{"fp16", "bf16", "E4M3"}},
                                                 {"exponent_bits", std::vector<double>{5, 8, 4}},
                                                 {"mantissa_bits", std::vector<double>{10, 7, 3}},
                                                 {"without_infinity", std::vector<std::string>{"E4M3"}}})
                                .description;
  CHECK_THAT(facts, ContainsSubstring(fmt::format("fp16: 1 + 5 + 10 = 16 bits; largest {:g}", half_to_float(0x7BFF))));
  CHECK_THAT(facts, ContainsSubstring(fmt::format("smallest normal {:.2e}", half_to_float(0x0400))));
  CHECK_THAT(facts, ContainsSubstring(fmt::format("smallest {:.2e}", half_to_float(0x0001))));
  CHECK_THAT(facts, ContainsSubstring(fmt::format("largest {:.2e}", bfloat16_to_float(0x7F7F))));
  CHECK_THAT(facts, ContainsSubstring("E4M3: 1 + 4 + 3 = 8 bits; largest 448, smallest normal 0.015625"));
}

TEST_CASE("banks and swizzles are counted as the simulator counts them") {
  const Values rows{{"rows", 8.}, {"row_bytes", 128.}, {"access_bytes", 16.}};
  Values both = rows;
  both["paddings"] = std::vector<double>{0, 16, 32};
  const std::string banks = drawn(draw_banks, both).description;
  CHECK_THAT(banks, ContainsSubstring("one behind the other: 16 bytes of 8 rows: 8 wavefronts"));
  CHECK_THAT(banks, ContainsSubstring("16 bytes of padding behind each: 16 bytes of 8 rows: 1 wavefront."));
  CHECK_THAT(banks, ContainsSubstring("32 bytes of padding behind each: 16 bytes of 8 rows: 2 wavefronts."));
  const std::string swizzle = drawn(draw_swizzle, {{"row_bytes", 128.}, {"chunk", 5.}}).description;
  CHECK(swizzle ==
        "plain: 8 wavefronts, 128 bytes a row. padded: 1 wavefront, 144 bytes a row. swizzled: 1 wavefront, 128 bytes "
        "a row. ");
}

TEST_CASE("every element of a fragment is with one lane") {
  const Drawing drawing = drawn(draw_fragments, {{"element", std::string("half")},
                                                 {"shape", std::vector<double>{16, 8, 16}},
                                                 {"matrices", std::vector<std::string>{"a", "b", "accumulator"}},
                                                 {"names", std::vector<std::string>{"A", "B", "D"}}});
  // PTX ISA, "Matrix fragments for mma.m16n8k16": D[1] of lane 5 is row 5 / 4 and column 5 % 4 * 2 + 1.
  CHECK_THAT(drawing.description, ContainsSubstring("row 1 and column 3 of D are with lane 5"));
  // "Matrix fragments for mma.m16n8k32": A[1] of lane 5 is row 5 / 4 and column 5 % 4 * 4 + 1.
  CHECK_THAT(drawn(draw_fragments, {{"element", std::string("e4m3")},
                                    {"shape", std::vector<double>{16, 8, 32}},
                                    {"matrices", std::vector<std::string>{"a"}},
                                    {"names", std::vector<std::string>{"A"}}})
                 .description,
             ContainsSubstring("row 1 and column 5 of A are with lane 5"));
  std::set<std::string> places;  // of the cells
  std::size_t cells = 0;
  const std::string file = file_of(drawing);
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
  const std::string steps =
      drawn(draw_softmax, {{"scores", std::vector<double>{1, 3, 2, 5}}, {"block", 2.}}).description;
  CHECK(steps ==
        "After block 0: m = 3, factor 0.0000, l = 1.1353. After block 1: m = 5, factor 0.1353, l = 1.2034. All at "
        "once: m = 5, l = 1.2034. LSE = 5 + log 1.2034 = 5.1852.");
}

TEST_CASE("a drawing is XML with a title, a description, and colours for a light and a dark page") {
  Svg svg;
  svg.text(1, 2, "a < b & \"c\"");
  const std::string file = svg.file(10, "less <than>", "it says a & b");
  CHECK(contains(file, "<title id=\"title\">less &lt;than&gt;</title>"));
  CHECK(contains(file, "<desc id=\"desc\">it says a &amp; b</desc>"));
  CHECK(contains(file, ">a &lt; b &amp; &quot;c&quot;</text>"));
  CHECK(contains(file, "@media (prefers-color-scheme:dark)"));
}

TEST_CASE("the committed pictures are valid, and lessons show only pictures that exist") {
  const std::vector<fs::path> files = committed();
  CHECK(files.size() >= 14);
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
