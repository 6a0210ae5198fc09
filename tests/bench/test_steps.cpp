// The steps within a chapter: the solution with its later steps undone.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/bench/steps.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string two_steps = R"(mask = "none"

[[step]]
title = "first version"

[[step]]
title = "adds"

[[step.without]]
file = "FILE"
find = "a + b"
replace = "a - b"

[[step]]
title = "adds from the right"

[[step.without]]
file = "FILE"
find = "b + a"
replace = "a + b"
)";

/// The file of the small book that contains `text`.
std::string file_with(const book::Book& small, const std::string& text) {
  for (const std::string& file : small.chapters[0].files) {
    const auto path = small.solution(small.chapters[0], file);
    if (book::read_file(path).find(text) != std::string::npos) return file;
  }
  throw std::logic_error("no file of the small book holds " + text);
}

std::string steps_for(const std::string& file, std::string text) {
  while (text.find("FILE") != std::string::npos) text = book::replaced(text, "FILE", file);
  return text;
}

}  // namespace

TEST_CASE("each variant adds one step, and the last one is the solution") {
  const book::TemporaryBook folder;
  const book::Book small = folder.load();
  const book::Chapter& chapter = small.chapters[0];
  const std::string file = file_with(small, "a + b");
  const auto solution = small.solution(chapter, file);
  book::write_file(solution, book::replaced(book::read_file(solution), "a + b", "b + a"));
  CHECK(bench::load_variants(small, chapter, folder / "variants").empty());  // no steps file

  folder.write("tests/steps/" + chapter.name() + ".toml", steps_for(file, two_steps));
  const auto variants = bench::load_variants(small, chapter, folder / "variants");
  REQUIRE(variants.size() == 3);
  const auto text = [&](std::size_t i) { return book::read_file(variants[i].folder / file); };
  CHECK(variants[0].title == "first version");
  CHECK_THAT(text(0), ContainsSubstring("a - b"));
  CHECK_THAT(text(1), ContainsSubstring("a + b"));
  CHECK(text(2) == book::read_file(solution));
  CHECK(variants[2].number == 3);
  CHECK(variants[2].mask == Mask::none);
}

TEST_CASE("a step may be an argument of the call, and shares the text of the next") {
  const book::TemporaryBook folder;
  const book::Book small = folder.load();
  const book::Chapter& chapter = small.chapters[0];
  const std::string path = "tests/steps/" + chapter.name() + ".toml";
  const std::string steps =
      "mask = \"causal\"\n[[step]]\ntitle = \"one\"\nhead_dim = 64\n[[step.number]]\nname = \"rung\"\nvalue = 1\n"
      "[[step]]\ntitle = \"two\"\n";
  folder.write(path, steps);
  const auto variants = bench::load_variants(small, chapter, folder / "variants");
  REQUIRE(variants.size() == 2);
  CHECK(variants[0].numbers == std::map<std::string, double>{{"rung", 1}});
  CHECK(variants[1].numbers.empty());
  CHECK(variants[0].folder == variants[1].folder);
  CHECK(variants[0].mask == Mask::causal);
  CHECK(variants[0].head_dim == 64);
  CHECK(variants[1].head_dim == 0);
  folder.write(path, steps + "[[step]]\ntitle = \"three\"\n");
  CHECK_THROWS_WITH(bench::load_variants(small, chapter, folder / "variants"),
                    ContainsSubstring("a step needs [[step.without]]"));
}

TEST_CASE("a step that does not fit the solution is refused with its line") {
  const book::TemporaryBook folder;
  const book::Book small = folder.load();
  const book::Chapter& chapter = small.chapters[0];
  const std::string file = file_with(small, "a + b"), path = "tests/steps/" + chapter.name() + ".toml";
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = steps_for(file, two_steps);
    text = book::replaced(text, "find = \"b + a\"\nreplace = \"a + b\"", "find = \"a + b\"\nreplace = \"a +  b\"");
    text = book::replaced(text, "find = \"a + b\"\nreplace = \"a - b\"", "find = \"a +  b\"\nreplace = \"a - b\"");
    folder.write(path, book::replaced(text, from, to));
    try {
      bench::load_variants(small, chapter, folder / "variants");
    } catch (const book::ManifestError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused("mask = \"none\"", "mask = \"none\"").empty());  // unchanged, it fits
  CHECK_THAT(refused("find = \"a +  b\"", "find = \"nowhere\""),
             ContainsSubstring(path + ":11: the text does not occur"));
  CHECK_THAT(refused("file = \"" + file, "file = \"other_" + file), ContainsSubstring("no file other_"));
  CHECK_THAT(refused("title = \"adds\"\n", "title = \"adds\"\nspeed = 2\n"),
             ContainsSubstring("unknown key \"speed\""));
  CHECK_THAT(refused("title = \"adds\"\n", "title = \"adds\"\nhead_dim = 0\n"), ContainsSubstring("head_dim = 0"));
  CHECK_THAT(refused("mask = \"none\"", ""), ContainsSubstring("no key \"mask\""));
}

TEST_CASE("every file of steps fits its chapter's solution") {
  const book::TemporaryFolder folder;
  const book::Book whole = book::load_book(WORKBOOK_SOURCE);
  for (const book::Chapter& chapter : whole.chapters) {
    INFO(chapter.name());
    const auto variants = bench::load_variants(whole, chapter, folder.path());
    const bool has_steps =
        std::filesystem::exists(std::string(WORKBOOK_SOURCE) + "/tests/steps/" + chapter.name() + ".toml");
    CHECK(variants.empty() != has_steps);
  }
}
