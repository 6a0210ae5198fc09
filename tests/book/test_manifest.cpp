#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook::book;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using workbook::bfloat16, workbook::float16, workbook::float32;
using workbook::Mask;

namespace {

/// What loading the book says after one change to its chapter.toml.
std::string error_after(std::string_view from, std::string_view to) {
  const TemporaryBook folder;
  folder.edit("chapters/01_sums/chapter.toml", from, to);
  return message_of<ManifestError>([&] { folder.load(); });
}

auto starts_at_line(int line) {
  return StartsWith(fmt::format("chapters/01_sums/chapter.toml:{}: ", line));
}

}  // namespace

TEST_CASE("a chapter is read as it is written") {
  const TemporaryBook folder;
  const Book book = folder.load();
  REQUIRE(book.chapters.size() == 1);
  const Chapter& chapter = book.chapters[0];
  CHECK(chapter.number == 1);
  CHECK(chapter.slug == "sums");
  CHECK(chapter.name() == "01_sums");
  CHECK(chapter.title == "Sums");
  CHECK(chapter.summary == "Adding and multiplying.");
  CHECK(chapter.element == float32);
  CHECK(chapter.pass == "forward");
  CHECK(chapter.masks == std::vector<Mask>{Mask::none});
  CHECK(chapter.backends == std::vector{workbook::Backend::cpu});
  CHECK(chapter.files == std::vector<std::string>{"sums.hpp", "sums.cpp"});
  CHECK(chapter.whole_tests == std::vector<std::string>{"sums agree"});
  REQUIRE(chapter.exercises.size() == 2);
  const Exercise& multiply = chapter.exercises[1];
  CHECK(multiply.id == "1.2");
  CHECK(multiply.slug == "multiply");
  CHECK(multiply.title == "Multiply");
  CHECK(multiply.points == 5);
  CHECK(multiply.lines == 2);
  CHECK(multiply.hints == std::vector<std::string>{"One.", "Two.", "Three."});
  CHECK(multiply.tests == std::vector<std::string>{"multiplying distributes"});
  CHECK(multiply.line == 21);
  CHECK(load_chapter(folder / "chapters/01_sums/chapter.toml").exercises.size() == 2);
}

TEST_CASE("a manifest with CRLF line ends reads the same") {
  const TemporaryBook folder;
  folder.write("chapters/01_sums/chapter.toml", with_crlf(sums_manifest));
  CHECK(folder.load().exercise("1.2").line == 21);
}

TEST_CASE("the book gives the paths of its files") {
  const TemporaryBook folder;
  const Book book = folder.load();
  const Chapter& chapter = book.chapters[0];
  CHECK(book.solution(chapter, "sums.cpp") == folder / "solutions/01_sums/sums.cpp");
  CHECK(book.reader(chapter, "sums.cpp") == folder / "chapters/01_sums/sums.cpp");
  CHECK(book.manifest(chapter) == folder / "chapters/01_sums/chapter.toml");
  CHECK(book.has_solutions(chapter));
  CHECK(book.find(1) == &chapter);
  CHECK(book.find(2) == nullptr);
}

TEST_CASE("a chapter is found by number, name and slug, an exercise by id") {
  const TemporaryBook folder;
  const Book book = folder.load();
  for (const char* which : {"1", "01", "01_sums", "sums"}) CHECK(&book.chapter(which) == &book.chapters[0]);
  CHECK(book.exercise("1.2").slug == "multiply");
  CHECK(message_of<ManifestError>([&] { book.chapter("2"); }) == "there is no chapter \"2\"; there are: 01_sums");
  CHECK(message_of<ManifestError>([&] { book.exercise("1.3"); }) ==
        "there is no exercise \"1.3\"; there are: 1.1, 1.2");
}

TEST_CASE("chapters are sorted by number, with gaps, and other folders are ignored") {
  const TemporaryBook folder;
  const std::string exercises = sums_manifest.substr(sums_manifest.find("[[exercise]]"));
  std::string tenth = replaced(sums_manifest, exercises, "");
  tenth = replaced(replaced(tenth, "number = 1", "number = 10"), "slug = \"sums\"", "slug = \"later\"");
  folder.write("chapters/10_later/chapter.toml", tenth);
  folder.write("chapters/10_later/sums.hpp", "");
  folder.write("chapters/10_later/sums.cpp", "");
  folder.write("chapters/generated.txt", "");
  folder.write("chapters/my_notes/notes.txt", "");
  const Book book = folder.load();
  REQUIRE(book.chapters.size() == 2);
  CHECK(book.chapters[0].name() == "01_sums");
  CHECK(book.chapters[1].name() == "10_later");
  CHECK_FALSE(book.has_solutions(book.chapters[1]));
}

