#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "common/book/progress.hpp"
#include "common/book/stubs.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook::book;

namespace {

constexpr const char* sums_file = "chapters/01_sums/sums.cpp";
constexpr const char* cache = ".workbook/progress.json";

/// A book in which the sums_file has filled in 1.1, on line 7.
class StartedBook : public TemporaryBook {
 public:
  StartedBook() {
    write_stubs(load(), false);
    edit(sums_file, "WORKBOOK_TODO(1.1);", "return b + a;");
  }

  ExerciseProgress progress(const std::string& id) const { return load_progress(load()).at(id); }
  Progress state(const std::string& id) const { return progress(id).state; }
};

}  // namespace

TEST_CASE("an exercise is open, then untested, then has its test's verdict") {
  const StartedBook folder;
  CHECK(folder.state("1.1") == Progress::untested);
  CHECK(folder.state("1.2") == Progress::open);
  save_progress(folder.load(), {{"1.1", false}});
  CHECK(folder.state("1.1") == Progress::failing);
  save_progress(folder.load(), {{"1.1", true}});
  CHECK(folder.state("1.1") == Progress::passing);
}

TEST_CASE("progress names the file and the line") {
  const StartedBook folder;
  CHECK(folder.progress("1.1").file == folder / sums_file);
  CHECK(folder.progress("1.1").line == 6);   // BEGIN
  CHECK(folder.progress("1.2").line == 14);  // TODO
}

TEST_CASE("an open exercise does not pass, whatever the cache holds") {
  const StartedBook folder;
  save_progress(folder.load(), {{"1.2", true}});
  CHECK(folder.state("1.2") == Progress::open);
}

TEST_CASE("a result holds until its region or the tests change") {
  const StartedBook folder;
  save_progress(folder.load(), {{"1.1", true}});
  folder.edit(sums_file, "int twice", "int  twice");  // outside the region
  CHECK(folder.state("1.1") == Progress::passing);
  folder.write(sums_file, with_crlf(folder.read(sums_file)));
  CHECK(folder.state("1.1") == Progress::passing);

  folder.edit(sums_file, "return b + a;", "return a + b;");
  CHECK(folder.state("1.1") == Progress::untested);
  folder.edit(sums_file, "return a + b;", "return b + a;");
  CHECK(folder.state("1.1") == Progress::passing);

  folder.write("tests/01_sums/wrong.diff", "");  // what no test's result depends on
  folder.write("tests/01_sums/killed_by.tsv", "");
  CHECK(folder.state("1.1") == Progress::passing);

  folder.write("tests/01_sums/test_sums.cpp", "other tests\n");
  CHECK(folder.state("1.1") == Progress::untested);
  folder.write("tests/01_sums/test_sums.cpp", "the tests\n");
  folder.write("tests/01_sums/helpers/more.hpp", "");
  CHECK(folder.state("1.1") == Progress::untested);
}

TEST_CASE("results of other exercises are kept") {
  const StartedBook folder;
  save_progress(folder.load(), {{"1.1", true}});
  folder.edit(sums_file, "WORKBOOK_TODO(1.2);", "");
  save_progress(folder.load(), {{"1.2", false}});
  CHECK(folder.state("1.1") == Progress::passing);
  CHECK(folder.state("1.2") == Progress::failing);
}

TEST_CASE("an exercise is lost with its markers, alone") {
  const StartedBook folder;
  save_progress(folder.load(), {{"1.1", true}});
  folder.edit(sums_file, "  // BEGIN 1.2\n", "");
  CHECK(folder.state("1.1") == Progress::passing);
  CHECK(folder.state("1.2") == Progress::lost);
  CHECK(folder.progress("1.2").line == 14);
  CHECK_NOTHROW(save_progress(folder.load(), {{"1.2", true}}));
  std::filesystem::remove(folder / sums_file);
  CHECK(folder.state("1.1") == Progress::lost);
  CHECK(folder.progress("1.1").file == folder / sums_file);
  CHECK(folder.progress("1.1").line == 0);
}

