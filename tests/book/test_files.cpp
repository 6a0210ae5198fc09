#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>
#include <vector>

#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook::book;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

std::size_t count_files(const fs::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const fs::directory_entry& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a written file is read back byte for byte") {
  const TemporaryFolder folder;
  const std::string text("a\r\nb\0c\xff\n\n", 9);
  write_file(folder / "new/folders/file", text);
  CHECK(read_file(folder / "new/folders/file") == text);
  write_file(folder / "new/folders/file", "");
  CHECK(read_file(folder / "new/folders/file").empty());
  CHECK(count_files(folder / "new/folders") == 1);
}

TEST_CASE("a new file may be named without a folder") {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  CHECK_NOTHROW(write_file("junit.xml", "<testsuites/>\n"));
  std::filesystem::current_path(before);
  CHECK(folder.read("junit.xml") == "<testsuites/>\n");
}

TEST_CASE("a file that cannot be read is named with the reason") {
  const TemporaryFolder folder;
  const auto message = [&](const char* file) {
    return message_of<std::runtime_error>([&] { read_file(folder / file); });
  };
  CHECK_THAT(message("none"), ContainsSubstring((folder / "none").string()) && ContainsSubstring("No such file"));
  CHECK_THAT(message("."), ContainsSubstring("Is a directory"));
}

TEST_CASE("a pipe or a device is read only with a limit, and never replaced") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(message_of<std::runtime_error>([&] { read_file(folder / "pipe"); }), ContainsSubstring("not a regular"));
  CHECK_THAT(message_of<std::runtime_error>([&] { write_file(folder / "pipe", "new"); }),
             ContainsSubstring((folder / "pipe").string()) && ContainsSubstring("would be replaced"));
  CHECK(fs::is_fifo(folder / "pipe"));
  CHECK(count_files(folder.path()) == 1);
  CHECK(read_file("/dev/zero", 3) == std::string(3, '\0'));
}

TEST_CASE("a failed write keeps the old file and leaves no temporary file") {
  const TemporaryFolder folder;
  folder.write("target/file", "old");
  const std::string message =
      message_of<std::runtime_error>([&] { write_file(folder / "target", "new"); });  // a folder
  CHECK_THAT(message, ContainsSubstring((folder / "target").string()));
  CHECK(folder.read("target/file") == "old");
  CHECK(count_files(folder.path()) == 1);
  CHECK_THROWS_AS(write_file(folder / "target/file/below", "new"), std::runtime_error);
  CHECK(folder.read("target/file") == "old");
}

TEST_CASE("rewriting keeps permissions and symbolic links") {
  const TemporaryFolder folder;
  folder.write("script", "old");
  fs::permissions(folder / "script", fs::perms::owner_all);
  fs::create_symlink("script", folder / "link");
  write_file(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(folder.read("script") == "new");
  CHECK(fs::status(folder / "script").permissions() == fs::perms::owner_all);
}

TEST_CASE("a file is not touched if it holds the text already") {
  const TemporaryFolder folder;
  CHECK(write_if_changed(folder / "file", "text"));
  const auto before = fs::last_write_time(folder / "file") - std::chrono::hours(1);
  fs::last_write_time(folder / "file", before);
  CHECK_FALSE(write_if_changed(folder / "file", "text"));
  CHECK(fs::last_write_time(folder / "file") == before);
  CHECK(write_if_changed(folder / "file", "other"));
  CHECK(folder.read("file") == "other");
}

TEST_CASE("a reader of a file gets the old or the new text, never a part") {
  const TemporaryFolder folder;
  const std::string texts[] = {std::string(100'000, 'a'), std::string(100'000, 'b')};
  folder.write("file", texts[0]);
  bool whole = true;
  {
    std::jthread writer([&](std::stop_token stop) {
      for (int i = 0; !stop.stop_requested(); ++i) write_file(folder / "file", texts[i % 2]);
    });
    for (int i = 0; i < 200; ++i) {
      const std::string text = folder.read("file");
      whole = whole && (text == texts[0] || text == texts[1]);
    }
  }
  CHECK(whole);
}

TEST_CASE("the hash is FNV-1a") {
  CHECK(hash("") == "cbf29ce484222325");
  CHECK(hash("a") == "af63dc4c8601ec8c");
  CHECK(hash("foobar") == "85944171f73967e8");
}

TEST_CASE("a backup keeps the path and never replaces another") {
  const TemporaryFolder folder;
  std::vector<fs::path> copies;
  for (const char* text : {"one", "two", "three"}) {
    folder.write("chapters/01/file.cpp", text);
    copies.push_back(back_up(folder.path(), folder / "chapters/01/file.cpp"));
  }
  CHECK(read_file(copies[0]) == "one");
  CHECK(read_file(copies[1]) == "two");
  CHECK(read_file(copies[2]) == "three");
  for (const fs::path& copy : copies) {
    const fs::path relative = copy.lexically_relative(folder / ".workbook/backup");
    const std::string time = relative.begin()->string();
    CHECK(relative == fs::path(time) / "chapters/01/file.cpp");
    REQUIRE(time.size() >= 16);  // 20261120T123456Z
    CHECK((time[8] == 'T' && time[15] == 'Z'));
  }
}

TEST_CASE("only files of the book are backed up") {
  const TemporaryFolder folder, other;
  other.write("file", "text");
  CHECK_THROWS_AS(back_up(folder.path(), other / "file"), std::runtime_error);
  CHECK_THROWS_AS(back_up(folder.path(), folder / "none"), std::runtime_error);
  CHECK_FALSE(folder.exists(".workbook"));
}
