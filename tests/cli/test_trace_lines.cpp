// `./workbook trace --lines`, `--beside` and `--operation`: every access belongs to one line, a line is compared with
// its counterpart, a page shows two kernels, another operation of the chapter is traced like its stage, and impossible
// requests are refused.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "common/attention/npy.hpp"
#include "common/book/files.hpp"
#include "common/book/text.hpp"
#include "tests/cli/schema.hpp"
#include "tests/cli/traced_book.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

const std::string kernel = "chapters/" + ch03 + "/tiled_wmma.cu", layout = "chapters/" + ch03 + "/layout.hpp",
                  lab = "chapters/" + ch03 + "/lab.cu";
const std::vector<std::string> small{"--seq", "64", "--heads", "1"};

std::vector<std::string> traced(std::vector<std::string> arguments, const std::vector<std::string>& more = {}) {
  arguments.insert(arguments.begin(), "trace");
  arguments.insert(arguments.end(), small.begin(), small.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// The total requests of all parts, and of all lines of all parts.
struct Sums {
  std::map<std::string, std::int64_t> parts, lines;
};
Sums sums(const json& document) {
  Sums sums;
  for (const json& part : document["lines"]) {
    for (const auto& [name, count] : part["costs"].items()) sums.parts[name] += count.get<std::int64_t>();
    for (const json& line : part["lines"])
      for (const auto& [name, count] : line["costs"].items()) sums.lines[name] += count.get<std::int64_t>();
  }
  return sums;
}

/// Chapter 3 solved, with unpadded rows of S, which have bank conflicts.
WorkbookCopy with_conflicts() {
  WorkbookCopy book = book_with(ch03);
  book.write(kernel, book.read("solutions/" + ch03 + "/tiled_wmma.cu"));
  book.edit(layout, "float S[Br][Bc + pad_float];", "float S[Br][Bc];");
  book.edit(layout, "(S, Bc)", "S");
  book.edit(kernel, "[j], S[i], Bc + pad_float,", "[j], S[i], Bc,");
  return book;
}

}  // namespace

TEST_CASE("trace --lines: each access counts for one line, and lines add up to the launch") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const Ran ran = book.run(traced({"3", "--solutions", "--lines", "--json"}));
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  const json document = ran.document();
  const Sums all = sums(document);
  CHECK(all.parts == all.lines);
  const json& counters = document["launches"][0]["counters"];
  const auto count = [&](const std::string& name) { return counters[name].get<std::int64_t>(); };
  CHECK(all.lines.at("shared_wavefronts") == count("shared.load_wavefronts") + count("shared.store_wavefronts"));
  CHECK(all.lines.at("shared_ideal") == count("shared.load_ideal") + count("shared.store_ideal"));
  CHECK(all.lines.at("ldsm") == count("shared.matrix_loads"));
  CHECK(all.lines.at("sectors") == count("global.load_sectors") + count("global.store_sectors"));

  // The text is the file's, and the part is the exercise whose region contains the line.
  int multiplied = 0;
  for (const json& part : document["lines"]) {
    if (part["exercise"] != "3.7") continue;
    CHECK(part["function"] == "multiply_QK");
    CHECK(part["file"] == "solutions/" + ch03 + "/tiled_wmma.cu");
    CHECK(part["beside"].contains("ch 1"));
    CHECK_FALSE(part["beside"].contains("book"));  // the book's
    for (const json& line : part["lines"]) {
      const std::string text = line["text"];
      multiplied += contains(text, "load_matrix_sync");
      CHECK(book.line_of(part["file"], text) == line["line"]);
    }
  }
  CHECK(multiplied == 2);  // of Q and of K
}

TEST_CASE("trace --lines --beside book: conflicts are at the reader's line only, with lanes and bank") {
  require_counts();
  const WorkbookCopy book = with_conflicts();
  const std::string page = scratch("lines.html").string();
  const Ran ran = book.run(traced({"3", "--lines", "--json"}, {"--html", page, "--beside", "book"}));
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const json document = ran.document();
  expect_schema(book, "trace", {document});
  std::int64_t over = 0, books_over = 0;
  for (const json& part : document["lines"]) {
    for (const json& line : part["lines"]) {
      const json &mine = line["costs"], &books = line["beside"]["book"], &worst = line["worst"];
      if (mine["shared_wavefronts"] == mine["shared_ideal"]) {
        CHECK(worst.is_null());
        continue;
      }
      REQUIRE(worst.is_object());
      CHECK(worst["wavefronts"] > worst["ideal"]);
      CHECK(worst["lanes"].size() == worst["banks"].size());
      CHECK(worst["in_bank"].size() > 1);
      for (const json& i : worst["in_bank"])  // these requests do: an access of 16 bytes covers four banks
        CHECK((worst["bank"].get<int>() - worst["banks"][i.get<std::size_t>()].get<int>() + 32) % 32 <
              std::max(1, worst["bytes"].get<int>() / 4));
      if (books.is_null() || !contains(worst["places"].dump(), "S[")) continue;
      over += mine["shared_wavefronts"].get<std::int64_t>() - mine["shared_ideal"].get<std::int64_t>();
      books_over += books["shared_wavefronts"].get<std::int64_t>() - books["shared_ideal"].get<std::int64_t>();
    }
  }
  CHECK(over > 2 * books_over);

  // The page has both kernels, and the bank of each such line.
  const json columns = page_facts(book::read_file(page))["columns"];
  REQUIRE(columns.size() == 2);
  CHECK(contains(columns[0]["title"], "(your code, on the simulator)"));
  CHECK(contains(columns[1]["title"], "(the book's solution, on the simulator)"));
  std::size_t conflicts = 0, listed = 0;
  for (const json& part : document["lines"]) {
    for (const json& line : part["lines"]) conflicts += !line["worst"].is_null();
  }
  for (const json& part : columns[0]["lines"]["parts"]) {
    for (const json& access : part["worst"]) {
      CHECK(contains(access["words"], fmt::format("access bank {}", access["bank"].get<int>())));
      ++listed;
    }
  }
  CHECK(listed == conflicts);

  const Ran shown = book.run(traced({"3", "--lines"}));
  CHECK(shown.exit_code == 0);
  CHECK(contains(shown.out, "book: shared"));
  CHECK(contains(shown.out, "ch 1: shared"));
  CHECK(contains(shown.out, "access bank "));
  CHECK(contains(shown.out, "row_maxima (exercise 3.8)"));
}

