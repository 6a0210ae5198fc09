#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "common/book/stubs.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook::book;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

constexpr const char* solution = "solutions/01_sums/sums.cpp";
constexpr const char* reader = "chapters/01_sums/sums.cpp";
constexpr const char* given_solution = "solutions/01_sums/sums.hpp";
constexpr const char* given = "chapters/01_sums/sums.hpp";
constexpr const char* todo = "WORKBOOK_TODO(1.1);";

/// A book whose stubs have been written once.
class WrittenBook : public TemporaryBook {
 public:
  WrittenBook() { write_stubs(load(), false); }

  StubState state(std::string_view file) const { return stub(file).state; }
  int line(std::string_view file) const { return stub(file).line; }

 private:
  StubFile stub(std::string_view file) const {
    const Book book = load();
    for (const StubFile& stub : compare_stubs(book)) {
      if (stub.path == *this / file) return stub;
    }
    throw std::logic_error("no such stub");
  }
};

bool contains(const std::vector<fs::path>& paths, const fs::path& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

}  // namespace

TEST_CASE("stubs are written where there are none, and then current") {
  const TemporaryBook folder;
  const Book book = folder.load();
  for (const StubFile& file : compare_stubs(book)) CHECK(file.state == StubState::missing);
  const StubsWritten first = write_stubs(book, false);
  CHECK(first.written == std::vector{folder / given, folder / reader});
  CHECK(first.kept.empty());
  CHECK(first.backups.empty());
  CHECK(folder.read(reader) == sums_stub);
  CHECK(folder.read(given) == sums_header);
  CHECK(folder.read("chapters/generated.txt") ==
        fmt::format("{}  {}\n{}  {}\n", hash(sums_stub), reader, hash(sums_header), given));
  for (const StubFile& file : compare_stubs(book)) {
    CHECK(file.state == StubState::current);
    CHECK(file.line == 0);
  }
  CHECK(write_stubs(book, false).written.empty());
}

TEST_CASE("an unedited stub follows its solution") {
  const WrittenBook folder;
  folder.edit(solution, "return 2 * a", "return a + a");
  CHECK(folder.state(reader) == StubState::outdated);
  CHECK(folder.line(reader) == 11);
  CHECK(write_stubs(folder.load(), false).written == std::vector{folder / reader});
  CHECK(folder.state(reader) == StubState::current);
  folder.edit(solution, "// STUB: return 0;", "// STUB: return 1;");  // differs within the region only
  CHECK(folder.state(reader) == StubState::outdated);
  CHECK(write_stubs(folder.load(), false).written.size() == 1);
  CHECK_THAT(folder.read(reader), ContainsSubstring("return 1;"));
}

TEST_CASE("a reader's work is recognised and kept") {
  const WrittenBook folder;
  folder.edit(reader, todo, "return b + a;");
  const std::string work = folder.read(reader);
  CHECK(folder.state(reader) == StubState::work);
  CHECK(folder.state(given) == StubState::current);
  CHECK(write_stubs(folder.load(), false).kept == std::vector{folder / reader});
  CHECK(folder.read(reader) == work);
}

TEST_CASE("work survives a new solution, with the line where only git can merge") {
  const WrittenBook folder;
  folder.edit(reader, todo, "int c = b;\n  return c + a;");
  const std::string work = folder.read(reader);
  folder.edit(solution, "return 2 * a", "return a + a");
  CHECK(folder.state(reader) == StubState::drifted);
  CHECK(folder.line(reader) == 12);
  CHECK(write_stubs(folder.load(), false).kept == std::vector{folder / reader});
  CHECK(folder.read(reader) == work);
  CHECK(folder.state(reader) == StubState::drifted);
}

TEST_CASE("work survives a damaged or lost generated.txt") {
  const WrittenBook folder;
  folder.edit(reader, todo, "return b + a;");
  const std::string work = folder.read(reader);
  folder.edit(solution, "return 2 * a", "return a + a");
  folder.write("chapters/generated.txt", "<<<<<<< HEAD\nnonsense\n\n0123456789abcdef\n");
  CHECK(write_stubs(folder.load(), false).kept == std::vector{folder / reader});
  fs::remove(folder / "chapters/generated.txt");
  CHECK(write_stubs(folder.load(), false).kept == std::vector{folder / reader});
  CHECK(folder.read(reader) == work);
}

TEST_CASE("text changed outside the regions is drift with its line") {
  const WrittenBook folder;
  folder.edit(reader, "int twice", "int  twice");
  CHECK(folder.state(reader) == StubState::drifted);
  CHECK(folder.line(reader) == 11);
  CHECK(write_stubs(folder.load(), false).kept == std::vector{folder / reader});
}

TEST_CASE("a lost marker is drift") {
  const WrittenBook folder;
  folder.edit(reader, "  // END 1.1\n", "");
  CHECK(folder.state(reader) == StubState::drifted);
}