TEST_CASE("two chapters cannot have the same number") {
  const TemporaryBook folder;
  folder.write("chapters/01_twin/chapter.toml", replaced(sums_manifest, "slug = \"sums\"", "slug = \"twin\""));
  folder.write("chapters/01_twin/sums.hpp", "");
  folder.write("chapters/01_twin/sums.cpp", "");
  CHECK_THAT(message_of<ManifestError>([&] { folder.load(); }),
             StartsWith("chapters/01_twin/chapter.toml:1: ") && ContainsSubstring("01_sums"));
}

TEST_CASE("a book without chapters/ is an error") {
  const TemporaryFolder folder;
  CHECK_THAT(message_of<ManifestError>([&] { load_book(folder.path()); }), ContainsSubstring("chapters"));
}

TEST_CASE("text that is not TOML is an error with its line") {
  CHECK_THAT(error_after("title = \"Sums\"", "title = \"Sums"), starts_at_line(3));
  CHECK_THAT(error_after("masks = [\"none\"]", "masks = maybe"), starts_at_line(7));
  CHECK_THAT(error_after("masks = [\"none\"]", "number = 2"), starts_at_line(7));
}

TEST_CASE("a missing key is an error at its table") {
  for (const char* line :
       {"number = 1\n", "slug = \"sums\"\n", "title = \"Sums\"\n", "summary = \"Adding and multiplying.\"\n",
        "element = \"float32\"\n", "pass = \"forward\"\n", "masks = [\"none\"]\n", "backends = [\"cpu\"]\n",
        "files = [\"sums.hpp\", \"sums.cpp\"]\n", "whole_tests = [\"sums agree\"]\n"}) {
    const std::string text(line), key = text.substr(0, text.find(' '));
    CHECK(error_after(line, "") == fmt::format("chapters/01_sums/chapter.toml:1: the chapter has no key \"{}\"", key));
  }
  for (const char* line : {"id = \"1.2\"\n", "slug = \"multiply\"\n", "title = \"Multiply\"\n", "points = 5\n",
                           "lines = 2\n", "tests = [\"multiplying distributes\"]\n"}) {
    const std::string text(line), key = text.substr(0, text.find(' '));
    CHECK(error_after(line, "") ==
          fmt::format("chapters/01_sums/chapter.toml:21: the exercise has no key \"{}\"", key));
  }
  CHECK_THAT(error_after("hints = [\"One.\", \"Two.\", \"Three.\"]\n", ""), starts_at_line(21));
}

TEST_CASE("a mistyped key is an error at its line") {
  CHECK_THAT(error_after("number = 1", "number = \"1\""), starts_at_line(1) && ContainsSubstring("whole number"));
  CHECK_THAT(error_after("title = \"Sums\"", "title = 3"), starts_at_line(3) && ContainsSubstring("a string"));
  CHECK_THAT(error_after("title = \"Sums\"", "title = \" \""), starts_at_line(3) && ContainsSubstring("empty"));
  CHECK_THAT(error_after("masks = [\"none\"]", "masks = [\"none\", \"some\"]"),
             starts_at_line(7) && ContainsSubstring("\"some\" is not a mask; allowed: none, causal"));
  CHECK_THAT(error_after("[\"cpu\"]", "\"cpu\""), starts_at_line(8) && ContainsSubstring("array of strings"));
  CHECK_THAT(error_after("[\"cpu\"]", "[1]"), starts_at_line(8));
  CHECK_THAT(error_after("[\"cpu\"]", "[]"), starts_at_line(8) && ContainsSubstring("empty"));
  CHECK_THAT(error_after("points = 5", "points = 5.5"), starts_at_line(25));
  CHECK_THAT(error_after("points = 5", "points = -5"), starts_at_line(25));
  CHECK_THAT(error_after("lines = 2", "lines = 0"), starts_at_line(26));
}

