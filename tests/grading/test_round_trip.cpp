// From the book to a release, from there to a submission, and back to points: through the command, and through the
// autograder as Gradescope lays it out. Builds the book twice, so it takes minutes (less with ccache).
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/grading/archive.hpp"
#include "common/worker/command.hpp"
#include "tests/book/fixtures/temporary_book.hpp"
#include "tests/text.hpp"

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

/// Chapter 4's file with these bodies in 4.2 and 4.4, and more before its namespace.
std::string kernel_file(const std::string& multiply, const std::string& rescale, const std::string& before = "") {
  book::MarkedFile file =
      book::parse_marked("phases.hpp", book::read_file(kSource / "solutions/04_q_split/phases.hpp"));
  for (const auto& [exercise, more] : {std::pair{"4.2", multiply}, std::pair{"4.4", rescale}}) {
    std::vector<std::string> body = file.find(exercise)->body;
    if (!more.empty()) body.insert(body.begin(), more);
    file = book::parse_marked("phases.hpp", book::replace_body(file, exercise, body));
  }
  std::string text = book::join_lines(file.lines);
  return text.insert(text.find("namespace ch04"), before);
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
  CHECK(contains(again.output, "already exists"));
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
    CHECK(results["extra_data"]["isolation"]["proved"] == true);
    double score = 0, most = 0;
    for (const json& test : results["tests"]) {
      score += test["score"].get<double>();
      most += test["max_score"].get<double>();
    }
    CHECK(score == submitted.points);
    CHECK(most == 10);
  }
}

TEST_CASE("a kernel chapter: released, solved in the release, attacked, and graded on the simulator") {
  if (::geteuid() != 0 || !fs::exists(kBinary / "bin" / "workbook_isolate")) SKIP("needs root and libseccomp");
  const book::TemporaryFolder folder;
  {
    const auto made = command({"release", "--exercises", "4.2,4.4", "--out", "a4"}, folder.path());
    INFO(made.output);
    REQUIRE(made.exit_code == 0);
    CHECK(contains(made.output, "verified: it builds"));
  }
  const std::string file = "chapters/04_q_split/phases.hpp",
                    solution = (kSource / "solutions/04_q_split/phases.hpp").string();
  CHECK(contains(folder.read("a4/README.md"), file));
  CHECK(!fs::exists(folder / "a4/chapters/05_causal"));
  for (const char* student : {"solved", "untouched"}) {
    fs::copy(folder / "a4", folder / student, fs::copy_options::recursive);
  }
  // Written differently from the book's, so that it is compiled separately.
  folder.write("solved/" + file, kernel_file("  // As I have understood it.", "  // And this."));

  struct Attack {
    std::string name, rescale, before;
    std::string result;       // of 4.4
    int multiply_points = 3;  // what 4.2 is given: it is right in all of them
  };
  const std::vector<Attack> attacks{
      {"reads_the_solution", "  if (std::FILE* read = std::fopen(\"" + solution + "\", \"r\")) __builtin_trap();",
       "#include <cstdio>\n", "not compiled"},
      {"exits", "  std::_Exit(0);", "#include <cstdlib>\n", "not compiled"},
      {"writes_outside", "  reinterpret_cast<volatile float*>(8)[threadIdx.x] = 1;", "", "failed"},
      {"forges_counters", "  workbook::simt::take_counters();", "", "not compiled"},
      {"knows_where_it_is", "#ifndef __CUDA_ARCH__\n  return;\n#endif", "", "failed"}};
  for (const Attack& attack : attacks) {
    folder.write(attack.name + "/phases.hpp", kernel_file("", attack.rescale, attack.before));
  }
  folder.write("loops/phases.hpp", kernel_file("", "  for (volatile int i = 1; i != 0;) {\n  }"));
  std::vector<std::string> arguments{"grade", "--assignment", "a4/assignment.toml", "--jobs",
                                     "2",     "solved",       "untouched"};
  for (const Attack& attack : attacks) arguments.push_back(attack.name);
  const auto graded = command(arguments, folder.path());
  INFO(graded.output);
  REQUIRE(graded.exit_code == 0);
  const auto item = [&](const std::string& student, const std::string& id) {
    const json record = json::parse(folder.read("graded/" + student + "/record.json"));
    for (const json& one : record.at("items")) {
      if (one.at("id") == id) return one;
    }
    return json();
  };
  // What never ends is given seconds, so that its tests take no minutes; the others might need them.
  const auto ended =
      command({"grade", "--assignment", "a4/assignment.toml", "--time-limit", "2", "loops"}, folder.path());
  INFO(ended.output);
  REQUIRE(ended.exit_code == 0);
  CHECK(item("loops", "4.4").at("result") == "timed out");
  CHECK(item("loops", "4.4").at("points") == 0);
  CHECK(json::parse(folder.read("graded/solved/record.json")).at("points") == 9);
  CHECK(json::parse(folder.read("graded/untouched/record.json")).at("points") == 0);
  CHECK(contains(folder.read("graded/untouched/feedback.md"), "0 of 9 points"));
  CHECK(contains(folder.read("graded/solved/feedback.md"), "Verified on the simulator"));
  for (const Attack& attack : attacks) {
    INFO(attack.name << "\n" << folder.read("graded/" + attack.name + "/feedback.md"));
    CHECK(item(attack.name, "4.4").at("result") == attack.result);
    CHECK(item(attack.name, "4.4").at("points") == 0);
    CHECK(item(attack.name, "4.2").at("points") == attack.multiply_points);
    CHECK(item(attack.name, "chapter 4").at("points") == 0);
  }
}

TEST_CASE("every step of the workflow for GitHub runs in a release, and JUnit XML matches the schema") {
  std::vector<std::string> steps;
  std::istringstream lines(book::read_file(release() / ".github/workflows/workbook.yml"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("run: ");
    if (at != std::string::npos) steps.push_back(line.substr(at + 5));
  }
  REQUIRE(steps.size() == 2);
  const book::TemporaryFolder folder;
  const fs::path clone = folder / "clone";
  fs::copy(release(), clone, fs::copy_options::recursive);
  for (const bool is_solved : {false, true}) {
    INFO("solved: " << is_solved);
    if (is_solved) book::write_file(clone / kFile, solve());
    const std::map<std::string, std::string> environment{
        {"CI", "true"}, {"GITHUB_STEP_SUMMARY", (folder / (is_solved ? "solved.md" : "open.md")).string()}};
    // As a runner starts them.
    const auto built = run({"/bin/bash", "-eo", "pipefail", "-c", steps[0]}, clone, environment);
    INFO(built.output);
    REQUIRE(built.exit_code == 0);
    const auto tested = run({"/bin/bash", "-eo", "pipefail", "-c", steps[1]}, clone, environment);
    INFO(tested.output);
    // What is given is not to do.
    const auto glance = run({"/bin/sh", "./workbook"}, clone, environment);
    CHECK(contains(glance.output, "given"));
    CHECK(contains(glance.output, is_solved ? "2 exercises: 2 done, 0 to do" : "2 exercises: 0 done, 2 to do"));
    CHECK(tested.exit_code == (is_solved ? 0 : 1));
    CHECK(contains(folder.read(is_solved ? "solved.md" : "open.md"), "todo: ") == !is_solved);
    CHECK(contains(book::read_file(clone / "junit.xml"), "<failure type=\"todo\"") == !is_solved);
    if (worker::find_program("xmllint").empty()) continue;
    const auto valid = run({"xmllint", "--noout", "--schema", "common/grading/junit.xsd", "junit.xml"}, clone);
    INFO(valid.output);
    CHECK(valid.exit_code == 0);
  }
}