TEST_CASE("trace --operation runs another kernel of the chapter, and --lines compares it with the book's alone") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const Ran ran = book.run(traced({"3", "--operation", "lab", "--lines", "--json"}));
  INFO(ran.out << ran.err);
  CHECK(ran.exit_code == 1);  // the lab has a race
  const json document = ran.document();
  CHECK(document["result"] == "ok");
  REQUIRE(document["launches"].size() == 1);
  CHECK(contains(document["launches"][0]["kernel"], "lab_kernel"));
  CHECK(document["launches"][0]["grid"] == json({64, 1, 1}));  // one block per query
  REQUIRE(document["launches"][0]["reports"].size() == 1);
  const std::string report = document["launches"][0]["reports"][0];
  CHECK(contains(report, "race: read after write: query"));
  CHECK(contains(report, fmt::format("writes at {}:{}", lab, book.line_of(lab, "query[c] = "))));
  for (const json& part : document["lines"]) {
    CHECK(part["file"] == lab);
    CHECK(part["beside"].contains("book"));
    CHECK_FALSE(part["beside"].contains("ch 1"));
  }
  const Ran books = book.run(traced({"3", "--solutions", "--operation", "lab"}));
  CHECK(books.exit_code == 0);
  CHECK_FALSE(contains(books.out, "the simulator reports"));
}

TEST_CASE("trace --beside and --operation refuse invalid arguments, with exit code 2") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const std::string page = scratch("beside.html").string();
  struct Case {
    std::vector<std::string> arguments, said;
  };
  for (const Case& wrong : {
           Case{{"3", "--beside", "book"}, {"--beside book", "only a page shows two traces", "--html FILE"}},
           Case{{"3", "--beside", "", "--html", page}, {"--beside", "a chapter, causal or book"}},
           Case{{"3", "--beside", "2", "--html", page}, {"chapter 2 runs on the CPU", "a chapter with kernels: 1, 3"}},
           Case{{"3", "--beside", "17", "--html", page}, {"there is no chapter \"17\""}},
           Case{{"3", "--beside", "causal", "--html", page},
                {"--beside causal", "chapter 3 has no causal mask", "allowed: a chapter"}},
           Case{{"1", "--causal", "--beside", "3", "--html", page},
                {"--beside 3", "chapter 3 has no causal mask", "omit --causal"}},
           Case{{"3", "--operation", ""}, {"--operation", "a name"}},
           Case{{"3", "--solutions", "--operation", "nothing"},
                {"--operation", "chapter 3 does not take these", "no operation \"nothing\"", "it has: ", "lab"}},
           Case{{"3", "--solutions", "--operation", "lab", "--head-dim", "32"},
                {"--operation", "d = 32, mask = none", "supports only d = 64, mask = none"}},
       })
    expect_refused(book, traced(wrong.arguments, {"--json"}), wrong.said);
}

TEST_CASE("the page follows a row's m, l and O up to the kernel's output") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const std::string page = scratch("rows.html").string(), O_file = scratch("O.npy").string(),
                    lse_file = scratch("lse.npy").string();
  const std::vector<std::string> input{"--seq", "150", "--heads", "1"};  // tiles of 64; the last ones are partial
  std::vector<std::string> trace{"trace", "3", "--solutions", "--html", page},
      run{"run", "--stage", "3", "--backend", "sim", "--out", O_file, "--lse", lse_file};
  for (auto* arguments : {&trace, &run}) {
    arguments->insert(arguments->end(), input.begin(), input.end());
    REQUIRE(book.run(*arguments).exit_code == 0);
  }
  std::map<std::int64_t, std::map<std::string, json>> rows;  // [INTERVAL, VALUE]s by row and label
  const json facts = page_facts(book::read_file(page));
  for (const json& noted : facts["columns"][0]["launches"][0]["values"])
    rows[noted["row"]][noted["label"]] = noted["at"];
  const Tensor<float> O = read_npy(O_file), lse = read_npy(lse_file);
  REQUIRE(rows.size() == 128);  // limited, so that the page stays small
  for (const auto& [row, noted] : rows) {
    INFO(row);
    REQUIRE(noted.size() == 3);
    REQUIRE(noted.at("l").size() == 3);  // K/V tiles
    const double m = noted.at("m").back()[1], l = noted.at("l").back()[1], O_0 = noted.at("O[0]").back()[1];
    CHECK(std::abs((m + std::log2(l)) * std::log(2.0) - lse.values.at(std::size_t(row))) < 1e-4);
    CHECK(std::abs(O_0 / l - O.values.at(std::size_t(64 * row))) < 1e-3);
    CHECK(noted.at("l")[0][0] < noted.at("l")[1][0]);
  }
}