TEST_CASE("an unknown key is an error at its line") {
  CHECK_THAT(error_after("masks = [\"none\"]", "masks = [\"none\"]\nmsaks = true"),
             starts_at_line(8) && ContainsSubstring("unknown key \"msaks\" in the chapter; known: backends, element"));
  CHECK_THAT(error_after("lines = 2", "lines = 2\nline = 2"),
             starts_at_line(27) && ContainsSubstring("unknown key \"line\" in the exercise"));
  CHECK_THAT(error_after("[[exercise]]", "[exercises]"), ContainsSubstring("unknown key \"exercises\""));
}

TEST_CASE("a goal is read, and refused where it cannot be compared") {
  const auto with_goal = [](const std::string& over, const std::string& rest) {
    return fmt::format("[[goal]]\nover = \"{}\"\nmask = \"none\"\nd = 64\nleast_N = 4096\n{}\n\n[[exercise]]", over,
                       rest);
  };
  const std::string bars = "must = 1\nhoped = 1.5";
  const TemporaryBook folder;
  folder.edit("chapters/01_sums/chapter.toml", "[[exercise]]", with_goal("a peer", bars));
  const std::vector<Goal> goals = folder.load().chapters[0].goals;
  REQUIRE(goals.size() == 1);
  CHECK((goals[0].over == "a peer" && goals[0].mask == Mask::none && goals[0].d == 64));
  CHECK((goals[0].least_N == 4096 && goals[0].most_N == 0 && goals[0].must == 1 && goals[0].hoped == 1.5));

  CHECK_THAT(error_after("[[exercise]]", with_goal("a peer", "must = 0\nhoped = 1")),
             ContainsSubstring("must be a number above 0"));
  CHECK_THAT(error_after("[[exercise]]", with_goal("a peer", "most_N = 512\n" + bars)),
             ContainsSubstring("most_N = 512"));
  CHECK_THAT(error_after("[[exercise]]", with_goal("unmasked", bars)), ContainsSubstring("needs a mask"));
  CHECK_THAT(error_after("[[exercise]]", with_goal("a peer", bars + "\nfast = 2")),
             ContainsSubstring("unknown key \"fast\""));
}

TEST_CASE("a value that is none of those allowed is an error") {
  CHECK_THAT(error_after("\"float32\"", "\"float23\""), starts_at_line(5) && ContainsSubstring("float16"));
  CHECK_THAT(error_after("\"forward\"", "\"froward\""), starts_at_line(6) && ContainsSubstring("backward"));
  CHECK_THAT(error_after("[\"cpu\"]", "[\n\"gpu\"]"), starts_at_line(9) && ContainsSubstring("sim"));
}

TEST_CASE("number and slug must match the folder") {
  CHECK_THAT(error_after("number = 1", "number = 2"), ContainsSubstring("chapter.toml:"));
  CHECK(error_after("slug = \"sums\"", "slug = \"products\"") ==
        "chapters/01_sums/chapter.toml:2: slug \"products\" does not match the folder 01_sums");
  CHECK_THAT(error_after("slug = \"sums\"", "slug = \"../sums\""), starts_at_line(2));
  const TemporaryBook folder;
  std::filesystem::rename(folder / "chapters/01_sums", folder / "chapters/03_sums");
  CHECK(message_of<ManifestError>([&] { folder.load(); }) ==
        "chapters/03_sums/chapter.toml:1: number 1 does not match the folder 03_sums");
}

TEST_CASE("an exercise id must be this chapter's, and once") {
  const char* id = GENERATE("2.1", "1", "1.", "1.0", "1.x", "1.1.1", "12");
  CHECK_THAT(error_after("\"1.2\"", fmt::format("\"{}\"", id)), starts_at_line(22) && ContainsSubstring(id));
  CHECK(error_after("\"1.2\"", "\"1.1\"") ==
        "chapters/01_sums/chapter.toml:22: exercise 1.1 is given twice, first on line 12");
  CHECK_THAT(error_after("\"multiply\"", "\"add\""), starts_at_line(23));
}

