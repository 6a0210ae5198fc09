// Hostile and broken submissions, graded together with good ones: none crashes the grader, gains points, spoils another
// one's result, or reaches what is not its own.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "common/grading/archive.hpp"
#include "common/worker/command.hpp"
#include "tests/grading/grading_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const fs::path kHidden = fs::path(WORKBOOK_SOURCE) / "tests/grading/hidden";

/// What nobody may read or change.
Places places_beside(const GradingCopy& copy) {
  book::write_file(scratch("outside") / "sentinel.txt", "untouched");
  return {copy / "solutions/02_online_softmax/online_softmax.cpp", kHidden / "02_online_softmax/test_hidden.cpp",
          scratch("outside") / "sentinel.txt", copy.submissions() / "anna" / kAnswerFile};
}

/// What lies beside the samples: archives, links, files of other kinds.
struct Special {
  std::string name, note;
};

std::vector<Special> write_special_submissions(const GradingCopy& copy) {
  const fs::path folder = copy.submissions();
  std::vector<Special> special;
  // Links, in a folder and in an archive.
  fs::create_directories(folder / "link_to_the_solution" / "chapters/02_online_softmax");
  fs::create_symlink(copy / "solutions/02_online_softmax/online_softmax.cpp",
                     folder / "link_to_the_solution" / kAnswerFile);
  special.push_back({"link_to_the_solution", "no file"});
  fs::create_directories(folder / "linked_folder");
  fs::create_directory_symlink(copy / "solutions", folder / "linked_folder" / "chapters");
  special.push_back({"linked_folder", "was not handed in"});
  fs::create_directories(folder / "named_pipe" / "chapters/02_online_softmax");
  REQUIRE(::mkfifo((folder / "named_pipe" / kAnswerFile).c_str(), 0600) == 0);
  special.push_back({"named_pipe", "no file"});
  const fs::path making = scratch("making");
  fs::create_directories(making / "chapters/02_online_softmax");
  fs::create_symlink("/etc/passwd", making / kAnswerFile);
  const auto tar = [&](const std::string& name, const std::string& arguments) {
    const std::string archive = (folder / (name + ".tar.gz")).string();
    REQUIRE(worker::run_command({"/bin/sh", "-c", "cd \"$1\" && tar czf \"$0\" " + arguments, archive, making.string()})
                .exit_code == 0);
  };
  tar("link_in_the_archive", "chapters");
  special.push_back({"link_in_the_archive", "no file"});
  // A path that leads out of the folder. Its name still ends as the file's does: its text counts, nothing is written.
  const std::string outside = "../../../../../../tmp/workbook-sample-outside/" + std::string(kAnswerFile);
  grading::write_archive(folder / "path_out_of_the_archive.zip", {{outside, {untouched(copy.book()), false}}});
  special.push_back({"path_out_of_the_archive", "was taken from"});
  // Sizes: a file that is too large by itself, and one that unpacks to more than anybody wants.
  book::write_file(folder / "huge_archive.zip", "");
  REQUIRE(::truncate((folder / "huge_archive.zip").c_str(), off_t(300) << 20) == 0);
  special.push_back({"huge_archive", "300 MiB"});
  REQUIRE(worker::run_command({"/bin/sh", "-c",
                               "head -c 700000000 /dev/zero >\"$1/zeros\"; tar "
                               "czf \"$0\" -C \"$1\" zeros; rm \"$1/zeros\"",
                               (folder / "archive_bomb.tar.gz").string(), making.string()})
              .exit_code == 0);
  special.push_back({"archive_bomb", "unpacks to more than"});
  book::write_file(folder / "no_archive.zip", "PK\x03\x04 this is none");
  special.push_back({"no_archive", ""});
  // A list of files that lie on the grader's disk, which libarchive would take for an archive (mtree).
  book::write_file(folder / "names_files_on_the_disk.tar",
                   fmt::format("#mtree\n{} type=file contents={}\n", kAnswerFile,
                               (copy / "solutions/02_online_softmax/online_softmax.cpp").string()));
  special.push_back({"names_files_on_the_disk", "no archive that can be read"});
  book::write_file(folder / "long_source" / kAnswerFile, std::string(2 << 20, '/'));
  special.push_back({"long_source", "KiB"});
  fs::remove_all(making);
  return special;
}

}  // namespace

TEST_CASE("hostile and broken submissions gain nothing, harm nothing, and leave the others alone") {
  if (::geteuid() != 0) SKIP("another user needs root");
  const GradingCopy copy;
  const Places places = places_beside(copy);
  std::vector<Sample> samples = hostile_samples(copy.book(), places);
  CHECK(samples.size() >= 120);
  // The second of five parts of them: WORKBOOK_PART=2/5.
  std::size_t part = 1, parts = 1, at = 0;
  if (const char* wanted = std::getenv("WORKBOOK_PART")) REQUIRE(std::sscanf(wanted, "%zu/%zu", &part, &parts) == 2);
  std::erase_if(samples, [&](const Sample&) { return at++ % parts != part - 1; });
  for (const Sample& sample : samples) write_sample(copy.submissions(), sample);
  const std::vector<Special> special = write_special_submissions(copy);
  for (const char* good : {"anna", "mona", "zoe"}) copy.submit(good, solved(copy.book()));
  const std::string solution = copy.read("solutions/02_online_softmax/online_softmax.cpp");

  const Ran ran = copy.grade({"--jobs", "2", "--time-limit", "2", "--hidden", kHidden.string()}, 1500);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);

  for (const Sample& sample : samples) {
    INFO(sample.name << "\n" << copy.feedback(sample.name));
    const json record = copy.record(sample.name);
    CHECK(record.dump().find("ATTACK SUCCEEDED") == std::string::npos);
    CHECK(record.at("seconds").get<double>() <= 60);
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
  for (const Special& submission : special) {
    INFO(submission.name << "\n" << copy.feedback(submission.name));
    CHECK(copy.record(submission.name).at("points") == 0);
    CHECK(copy.record(submission.name).at("seconds").get<double>() <= 60);
    CHECK(copy.record(submission.name).at("notes").dump().find(submission.note) != std::string::npos);
  }
  for (const char* good : {"anna", "mona", "zoe"}) CHECK(copy.record(good).at("points") == 10);

  // Nothing of theirs is anywhere.
  CHECK(book::read_file(places.outside) == "untouched");
  CHECK(copy.read("solutions/02_online_softmax/online_softmax.cpp") == solution);
  for (const char* file :
       {"/tmp/results.json", "/tmp/workbook-sample-fills-the-disk", "/tmp/workbook-sample-outside"}) {
    CHECK(!fs::exists(file));
  }
  CHECK(!fs::exists(copy / "junit.xml"));
}

TEST_CASE("what a compiled answer may call holds where nothing is isolated") {
  if (::geteuid() != 0) SKIP("the samples are written for root's isolation");
  const GradingCopy copy;
  const std::set<std::string> chosen{"reads_the_solution", "edits_files_outside", "signals_the_parent",
                                     "becomes_an_impostor", "connects_to_the_network"};
  std::size_t written = 0;
  for (const Sample& sample : hostile_samples(copy.book(), places_beside(copy))) {
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
    CHECK(contains(copy.feedback(name), "which has no place in an answer"));
    CHECK(copy.record(name).at("isolation").at("on") == false);
    CHECK(copy.item(name, "2.1").at("points") == 0);
  }
  CHECK(copy.record("anna").at("points") == 10);
}
