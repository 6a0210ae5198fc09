// Every chapter with all of its exercises opened, answered by the book's own answers in other words: all points,
// nothing left out, by two graders at a time, one of them root and one who is not. Takes minutes.
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/worker/command.hpp"
#include "tests/book/fixtures/temporary_book.hpp"
#include "tests/judge/other_words.hpp"

using namespace workbook;
namespace fs = std::filesystem;
using nlohmann::json;
using std::string_literals::operator""s;

namespace {

const fs::path kSource = WORKBOOK_SOURCE, kBinary = WORKBOOK_BINARY;

/// What became of a chapter: the command, and the one submission's record.
struct Graded {
  std::string chapter;
  worker::CommandResult ran;
  json record;
};

/// `as`: words in front of the grader's. `wrong`: what is handed in has std::exp2 for its first std::exp.
Graded grade_whole(const book::Book& book, const book::Chapter& chapter, std::vector<std::string> as,
                   bool wrong = false) {
  const book::TemporaryFolder folder;
  std::string toml = fmt::format("title = \"{}\"\n", chapter.name());
  for (const book::Exercise& exercise : chapter.exercises)
    toml += fmt::format("\n[[exercise]]\nid = \"{}\"\n", exercise.id);
  folder.write("assignment.toml", toml);
  for (const std::string& file : chapter.files) {
    if (book::parse_reader("", book::read_file(book.solution(chapter, file))).regions.empty()) continue;
    std::string text = test::in_other_words(book, chapter, file);
    if (const std::size_t at = text.find("std::exp("); wrong && at != std::string::npos) text.insert(at + 8, "2");
    folder.write("anna/chapters/" + chapter.name() + "/" + file, text);
  }
  worker::CommandOptions options;
  options.folder = folder.path();
  options.environment = {{"WORKBOOK_ROOT", kSource.string()}, {"WORKBOOK_BUILD", kBinary.string()}};
  Graded graded{chapter.name(), {}, {}};
  for (const std::string& word : {(kBinary / "bin" / "workbook_course").string(), "grade"s, "--assignment"s,
                                  "assignment.toml"s, "--jobs"s, "1"s, "--out"s, "graded"s, "anna"s})
    as.push_back(word);
  graded.ran = worker::run_command(as, options);
  if (graded.ran.exit_code == 0) graded.record = json::parse(folder.read("graded/anna/record.json"));
  return graded;
}

void expect_full_points(const Graded& graded) {
  INFO(graded.chapter << "\n" << graded.ran.output);
  REQUIRE(graded.ran.exit_code == 0);
  for (const json& test : graded.record.at("tests")) {
    INFO(test.dump(2));
    CHECK((test.at("result") == "passed" || test.at("result") == "skipped"));
  }
  INFO(graded.record.at("items").dump(2) << graded.record.at("notes").dump(2));
  CHECK(graded.record.at("notes").dump().find("left out") == std::string::npos);
  CHECK(graded.record.at("notes").dump().find("restored") == std::string::npos);
  CHECK(graded.record.at("points").get<double>() > 0);
  CHECK(graded.record.at("points") == graded.record.at("max_points"));
}

/// The command prefix that runs a program as a user other than root, in a user namespace. Empty if this user is not
/// root.
std::vector<std::string> without_root() {
  if (::geteuid() != 0) return {};
  return {"unshare", "--user", "--map-user=60123", "--map-group=60123"};
}

/// A test for each chapter, of which each has its line in results; "[4]" is the one of chapter 4.
struct ChapterIsGraded : Catch::ITestInvoker {
  const book::Book& book;
  const book::Chapter& chapter;

  ChapterIsGraded(const book::Book& all, const book::Chapter& one) : book(all), chapter(one) {}
  void invoke() const override {
    if (!fs::exists(kBinary / "bin" / "workbook_isolate")) SKIP("submissions cannot be isolated without libseccomp");
    std::vector<std::string> view = without_root();
    for (const std::string& word : {(kBinary / "bin" / "workbook_isolate").string(), "view"s}) view.push_back(word);
    const bool rootless = worker::run_command(view).exit_code == 0;
    if (!rootless && ::geteuid() != 0) SKIP("you are not root, and may not mount in a user namespace");
    auto other = std::async(std::launch::async, [&] {
      return grade_whole(book, chapter, rootless ? without_root() : std::vector<std::string>{});
    });
    expect_full_points(grade_whole(book, chapter, {}));
    expect_full_points(other.get());
    if (!rootless) SKIP("graded by root only: this system does not allow other users to mount in a user namespace");
  }
};

const bool registered = [] {
  static book::Book book;
  try {
    book = book::load_book(kSource);
  } catch (const std::exception&) {
    return false;  // the test below says why
  }
  for (const book::Chapter& chapter : book.chapters) {
    const std::string name =
        fmt::format("chapter {} is graded whole: an honest answer has all its points", chapter.number);
    const std::string tag = fmt::format("[{}]", chapter.number);
    const Catch::AutoReg test(Catch::Detail::make_unique<ChapterIsGraded>(book, chapter), CATCH_INTERNAL_LINEINFO, {},
                              {name, tag});
  }
  return true;
}();

}  // namespace

TEST_CASE("a mistake costs its exercise alone, whoever grades", "[2]") {
  if (!fs::exists(kBinary / "bin" / "workbook_isolate")) SKIP("submissions cannot be isolated without libseccomp");
  const book::Book book = book::load_book(kSource);
  for (const std::vector<std::string>& as : {std::vector<std::string>{}, without_root()}) {
    const Graded graded = grade_whole(book, *book.find(2), as, /*wrong=*/true);
    INFO(graded.ran.output);
    REQUIRE(graded.ran.exit_code == 0);
    for (const json& item : graded.record.at("items")) {
      INFO(item.dump());
      const bool right = item.at("id") == "2.2" || item.at("id") == "2.3";
      CHECK((item.at("points") == item.at("max_points")) == right);
    }
  }
}

TEST_CASE("there are chapters to grade") {
  CHECK(registered == !book::load_book(kSource).chapters.empty());
}
