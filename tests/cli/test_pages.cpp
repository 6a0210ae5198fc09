// The command line accepts the commands shown in the book's pages.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/book/files.hpp"
#include "common/book/pages.hpp"

using namespace workbook;
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> pages() {
  const fs::path root = WORKBOOK_SOURCE;
  std::vector<fs::path> found{root / "README.md"};
  for (const auto& entry : fs::directory_iterator(root / "notes"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  for (const auto& entry : fs::directory_iterator(root / "chapters"))
    if (fs::exists(entry.path() / "README.md")) found.push_back(entry.path() / "README.md");
  return found;
}

/// Whether the command accepts this line, without running it.
bool is_read(std::vector<std::string> words) {
  std::erase(words, "--yes");  // the launcher's
  std::string line = fmt::format("WORKBOOK_ONLY_READ=1 '{}/bin/workbook_cli'", WORKBOOK_BINARY);
  for (std::string word : words) {
    for (std::size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4) word.replace(at, 1, "'\\''");
    line += fmt::format(" '{}'", word);
  }
  return std::system((line + " >/dev/null 2>&1").c_str()) == 0;
}

}  // namespace

TEST_CASE("commands are found in prose and in code, and nowhere else") {
  const auto commands = book::commands_in(
      "Run `./workbook test 3.7 --only \"a b\"` and `./workbook test\n  3 --only \"a\n   b\"`, not ./workbook.\n"
      "```sh\n./workbook   # the book\n./workbook run --seq 8\necho ./workbook\n```\n`./workbook VERB`\n");
  REQUIRE(commands.size() == 5);
  CHECK(commands[0].words == std::vector<std::string>{"test", "3.7", "--only", "a b"});
  CHECK(commands[0].line == 1);
  CHECK(commands[1].words == std::vector<std::string>{"test", "3", "--only", "a b"});
  CHECK(commands[2].words.empty());
  CHECK(commands[3].words == std::vector<std::string>{"run", "--seq", "8"});
  CHECK(commands[3].line == 6);
  CHECK(commands[4].has_placeholder());
  CHECK_FALSE(commands[3].has_placeholder());
}

TEST_CASE("a command that is wrong is not read") {
  CHECK(is_read({"test", "3.7"}));
  CHECK_FALSE(is_read({"test", "--nothing"}));
  CHECK_FALSE(is_read({"trace", "3", "--br", "many"}));
  CHECK_FALSE(is_read({"wotch"}));
}

TEST_CASE("every command of the book's pages is read by the command line") {
  std::size_t read = 0;
  for (const fs::path& page : pages()) {
    for (const book::ShownCommand& command : book::commands_in(book::read_file(page))) {
      if (command.has_placeholder()) continue;
      INFO(page.string() << ':' << command.line << ": ./workbook " << fmt::format("{}", fmt::join(command.words, " ")));
      // A verb without arguments may just name the verb, as in "`./workbook reset` goes back to these".
      const bool is_name = command.words.size() == 1 && is_read({command.words[0], "--help"});
      CHECK((is_name || is_read(command.words)));
      ++read;
    }
  }
  CHECK(read > 100);
}
