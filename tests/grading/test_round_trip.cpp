// From the book to a release, from there to a submission, and back to points: through the command, and through the
// autograder as Gradescope lays it out. Builds the book twice, so it takes minutes (less with ccache).
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/grading/archive.hpp"
#include "common/worker/command.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const fs::path kSource = WORKBOOK_SOURCE, kBinary = WORKBOOK_BINARY;
const std::string kFile = "chapters/02_online_softmax/online_softmax.cpp";

worker::CommandResult run(std::vector<std::string> argv, const fs::path& folder,
                          std::map<std::string, std::string> environment = {}) {
  worker::CommandOptions options;
  options.folder = folder;
  options.environment = std::move(environment);
  if (!worker::find_program("ccache").empty()) {
    options.environment.insert(
        {{"CMAKE_CXX_COMPILER_LAUNCHER", "ccache"}, {"CCACHE_BASEDIR", folder.string()}, {"CCACHE_NOHASHDIR", "1"}});
  }
  return worker::run_command(argv, options);
}

worker::CommandResult command(const std::vector<std::string>& arguments, const fs::path& folder) {
  std::vector<std::string> argv{(kBinary / "bin" / "workbook_cli").string()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run(argv, folder, {{"WORKBOOK_ROOT", kSource.string()}, {"WORKBOOK_BUILD", kBinary.string()}});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// One release for all tests here, in a folder that lasts as long as the program.
const fs::path& release() {
  static const book::TemporaryFolder folder;
  static const fs::path path = [] {
    const auto made =
        command({"release", "--exercises", "2.1,2.3", "--title", "Assignment 1: online softmax", "--due", "2027-01-31",
                 "--github", "--gradescope", "--hidden", (kSource / "tests/grading/hidden").string(), "--out", "a1"},
                folder.path());
    INFO(made.output);
    REQUIRE(made.exit_code == 0);
    CHECK(contains(made.output, "verified: it builds"));
    return folder.path() / "a1";
  }();
  return path;
}

/// The release's file with the answers: as if solved there.
std::string solve() {
  return book::read_file(kSource / "solutions/02_online_softmax/online_softmax.cpp");
}

}  // namespace

TEST_CASE("a release is written when it has been verified, and holds no answer") {
  CHECK(fs::exists(release() / "README.md"));
  CHECK(fs::exists(release() / ".github/workflows/workbook.yml"));
  CHECK(!fs::exists(release() / "solutions"));
  CHECK(!fs::exists(release() / "build"));
  CHECK(!fs::exists(release() / ".workbook"));
  const book::MarkedFile file = book::parse_marked("", book::read_file(release() / kFile));
  CHECK(book::is_open(*file.find("2.1")));
  CHECK(book::is_open(*file.find("2.3")));
  for (const auto& entry : fs::directory_iterator(release().parent_path())) {
    CHECK(!entry.path().filename().string().starts_with("."));  // no staging folder is left
  }
  CHECK(fs::exists(release().string() + ".tar.gz") == grading::archives_supported());
  // What is there is not overwritten.
  const auto again = command({"release", "--exercises", "2.1", "--out", release().string()}, release());
  CHECK(again.exit_code == 2);
  CHECK(contains(again.output, "is there already"));
}

TEST_CASE("solved in the release: full points; untouched: none, and a page that says so") {
  if (::geteuid() != 0 || !fs::exists(kBinary / "bin" / "workbook_isolate")) SKIP("needs root and libseccomp");
  const book::TemporaryFolder folder;
  fs::copy(release(), folder / "solved", fs::copy_options::recursive);
  fs::copy(release(), folder / "untouched", fs::copy_options::recursive);
  folder.write("solved/" + kFile, solve());
  const auto graded = command(
      {"grade", "--assignment", (release() / "assignment.toml").string(), "solved", "untouched"}, folder.path());
  INFO(graded.output);
  REQUIRE(graded.exit_code == 0);
  CHECK(json::parse(folder.read("graded/solved/record.json")).at("points") == 10);
  CHECK(json::parse(folder.read("graded/untouched/record.json")).at("points") == 0);
  CHECK(contains(folder.read("graded/untouched/feedback.md"), "0 of 10 points"));
  CHECK(contains(folder.read("graded/untouched/feedback.md"), "| todo | 0 of 3 |"));
}

TEST_CASE("the autograder runs as Gradescope lays it out") {
  if (::geteuid() != 0 || !fs::exists(kBinary / "bin" / "workbook_isolate")) SKIP("needs root and libseccomp");
  if (!grading::archives_supported()) SKIP("needs libarchive");
  release();
  // /autograder with source, submission and results; the scripts take another place from AUTOGRADER.
  const book::TemporaryFolder folder;
  const fs::path base = folder / "autograder";
  fs::create_directories(base / "source");
  grading::read_archive(
      release().string() + "-autograder.zip", {}, [](const std::string&) { return true; },
      [&](const grading::Entry& entry) {
        REQUIRE(!contains(entry.path, ".."));
        book::write_file(base / "source" / entry.path, entry.text);
      });
  const std::map<std::string, std::string> environment{{"AUTOGRADER", base.string()}};
  const auto set_up = run({"/bin/bash", (base / "source/setup.sh").string()}, base, environment);
  INFO(set_up.output);
  REQUIRE(set_up.exit_code == 0);
  fs::copy_file(base / "source/run_autograder", base / "run_autograder");

  struct Case {
    std::string name, text;
    double points;
  };
  for (const Case& submitted : {Case{"solved", solve(), 10}, Case{"untouched", book::read_file(release() / kFile), 0},
                                Case{"does not compile", "int x = ;\n", 0}, Case{"nothing", "", 0}}) {
    INFO(submitted.name);
    fs::remove_all(base / "submission");
    fs::remove_all(base / "results");
    fs::create_directories(base / "submission");
    fs::create_directories(base / "results");
    // Gradescope keeps a file that was uploaded by itself under its name.
    if (!submitted.text.empty()) book::write_file(base / "submission/online_softmax.cpp", submitted.text);
    const auto ran = run({"/bin/bash", (base / "run_autograder").string()}, base, environment);
    INFO(ran.output);
    CHECK(ran.exit_code == 0);
    const json results = json::parse(book::read_file(base / "results/results.json"));
    CHECK(!results.contains("score"));
    for (const char* key :
         {"execution_time", "output", "output_format", "visibility", "stdout_visibility", "extra_data"}) {
      CHECK(results.contains(key));
    }
    CHECK(results["execution_time"].is_number());
    CHECK(results["stdout_visibility"] == "hidden");
    CHECK(results["extra_data"]["isolation"]["proved"] == true);
    double score = 0, most = 0;
    std::set<std::string> numbers;
    for (const json& test : results["tests"]) {
      for (const char* key : {"name", "number", "score", "max_score", "status", "output", "output_format", "tags",
                              "visibility", "extra_data"}) {
        CHECK(test.contains(key));
      }
      CHECK(numbers.insert(test["number"].get<std::string>()).second);
      CHECK((test["status"] == "passed" || test["status"] == "failed"));
      CHECK((test["visibility"] == "visible" || test["visibility"] == "after_published"));
      score += test["score"].get<double>();
      most += test["max_score"].get<double>();
    }
    CHECK(score == submitted.points);
    CHECK(most == 10);
  }
}