TEST_CASE("an exercise needs two or three hints and a test") {
  const std::string hints = R"(["One.", "Two.", "Three."])";
  CHECK_THAT(error_after(hints, "[\"One.\"]"), starts_at_line(27) && ContainsSubstring("two or three"));
  CHECK_THAT(error_after(hints, "[]"), starts_at_line(27));
  CHECK_THAT(error_after(hints, R"(["1", "2", "3", "4"])"), starts_at_line(27));
  CHECK_THAT(error_after(hints, R"(["1", ""])"), starts_at_line(27));
  CHECK_THAT(error_after("[\"multiplying distributes\"]", "[]"), starts_at_line(28));
  CHECK_THAT(error_after("[\"multiplying distributes\"]", "[\"a\", \"a\"]"), starts_at_line(28));
}

TEST_CASE("a file of the chapter must be there, and within its folder") {
  CHECK(error_after("\"sums.cpp\"", "\"sum.cpp\"") ==
        "chapters/01_sums/chapter.toml:9: solutions/01_sums/sum.cpp does not exist");
  const char* outside = GENERATE("../sums.cpp", "/etc/hostname", "./sums.cpp", "a/../sums.cpp", "..");
  CHECK_THAT(error_after("\"sums.cpp\"", fmt::format("\"{}\"", outside)), starts_at_line(9));
}

TEST_CASE("kernels may be for one architecture alone") {
  CHECK_THAT(error_after("masks = [\"none\"]", "masks = [\"none\"]\narchitecture = \"sm_90\""),
             ContainsSubstring("\"sm_90\" is not an architecture for one GPU"));
  const TemporaryBook folder;
  CHECK(folder.load().chapters[0].architecture.empty());
}

TEST_CASE("a chapter may have another pass beside its first") {
  CHECK_THAT(error_after("masks = [\"none\"]", "masks = [\"none\"]\nmore_passes = [\"forward\"]"),
             ContainsSubstring("\"forward\" is already its pass"));
  CHECK_THAT(error_after("masks = [\"none\"]", "masks = [\"none\"]\nmore_passes = [\"both\"]"),
             ContainsSubstring("\"both\" is not one of forward, backward"));
}

TEST_CASE("a chapter takes its element, and its kernels more of them") {
  using workbook::Backend;
  CHECK_THAT(error_after("masks = [\"none\"]", "masks = [\"none\"]\nmore_elements = [\"fp16\"]"),
             ContainsSubstring("more_elements: \"fp16\" is not one of float16, bfloat16"));
  const TemporaryBook folder;
  Chapter chapter = folder.load().chapters[0];
  CHECK(chapter.takes(float32, Backend::cpu));
  CHECK_FALSE(chapter.takes(bfloat16, Backend::cpu));
  CHECK_FALSE(chapter.takes(float16, Backend::sim));  // it does not run there
  chapter.backends = {Backend::cpu, Backend::sim};
  chapter.more_elements = {bfloat16};
  CHECK(chapter.takes(float16, Backend::sim));
  CHECK(chapter.takes(bfloat16, Backend::sim));
  CHECK_FALSE(chapter.takes(bfloat16, Backend::cpu));
}

TEST_CASE("a chapter uses earlier chapters only, from solutions/ where they are there") {
  const char* wrong = GENERATE("01_sums", "02_products", "sums", "../00_counting");
  const char* key = GENERATE("uses", "compiles");
  CHECK_THAT(error_after("masks = [\"none\"]", fmt::format("masks = [\"none\"]\n{} = [\"{}\"]", key, wrong)),
             ContainsSubstring(fmt::format("\"{}\" is not the name of an earlier chapter", wrong)));
  const TemporaryBook folder;
  Chapter chapter = folder.load().chapters[0];
  CHECK(chapter.uses.empty());
  chapter.uses = {"00_counting"};
  chapter.compiles = {"01_sums"};
  CHECK(folder.load().used(chapter) ==
        std::vector<std::filesystem::path>{folder / "chapters/00_counting", folder / "solutions/01_sums"});
}

TEST_CASE("without solutions the files are looked for in chapters/") {
  const TemporaryBook folder;
  std::filesystem::remove_all(folder / "solutions");
  CHECK(message_of<ManifestError>([&] { folder.load(); }) ==
        "chapters/01_sums/chapter.toml:9: chapters/01_sums/sums.hpp does not exist");
  folder.write("chapters/01_sums/sums.hpp", "");
  folder.write("chapters/01_sums/sums.cpp", "");
  CHECK_FALSE(folder.load().has_solutions(folder.load().chapters[0]));
}
