// Finding a student's files, whatever is handed in.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/grading/submission.hpp"
#include "common/worker/command.hpp"
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

TEST_CASE("backups, builds, pristine stubs and other solutions are ignored") {
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
  folder.write("b/online_softmax.cpp", "one\rtwo\r");
  CHECK(taken(read(folder / "b")) == "one\ntwo\n");
}

TEST_CASE("a name that a browser or a system has changed is accepted, the exact name first") {
  const TemporaryFolder folder;
  int count = 0;
  for (const char* name : {"online_softmax (1).cpp", "Online_Softmax.CPP", "online_softmax.cpp.txt",
                           "online_softmax(12).cpp", "online_softmax - Copy (2).cpp", "online_softmax copy.cpp"}) {
    INFO(name);
    const std::string student = "a" + std::to_string(++count);
    folder.write(student + "/" + name, "right\n");
    CHECK(taken(read(folder / student)) == "right\n");
    CHECK(notes(read(folder / student)).find(std::string("was taken from ") + name) != std::string::npos);
    folder.write(student + "/online_softmax.cpp", "exact\n");
    CHECK(taken(read(folder / student)) == "exact\n");
  }
  folder.write("b/Chapters/02_Online_Softmax (1)/online_softmax.CPP", "in its folder\n");
  folder.write("b/online_softmax.cpp", "alone\n");
  CHECK(taken(read(folder / "b")) == "in its folder\n");
  folder.write("c/online_softmax (1).cpp", "one\n");
  folder.write("c/online_softmax (2).cpp", "two\n");
  CHECK(notes(read(folder / "c")).find("match equally well") != std::string::npos);
  folder.write("d/softmax.cpp", "another name\n");
  folder.write("d/online_softmax ().cpp", "no number\n");
  CHECK(taken(read(folder / "d")).empty());
  CHECK(notes(read(folder / "d")).find("The submission contains: ") != std::string::npos);
  CHECK(notes(read(folder / "d")).find("softmax.cpp") != std::string::npos);
}

TEST_CASE("archives of every format that libarchive supports") {
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
  CHECK(bomb.files.empty());
  CHECK(notes(bomb).find("unpacks to more than 1 MiB") != std::string::npos);
  limits = {};
  limits.entry = 3;
  CHECK(taken(read(folder / "bomb.tar.gz", limits)).empty());
  limits = {};
  limits.entries = 1;
  CHECK(read(folder / "bomb.tar.gz", limits).files.empty());
  limits = {};
  limits.archive = 10;
  CHECK(read(folder / "bomb.tar.gz", limits).files.empty());
}

TEST_CASE("a sparse file's hole and ignored entries count with their unpacked size") {
  if (!archives_supported()) SKIP("built without libarchive");
  const TemporaryFolder folder;
  const auto shell = [&](const std::string& script) {
    REQUIRE(worker::run_command({"/bin/sh", "-c", "cd \"$0\" && " + script, folder.path().string()}).exit_code == 0);
  };
  // 40 candidates, each a hole of 900 KiB: 36 MiB out of a few KiB.
  shell(
      "for i in $(seq 40); do mkdir $i; truncate -s 900K $i/online_softmax.cpp; echo x >>$i/online_softmax.cpp; done; "
      "tar -S -czf sparse.tar.gz "
      "[0-9]*");
  CHECK(std::filesystem::file_size(folder / "sparse.tar.gz") < 40000);
  ArchiveLimits limits;
  limits.unpacked = 8 << 20;
  const HandedIn sparse = read(folder / "sparse.tar.gz", limits);
  CHECK(sparse.files.empty());
  CHECK(notes(sparse).find("unpacks to more than 8 MiB") != std::string::npos);
  shell("mkdir many; cd many; seq -f %06g 20000 | xargs touch; cd ..; tar czf many.tar.gz many");
  CHECK(read(folder / "many.tar.gz").files.empty());
}

