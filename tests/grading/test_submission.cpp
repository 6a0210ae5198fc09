// Finding a student's files, whatever is handed in.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/grading/submission.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook;
using namespace workbook::grading;
using book::TemporaryFolder;

namespace {

const std::string kWanted = "chapters/02_online_softmax/online_softmax.cpp";

HandedIn read(const std::filesystem::path& path, const ArchiveLimits& limits = {}) {
  return read_submission({"anna", path}, {kWanted}, limits);
}

std::string taken(const HandedIn& handed_in) {
  const auto found = handed_in.files.find(kWanted);
  return found == handed_in.files.end() ? "" : found->second;
}

std::string notes(const HandedIn& handed_in) {
  std::string all;
  for (const std::string& note : handed_in.notes) all += note + "\n";
  return all;
}

}  // namespace

TEST_CASE("the file is found in a release, below another folder, or alone; the nearest name wins") {
  const TemporaryFolder folder;
  folder.write("a/" + kWanted, "right\n");
  folder.write("a/README.md", "x");
  CHECK(taken(read(folder / "a")) == "right\n");
  CHECK(notes(read(folder / "a")).empty());
  folder.write("b/my release/" + kWanted, "right\n");
  folder.write("b/online_softmax.cpp", "another\n");
  CHECK(taken(read(folder / "b")) == "right\n");
  CHECK(notes(read(folder / "b")).find("was taken from my release/") != std::string::npos);
  folder.write("c/online_softmax.cpp", "alone\n");
  CHECK(taken(read(folder / "c")) == "alone\n");
  folder.write("online_softmax.cpp", "a file\n");
  CHECK(taken(read(folder / "online_softmax.cpp")) == "a file\n");
}

TEST_CASE("backups, builds, pristine stubs and somebody's solutions are left aside") {
  const TemporaryFolder folder;
  for (const char* aside : {"build/default/grafts/", ".workbook/backup/20270101T000000Z/", "__MACOSX/", ".git/",
                            "chapters/.pristine/02_online_softmax/", "solutions/02_online_softmax/"}) {
    folder.write("a/" + std::string(aside) + "online_softmax.cpp", "not this\n");
  }
  CHECK(taken(read(folder / "a")).empty());
  CHECK(notes(read(folder / "a")).find("was not handed in") != std::string::npos);
}

TEST_CASE("line ends and a byte-order mark are no part of an answer") {
  const TemporaryFolder folder;
  folder.write("a/online_softmax.cpp", "\xEF\xBB\xBFone\r\ntwo\r\n");
  CHECK(taken(read(folder / "a")) == "one\ntwo\n");
}

TEST_CASE("archives of every kind, with what libarchive knows") {
  if (!archives_supported()) SKIP("built without libarchive");
  const TemporaryFolder folder;
  for (const char* name : {"a.zip", "a.tar.gz", "a.tar", "a.tar.xz"}) {
    INFO(name);
    write_archive(folder / name, {{"release/" + kWanted, {"in an archive\n"}}, {"release/b.txt", {"x"}}});
    CHECK(taken(read(folder / name)) == "in an archive\n");
  }
}

TEST_CASE("limits hold whatever an archive's headers say") {
  if (!archives_supported()) SKIP("built without libarchive");
  const TemporaryFolder folder;
  write_archive(folder / "bomb.tar.gz", {{"zeros", {std::string(4 << 20, '\0')}}, {kWanted, {"small\n"}}});
  ArchiveLimits limits;
  limits.unpacked = 1 << 20;
  const HandedIn bomb = read(folder / "bomb.tar.gz", limits);
  CHECK(!bomb.readable);
  CHECK(notes(bomb).find("unpacks to more than 1 MiB") != std::string::npos);
  limits = {};
  limits.entry = 3;
  CHECK(taken(read(folder / "bomb.tar.gz", limits)).empty());
  limits = {};
  limits.entries = 1;
  CHECK(!read(folder / "bomb.tar.gz", limits).readable);
  limits = {};
  limits.archive = 10;
  CHECK(!read(folder / "bomb.tar.gz", limits).readable);
  folder.write("none.zip", "no archive at all");
  CHECK(!read(folder / "none.zip").readable);
}

TEST_CASE("submissions are named by their folder or archive, once each") {
  const TemporaryFolder folder;
  folder.write("anna/x", "");
  folder.write("bert.tar.gz", "");
  folder.write("=cmd|' calc.zip", "");
  const auto named = name_submissions(
      {(folder / "bert.tar.gz").string(), (folder / "anna").string() + "/", (folder / "=cmd|' calc.zip").string()});
  REQUIRE(named.size() == 3);
  CHECK(named[0].student == "_cmd___calc");
  CHECK(named[1].student == "anna");
  CHECK(named[2].student == "bert");
  folder.write("anna.zip", "");
  CHECK_THROWS_AS(name_submissions({(folder / "anna").string(), (folder / "anna.zip").string()}), InputError);
  CHECK_THROWS_AS(name_submissions({(folder / "nobody").string()}), InputError);
}