TEST_CASE("a given file is copied as it is, and never work") {
  const WrittenBook folder;
  folder.write(given_solution, "no last line end\r\nand CRLF");
  CHECK(folder.state(given) == StubState::outdated);
  write_stubs(folder.load(), false);
  CHECK(folder.read(given) == "no last line end\r\nand CRLF");
  CHECK(folder.state(given) == StubState::current);
  folder.write(given, "changed\n");
  CHECK(folder.state(given) == StubState::drifted);
  CHECK(folder.line(given) == 1);
}

TEST_CASE("a checkout with CRLF line ends is the stub still") {
  const WrittenBook folder;
  folder.write(reader, with_crlf(sums_stub));
  CHECK(folder.state(reader) == StubState::current);
  folder.edit(solution, "return 2 * a", "return a + a");
  CHECK(folder.state(reader) == StubState::outdated);
}

TEST_CASE("force writes everything after a backup of files that contain work") {
  const WrittenBook folder;
  folder.edit(reader, todo, "return b + a;");
  folder.edit(given, "int add", "long add");
  const std::string work = folder.read(reader), header = folder.read(given);
  const StubsWritten result = write_stubs(folder.load(), true);
  CHECK(result.kept.empty());
  CHECK(contains(result.written, folder / reader));
  REQUIRE(result.backups.size() == 2);
  CHECK(read_file(result.backups[0]) == header);
  CHECK(read_file(result.backups[1]) == work);
  CHECK(folder.read(reader) == sums_stub);
  CHECK(folder.read(given) == sums_header);
  CHECK(write_stubs(folder.load(), true).backups.empty());
}

TEST_CASE("without solutions there is nothing to compare and nothing is forgotten") {
  const WrittenBook folder;
  const std::string generated = folder.read("chapters/generated.txt");
  fs::remove_all(folder / "solutions");
  CHECK(compare_stubs(folder.load()).empty());
  CHECK(write_stubs(folder.load(), true).written.empty());
  CHECK(folder.read("chapters/generated.txt") == generated);
}

TEST_CASE("files that no chapter lists are dropped from generated.txt") {
  const WrittenBook folder;
  const std::string generated = folder.read("chapters/generated.txt");
  folder.write("chapters/generated.txt", generated + "0123456789abcdef  chapters/01_sums/old.cpp\n");
  write_stubs(folder.load(), false);
  CHECK(folder.read("chapters/generated.txt") == generated);
}

TEST_CASE("the regions of a solution are the chapter's exercises") {
  const auto error_after = [](std::string_view file, std::string_view from, std::string_view to) {
    const TemporaryBook folder;
    folder.edit(file, from, to);
    const Book book = folder.load();
    return message_of<std::runtime_error>([&] { write_stubs(book, false); });
  };
  CHECK(error_after(solution, "// END 1.1", "// EN 1.1") ==
        "solutions/01_sums/sums.cpp:17: BEGIN 1.2 within region 1.1, which began on line 6 and has no END yet");
  const std::string third = "// TODO(1.3) x\n// BEGIN 1.3\n// END 1.3\n",
                    again = "// TODO(1.1) x\n// BEGIN 1.1\n// END 1.1\n";
  CHECK(error_after(given_solution, "int add", third + "int add") ==
        "solutions/01_sums/sums.hpp:2: exercise 1.3 is not in chapters/01_sums/chapter.toml");
  CHECK(error_after(given_solution, "int add", again + "int add") ==
        "solutions/01_sums/sums.cpp:4: region 1.1 is given twice, first in solutions/01_sums/sums.hpp:2");
  const std::string region =
      "  // TODO(1.1) Add a and b\n  // (about 1 line).\n  // BEGIN 1.1\n  return a + b;\n  // END 1.1\n";
  CHECK(error_after(solution, region, "") ==
        "chapters/01_sums/chapter.toml:12: exercise 1.1 has no region in solutions/01_sums");
}

TEST_CASE("nothing is written while a solution has an error") {
  const TemporaryBook folder;
  folder.edit(solution, "// END 1.1", "// EN 1.1");
  CHECK_THROWS_AS(write_stubs(folder.load(), true), MarkerError);
  CHECK_FALSE(folder.exists(reader));
  CHECK_FALSE(folder.exists(given));
}

TEST_CASE("reset restores one exercise and leaves every other byte") {
  const WrittenBook folder;
  std::string work = replaced(sums_stub, todo, "return b + a;");
  work = "\xEF\xBB\xBF" + with_crlf(replaced(work, "int twice(int a)", "int twice(int  a)")) + "// the end";
  work = replaced(work, "  WORKBOOK_TODO(1.2);\r\n  return 0;\r\n", "  return b * a;\r\n");
  folder.write(reader, work);

  const fs::path backup = reset_exercise(folder.load(), "1.2");
  CHECK(read_file(backup) == work);
  const std::string after = replaced(work, "  return b * a;\r\n", "  WORKBOOK_TODO(1.2);\r\n  return 0;\r\n");
  CHECK(folder.read(reader) == after);

  reset_exercise(folder.load(), "1.1");
  CHECK(folder.read(reader) == replaced(after, "return b + a;", todo));
}