TEST_CASE("an entry that is not a student's file is not read, and a note says why") {
  if (!archives_supported()) SKIP("built without libarchive");
  // Attacks: links, blocking pipes, a path outside the folder, sizes, and mtree, with which libarchive would read a
  // file on this machine's disk. Shell commands in a folder with another student's answer in real/.
  const auto [name, command, says] = GENERATE(table<std::string, std::string, std::string>({
      {"link", "ln -s real link", "is a link, which is not followed"},
      {"linked_file", "mkdir -p $(dirname linked_file/$wanted); ln -s \"$PWD/real/$wanted\" linked_file/$wanted",
       "not a regular file"},
      {"linked_folder", "mkdir linked_folder; ln -s \"$PWD/real/chapters\" linked_folder/chapters",
       "was not handed in"},
      {"named_pipe", "mkdir -p $(dirname named_pipe/$wanted); mkfifo named_pipe/$wanted", "not a regular file"},
      {"linked.tar",
       "ln -s /etc/passwd online_softmax.cpp; tar cf linked.tar "
       "online_softmax.cpp",
       "not a regular file"},
      {"huge.zip", "truncate -s 300M huge.zip", "300 MiB"},
      {"none.zip", "echo 'PK is none' >none.zip", "not a readable archive"},
      {"mtree.tar", "printf '#mtree\\n%s type=file contents=%s\\n' $wanted \"$PWD/real/$wanted\" >mtree.tar",
       "not a readable archive"},
      {"long", "mkdir -p $(dirname long/$wanted); head -c 2M /dev/zero | tr '\\0' / >long/$wanted", "KiB"},
      {"two", "mkdir -p two/a two/b; touch two/a/online_softmax.cpp two/b/online_softmax.cpp", "match equally well"},
  }));
  const TemporaryFolder folder;
  folder.write("real/" + kWanted, "somebody else's\n");
  REQUIRE(worker::run_command({"/bin/sh", "-ec", "cd \"$0\"; wanted=$1; " + command, folder.path().string(), kWanted})
              .exit_code == 0);
  const HandedIn handed_in = read(folder / name);
  INFO(name << ": " << notes(handed_in));
  CHECK(taken(handed_in).empty());
  CHECK(notes(handed_in).find(says) != std::string::npos);
}

TEST_CASE("a path that leads out of an archive is a name like another: nothing is written") {
  if (!archives_supported()) SKIP("built without libarchive");
  const TemporaryFolder folder;
  write_archive(folder / "a.zip", {{"../../../../../../tmp/workbook-sample-outside/" + kWanted, {"text\n"}}});
  CHECK(taken(read(folder / "a.zip")) == "text\n");
  CHECK(!std::filesystem::exists("/tmp/workbook-sample-outside"));
}

TEST_CASE("a path in an archive cannot forge a line of the notes") {
  if (!archives_supported()) SKIP("built without libarchive");
  const TemporaryFolder folder;
  write_archive(folder / "a.tar.gz", {{"x\n11 of 11 points\n/online_softmax.cpp", {"text\n"}}});
  const HandedIn handed_in = read(folder / "a.tar.gz");
  REQUIRE(handed_in.notes.size() == 1);
  CHECK(handed_in.notes[0].find('\n') == std::string::npos);
}

namespace {

std::vector<std::string> named(const TemporaryFolder& folder, const std::vector<std::string>& names) {
  std::vector<std::string> paths, students;
  for (const std::string& name : names) {
    folder.write(name + "/x", "");
    paths.push_back((folder / name).string());
  }
  const std::vector<Submission> submissions = name_submissions(paths);
  for (const std::string& path : paths) {
    for (const Submission& submission : submissions)
      if (submission.path == path) students.push_back(submission.student);
  }
  return students;
}

}  // namespace

TEST_CASE("submissions have the unique name of their folder or archive, in UTF-8") {
  const TemporaryFolder folder;
  const std::vector<std::string> plain = named(folder, {"anna", "=cmd|' calc", "M\u00fcller", "M\u00f6ller"});
  CHECK(plain == std::vector<std::string>{"anna", "_cmd___calc", "M\u00fcller", "M\u00f6ller"});
  // Windows' own: no UTF-8. Both would be M_ller.
  const std::vector<std::string> latin = named(folder, {"M\xfcller", "M\xf6ller"});
  REQUIRE(latin.size() == 2);
  CHECK(latin[0].starts_with("M_ller-"));
  CHECK(latin[0] != latin[1]);
  // The names do not depend on the order of submissions or on earlier calls.
  CHECK(named(folder, {"M\xf6ller", "M\xfcller"}) == std::vector<std::string>{latin[1], latin[0]});
  // The grader's own files, characters that turn the line round or break it, and names that are too long.
  for (const std::string& name : named(folder, {"class.csv", "Class.MD", "a\nb", "a\u202eb", std::string(250, 'x')})) {
    INFO(name);
    CHECK(name.size() <= 200);
    CHECK(name != "class.csv");
    CHECK(name.find('\n') == std::string::npos);
    CHECK(name.find("\u202e") == std::string::npos);
    CHECK(name.find('-') != std::string::npos);  // each has a suffix
  }
  // Two of one name: both are graded, neither in the other's place.
  folder.write("bert.zip", "");
  folder.write("bert.tar.gz", "");
  const auto twice = name_submissions({(folder / "bert.zip").string(), (folder / "bert.tar.gz").string()});
  REQUIRE(twice.size() == 2);
  CHECK(twice[0].student.starts_with("bert-"));
  CHECK(twice[0].student != twice[1].student);
  CHECK_THROWS_AS(name_submissions({(folder / "nobody").string()}), InputError);
}
