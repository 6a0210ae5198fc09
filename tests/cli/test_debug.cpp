// `./workbook test --debug`, with a debugger that reads its commands from stdin.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "common/worker/command.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("test --debug stops in the exercise that fails, and its variables are there") {
  if (worker::find_program("gdb").empty()) SKIP("gdb is not here");
  const WorkbookCopy book;
  book.fill_in("1.3", "  const int answer = 42;\n  for (float& o : O.elements()) o = float(answer);\n");
  const Ran ran = book.run({"test", "1.3", "--debug"}, {.input = "next\ninfo locals\nkill\nquit\n"});
  INFO(ran.out << ran.err);
  const std::string file = "chapters/01_naive_attention/naive_attention.cpp";
  CHECK(contains(ran.out, fmt::format("{}:{}", file, book.line_of(file, "const int answer"))));
  CHECK(contains(ran.out, "Temporary breakpoint 1, "));
  CHECK(contains(ran.out, "answer = 42"));
}

TEST_CASE("test --debug of an open exercise says that there is nothing to run") {
  if (worker::find_program("gdb").empty()) SKIP("gdb is not here");
  const WorkbookCopy book;
  const Ran ran = book.run({"test", "1.3", "--debug"});
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.out, "next: exercise 1.3"));
  CHECK_FALSE(contains(ran.out, "under the debugger"));
}