TEST_CASE("reset works without solutions and without a TODO line") {
  const WrittenBook folder;
  fs::remove_all(folder / "solutions");
  folder.edit(reader, todo, "return b + a;");
  folder.edit(reader, "  // TODO(1.1) Add a and b\n  // (about 1 line).\n", "");
  reset_exercise(folder.load(), "1.1");
  CHECK(folder.read(reader) == replaced(sums_stub, "  // TODO(1.1) Add a and b\n  // (about 1 line).\n", ""));
}

TEST_CASE("reset refuses where the markers are gone, and names the line") {
  const WrittenBook folder;
  const auto refusal = [&] { return message_of<ManifestError>([&] { reset_exercise(folder.load(), "1.1"); }); };

  const std::string broken = replaced(replaced(sums_stub, todo, "return b + a;"), "  // END 1.1\n", "");
  folder.write(reader, broken);
  CHECK_THAT(refusal(),
             StartsWith("chapters/01_sums/sums.cpp:14: BEGIN 1.2 within region 1.1, which began on line 6") &&
                 ContainsSubstring("reset --file 1.1"));
  CHECK(folder.read(reader) == broken);
  CHECK_NOTHROW(reset_exercise(folder.load(), "1.2"));  // its markers are there

  folder.write(reader, "int add(int a, int b) { return a + b; }\n");
  CHECK_THAT(refusal(), StartsWith("chapters/01_sums/sums.cpp:1: the markers of exercise 1.1 are missing"));
  fs::remove(folder / reader);
  CHECK_THAT(refusal(), StartsWith("chapters/01_sums/sums.cpp:1: "));
  CHECK_THROWS_AS(reset_exercise(folder.load(), "1.7"), ManifestError);
}

TEST_CASE("reset of a file restores it whatever it holds") {
  const WrittenBook folder;
  folder.write(reader, "all gone");
  CHECK(read_file(reset_file(folder.load(), "1.2")) == "all gone");
  CHECK(folder.read(reader) == sums_stub);
  fs::remove(folder / reader);
  CHECK(reset_file(folder.load(), "1.2").empty());
  CHECK(folder.read(reader) == sums_stub);
}

TEST_CASE("reset of a file needs its solution") {
  const WrittenBook folder;
  fs::remove_all(folder / "solutions");
  folder.edit(reader, todo, "return b + a;");
  const std::string work = folder.read(reader);
  CHECK_THAT(message_of<ManifestError>([&] { reset_file(folder.load(), "1.1"); }),
             ContainsSubstring("solutions/01_sums does not exist"));
  CHECK(folder.read(reader) == work);
}

TEST_CASE("git merges a newer stub into a reader's work") {
  if (std::system("git --version >/dev/null 2>&1") != 0) SKIP("no git in PATH");
  const WrittenBook folder;
  const auto git = [&](const std::string& arguments) {
    const std::string command = fmt::format(
        "cd '{}' && GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null git -c user.name=Reader "
        "-c user.email=reader@example.org -c init.defaultBranch=main -c core.hooksPath=/dev/null {} >/dev/null 2>&1",
        folder.path().string(), arguments);
    const int status = std::system(command.c_str());
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  };
  git("init");
  git("add .");
  git("commit -m first");
  git("checkout -b reader");
  folder.edit(reader, todo, "return b + a;  // mine");
  git("commit -a -m work");

  git("checkout main");
  folder.edit(solution, "return 2 * a", "return a + a");
  folder.edit(solution, "// TODO(1.2) Multiply.", "// TODO(1.2) Multiply a by b.");
  write_stubs(folder.load(), false);
  git("commit -a -m newer");

  git("checkout reader");
  git("merge main");
  CHECK_THAT(folder.read(reader), ContainsSubstring("return b + a;  // mine") && ContainsSubstring("return a + a") &&
                                      ContainsSubstring("Multiply a by b."));
  CHECK(folder.state(reader) == StubState::work);
  CHECK(folder.state(given) == StubState::current);
  const std::string merged = folder.read(reader);
  CHECK(write_stubs(folder.load(), false).kept == std::vector{folder / reader});
  CHECK(folder.read(reader) == merged);
}

TEST_CASE("an old stub is known on both sides of a conflict in generated.txt") {
  const WrittenBook folder;
  const std::string first = folder.read("chapters/generated.txt");
  folder.edit(solution, "return 2 * a", "return a + a");
  write_stubs(folder.load(), false);
  const std::string second = folder.read("chapters/generated.txt");
  folder.edit(solution, "return a + a", "return a << 1");
  folder.write("chapters/generated.txt", "<<<<<<< HEAD\n" + first + "=======\n" + second + ">>>>>>> other\n");
  CHECK(folder.state(reader) == StubState::outdated);
  folder.write(reader, sums_stub);
  CHECK(folder.state(reader) == StubState::outdated);
  write_stubs(folder.load(), false);
  CHECK(std::count_if(first.begin(), first.end(), [](char c) { return c == '\n'; }) == 2);
  CHECK_THAT(folder.read("chapters/generated.txt"), !ContainsSubstring("<<<") && ContainsSubstring(reader));
}
