// Hostile and broken submissions, graded together with good ones. None may crash the grader, gain points, affect
// another result, or access other files.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/grading/grading_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const fs::path kHidden = fs::path(WORKBOOK_SOURCE) / "tests/grading/hidden";

/// Files that no submission may read or change.
SamplePaths paths_beside(const GradingCopy& copy) {
  book::write_file(scratch("outside") / "sentinel.txt", "untouched");
  return {copy / "solutions/02_online_softmax/online_softmax.cpp", kHidden / "02_online_softmax/test_hidden.cpp",
          scratch("outside") / "sentinel.txt", copy.submissions() / "anna" / kAnswerFile};
}

}  // namespace

TEST_CASE("hostile and broken submissions gain no points, do no harm, and do not affect others") {
  if (::geteuid() != 0) SKIP("another user needs root");
  const GradingCopy copy;
  const SamplePaths paths = paths_beside(copy);
  std::vector<Sample> samples = hostile_samples(copy.book(), paths);
  CHECK(samples.size() >= 120);
  // The second of five parts of them: WORKBOOK_PART=2/5.
  std::size_t part = 1, parts = 1, at = 0;
  if (const char* wanted = std::getenv("WORKBOOK_PART")) REQUIRE(std::sscanf(wanted, "%zu/%zu", &part, &parts) == 2);
  std::erase_if(samples, [&](const Sample&) { return at++ % parts != part - 1; });
  for (const Sample& sample : samples) write_sample(copy.submissions(), sample);
  for (const char* good : {"anna", "mona", "zoe"}) copy.submit(good, solved(copy.book()));
  const std::string solution = copy.read("solutions/02_online_softmax/online_softmax.cpp");

  const Ran ran = copy.grade({"--jobs", "2", "--time-limit", "2", "--hidden", kHidden.string()}, 1500);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);

  // A minute; on a machine that is busy, 15 times what a right answer takes beside them.
  double longest = 60;
  for (const char* good : {"anna", "mona", "zoe"}) {
    CHECK(copy.record(good).at("points") == 10);
    longest = std::max(longest, 15 * copy.record(good).at("seconds").get<double>());
  }
  for (const Sample& sample : samples) {
    INFO(sample.name << "\n" << copy.feedback(sample.name));
    const json record = copy.record(sample.name);
    CHECK(record.dump().find("ATTACK SUCCEEDED") == std::string::npos);
    CHECK(record.at("seconds").get<double>() <= longest);
    CHECK(copy.item(sample.name, "2.1").at("points") == (sample.first ? 3 : 0));
    CHECK(copy.item(sample.name, "2.3").at("points") == (sample.second ? 5 : 0));
    CHECK(copy.item(sample.name, "chapter 2").at("points") == (sample.whole ? 2 : 0));
    if (!sample.result.empty()) CHECK(copy.item(sample.name, "2.1").at("result") == sample.result);
    if (!sample.first) CHECK(copy.item(sample.name, "2.1").at("result") != "passed");
    if (!sample.says.empty()) {
      CHECK(record.dump(-1, ' ', false).find(sample.says) != std::string::npos);
    }
    for (const json& test : record.at("tests")) {
      if (test.at("hidden") != true || test.at("result") == "passed") continue;
      CHECK(test.at("message") == "a hidden test: its message is not shown");
    }
  }

  // They have left no files.
  CHECK(book::read_file(paths.outside) == "untouched");
  CHECK(copy.read("solutions/02_online_softmax/online_softmax.cpp") == solution);
  for (const char* file : {"/tmp/results.json", "/tmp/workbook-sample-fills-the-disk"}) CHECK(!fs::exists(file));
  CHECK(!fs::exists(copy / "junit.xml"));
}

TEST_CASE("with --unsafe, the limits on a compiled answer's calls still hold") {
  if (::geteuid() != 0) SKIP("the samples are written for root's isolation");
  const GradingCopy copy;
  const std::set<std::string> chosen{"reads_the_solution", "edits_files_outside", "signals_the_parent",
                                     "becomes_an_impostor", "connects_to_the_network"};
  std::size_t written = 0;
  for (const Sample& sample : hostile_samples(copy.book(), paths_beside(copy))) {
    if (!chosen.contains(sample.name)) continue;
    write_sample(copy.submissions(), sample);
    ++written;
  }
  REQUIRE(written == chosen.size());
  copy.submit("anna", solved(copy.book()));
  const Ran ran = copy.grade({"--jobs", "2", "--time-limit", "2", "--unsafe"});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  for (const std::string& name : chosen) {
    INFO(name << "\n" << copy.feedback(name));
    CHECK(copy.record(name).dump().find("ATTACK SUCCEEDED") == std::string::npos);
    CHECK(contains(copy.feedback(name), "which is not allowed in an answer"));
    CHECK(copy.record(name).at("isolation").at("on") == false);
    CHECK(copy.item(name, "2.1").at("points") == 0);
  }
  CHECK(copy.record("anna").at("points") == 10);
}
