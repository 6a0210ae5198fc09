#include "tests/grading/other_words.hpp"

#include <fmt/format.h>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/worker/command.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

namespace workbook::test {
namespace {

/// The text with the lines of its regions formatted in another style.
std::string reformatted(const std::string& text) {
  std::string program;
  for (const char* name : {"clang-format-14", "clang-format"})
    if (program.empty()) program = worker::find_program(name).string();
  if (program.empty()) return text;
  std::vector<std::string> argv{program,
                                "--style={BasedOnStyle: LLVM, BreakBeforeBraces: Allman, ColumnLimit: 90, IndentWidth: "
                                "4, ReflowComments: false}"};
  for (const book::Region& region : book::parse_reader("", text).regions)
    argv.push_back(fmt::format("--lines={}:{}", region.begin_line + 1, region.end_line - 1));
  const book::TemporaryFolder folder;
  folder.write("answer.cpp", text);
  argv.push_back((folder / "answer.cpp").string());
  const worker::CommandResult result = worker::run_command(argv);
  return result.exit_code == 0 ? result.output : text;
}

}  // namespace

std::string in_other_words(const book::Book& book, const book::Chapter& chapter, const std::string& file) {
  std::string text = book::read_file(book.solution(chapter, file));
  for (const book::Region& region : book::parse_reader("", text).regions) {
    std::vector<std::string> body = region.body;
    body.insert(body.begin(),
                "  // Zuerst das Maximum, dann die Summe: \"don't\" (sic), {[ und 1'000 /* gehören dazu.");
    body.emplace_back("  /* fertig: #if 0 gilt hier nicht */");
    text = book::replace_body(book::parse_reader("", text), region.id, body);
  }
  return reformatted(text);
}

}  // namespace workbook::test