TEST_CASE("an exercise in a damaged file is lost, and the damage is reported") {
  const StartedBook folder;
  folder.edit(sums_file, "  return b + a;", "<<<<<<< HEAD\nreturn b + a;\n=======\nWORKBOOK_TODO(1.1);\n>>>>>>> x");
  CHECK(folder.state("1.1") == Progress::lost);
  CHECK(folder.progress("1.1").line == 7);
  CHECK(folder.progress("1.1").damage.starts_with("chapters/01_sums/sums.cpp:7: this line is a conflict marker"));
  CHECK(folder.state("1.2") == Progress::open);
  CHECK(folder.progress("1.2").damage.empty());
  const std::string within = folder.read(sums_file);
  folder.write(sums_file, "<<<<<<< HEAD\n=======\n>>>>>>> x\n" + within);
  CHECK(folder.state("1.2") == Progress::open);
  CHECK(folder.progress("1.2").damage.starts_with("chapters/01_sums/sums.cpp:1: this line is a conflict marker"));
  folder.write(sums_file, within);
  std::string old = folder.read(sums_file);
  std::ranges::replace(old, '\n', '\r');
  const std::string text = folder.read(sums_file);
  folder.write(sums_file, old);
  CHECK(folder.progress("1.2").damage.starts_with("chapters/01_sums/sums.cpp: the lines end in CR alone"));
  folder.write(sums_file, text);
  folder.write(sums_file, "\xFF\xFE" + folder.read(sums_file));
  CHECK(folder.state("1.2") == Progress::lost);
  CHECK(folder.progress("1.2").damage.starts_with("chapters/01_sums/sums.cpp: the file is encoded in UTF-16"));
}

TEST_CASE("a damaged cache is treated as empty and rewritten") {
  for (const char* damaged : {"", "{", "[]", "{\"1.1\": 1}", "{\"1.1\": {\"hash\": 7, \"passed\": true}}",
                              "{\"1.1\": {\"hash\": \"x\"}}", "\xff\xfe"}) {
    CAPTURE(damaged);
    const StartedBook folder;
    folder.write(cache, damaged);
    CHECK(folder.state("1.1") == Progress::untested);
    save_progress(folder.load(), {{"1.1", true}});
    CHECK(folder.state("1.1") == Progress::passing);
  }
}

TEST_CASE("a result with the right hash and no verdict is no result") {
  const StartedBook folder;
  save_progress(folder.load(), {{"1.1", true}});
  folder.edit(cache, "\"passed\": true", "\"passed\": \"yes\"");
  CHECK(folder.state("1.1") == Progress::untested);
}

TEST_CASE("progress can be read without solutions, tests or a cache") {
  const StartedBook folder;
  std::filesystem::remove_all(folder / "solutions");
  std::filesystem::remove_all(folder / "tests");
  CHECK(folder.state("1.1") == Progress::untested);
  save_progress(folder.load(), {{"1.1", true}});
  CHECK(folder.state("1.1") == Progress::passing);
}

TEST_CASE("only the book's exercises have progress and hints") {
  const StartedBook folder;
  CHECK_THROWS_AS(save_progress(folder.load(), {{"1.1", true}, {"9.9", true}}), ManifestError);
  CHECK_FALSE(folder.exists(cache));
  CHECK_THROWS_AS(hints_seen(folder.load(), "9.9"), ManifestError);
  CHECK_THROWS_AS(remember_hint(folder.load(), "9.9", 1), ManifestError);
}

TEST_CASE("hints seen are remembered, one exercise at a time") {
  const StartedBook folder;
  CHECK(hints_seen(folder.load(), "1.1") == 0);
  remember_hint(folder.load(), "1.1", 1);
  remember_hint(folder.load(), "1.2", 3);
  remember_hint(folder.load(), "1.1", 2);
  CHECK(hints_seen(folder.load(), "1.1") == 2);
  CHECK(hints_seen(folder.load(), "1.2") == 3);
}

TEST_CASE("damaged hints count as none, too many as all") {
  const StartedBook folder;
  for (const char* damaged : {"", "[1]", "{\"1.1\": \"two\"}", "{\"1.1\": -1}", "{\"1.1\": 1.5}"}) {
    folder.write(".workbook/hints.json", damaged);
    CHECK(hints_seen(folder.load(), "1.1") == 0);
  }
  folder.write(".workbook/hints.json", "{\"1.1\": 99}");
  CHECK(hints_seen(folder.load(), "1.1") == 2);
}

TEST_CASE("every state has a name") {
  CHECK(std::string(name(Progress::open)) == "open");
  CHECK(std::string(name(Progress::untested)) == "untested");
  CHECK(std::string(name(Progress::passing)) == "passing");
  CHECK(std::string(name(Progress::failing)) == "failing");
  CHECK(std::string(name(Progress::lost)) == "lost");
}
