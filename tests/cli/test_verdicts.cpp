// `./workbook test`: its verdicts on a reader's file with any contents.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <set>
#include <vector>

#include "common/worker/sanitizers.hpp"
#include "tests/cli/answers.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

using Results = std::set<std::string>;

/// The results of the tests of one exercise (or of "whole").
Results results(const json& run, const std::string& exercise) {
  Results found;
  for (const json& test : run.at("tests")) {
    if (test.at("exercise") == exercise) found.insert(test.at("result").get<std::string>());
  }
  return found;
}

/// The runs of a document.
std::vector<json> runs_of(const Ran& ran) {
  return ran.document().at("runs").get<std::vector<json>>();
}

/// The only run of a document.
json only_run(const Ran& ran) {
  const json document = ran.document();
  REQUIRE(document.at("runs").size() == 1);
  return document["runs"][0];
}

/// Every test passed, except those that a sanitizer build cannot run, because it does not count memory.
bool passed_here(const json& run) {
  const int skipped = run["skipped"], passed = run["passed"];
  return passed + skipped == int(run["tests"].size()) && (skipped == 0 || sanitized());
}

/// All messages about one exercise.
std::string messages(const json& run, const std::string& exercise) {
  std::string text;
  for (const json& test : run.at("tests")) {
    if (test.at("exercise") == exercise) text += test.at("message").get<std::string>() + "\n";
  }
  return text;
}

void solve_chapter_1(const WorkbookCopy& book) {
  for (const char* id : {"1.1", "1.2", "1.3"}) book.solve(id);
}

const std::string file_1 = "chapters/01_naive_attention/naive_attention.cpp";

}  // namespace

TEST_CASE("a fresh chapter is todo, with file and line, and neither failed nor passed") {
  const WorkbookCopy book;
  const Ran ran = book.run({"test", "1", "--json"});
  const json run = only_run(ran);
  CHECK(ran.exit_code == 1);
  CHECK(run["todo"] == 13);
  CHECK(run["blocked"] == 4);
  for (const char* none : {"passed", "failed", "skipped", "crashed", "timed_out", "not_compiled"})
    CHECK(run[none] == 0);
  for (const json& test : run["tests"]) {
    if (test["exercise"] == "whole") {
      CHECK(test["message"] == "blocked by todo 1.1");
      continue;
    }
    CHECK(test["result"] == "todo");
    CHECK(test["place"]["file"] == file_1);
    const std::string todo = fmt::format("WORKBOOK_TODO({})", test["exercise"].get<std::string>());
    CHECK(test["place"]["line"] == book.line_of(file_1, todo));
  }

  const Ran shown = book.run({"test", "1"});
  CHECK(shown.exit_code == 1);
  CHECK(contains(shown.out, fmt::format("todo 1.1 ({}:{})", file_1, book.line_of(file_1, "WORKBOOK_TODO(1.1)"))));
  CHECK(contains(shown.out, "13 todo, 4 blocked"));
  CHECK(contains(shown.out, "next: exercise 1.1"));
}

TEST_CASE("a solved exercise passes while the one before it is open") {
  const WorkbookCopy book;
  book.solve("1.2");
  const Ran ran = book.run({"test", "1", "--json"});
  const json run = only_run(ran);
  CHECK(ran.exit_code == 1);
  CHECK(results(run, "1.1") == Results{"todo"});
  CHECK(results(run, "1.2") == Results{"passed"});
  CHECK(results(run, "1.3") == Results{"todo"});
  CHECK(results(run, "whole") == Results{"blocked"});

  const Ran alone = book.run({"test", "1.2"});
  CHECK(alone.exit_code == 0);
  CHECK(contains(alone.out, "7 passed"));
}

TEST_CASE("a wrong exercise fails alone, and blocks the tests of the whole chapter") {
  const WorkbookCopy book;
  solve_chapter_1(book);
  book.edit(file_1, "scale * dot", "dot");
  const Ran ran = book.run({"test", "1", "--json"});
  const json run = only_run(ran);
  CHECK(ran.exit_code == 1);
  CHECK(results(run, "1.1").contains("failed"));
  CHECK(results(run, "1.2") == Results{"passed"});
  CHECK(results(run, "1.3") == Results{"passed"});
  CHECK(results(run, "whole") == Results{"blocked"});
  for (const json& test : run.at("tests")) {
    if (test.at("exercise") == "whole") CHECK(test.at("blocked_by") == "1.1");
    if (test.at("result") != "failed") continue;
    CHECK(test["place"]["file"] == file_1);
    CHECK(test["place"]["line"] == book.line_of(file_1, "// BEGIN 1.1"));
  }
}

TEST_CASE("a crash is a named result, not a pass, and the other chapter stays testable") {
  struct Sabotage {
    std::string name;
    std::string body;     // instead of exercise 1.3
    std::string outside;  // at the end of the file
    std::string result, message;
  };
  // A body may close its function and go on at file level.
  const std::string at_file_level = "  for (float& o : O.elements()) o = 0;\n}\n";
  const Sabotage sabotage = GENERATE_COPY(values<Sabotage>({
      {"compile error", "  O(0, 0) = \"a text\";\n", "", "not compiled", file_1},
      {"abort", "  std::abort();\n", "", "crashed", "abort"},
      {"null dereference", "  volatile int* nowhere = nullptr;\n  *nowhere = 1;\n", "", "crashed",
       sanitized() ? "exit(" : "segmentation fault"},  // a sanitizer reports it first and ends the program
      {"exit(0) in a static initialiser",
       at_file_level + "struct Quit {\n  Quit() { std::exit(0); }\n} quit;\nvoid after() {\n", "", "crashed",
       "exit(0)"},
      {"redefined oracle", "  for (float& o : O.elements()) o = 0;\n",
       "#include \"common/attention/oracle.hpp\"\nnamespace workbook {\n"
       "Forward forward_oracle(const Problem& problem, unsigned) {\n  Forward zeros;\n"
       "  zeros.O = Tensor<double>(problem.Q.sizes);\n  return zeros;\n}\n}  // namespace workbook\n",
       "failed", "expected"},
      {"redefined main", at_file_level + "}\nint main() { return 0; }\nnamespace ch01 {\nvoid after() {\n", "",
       "not compiled", "multiple definition of `main'"},
      {"endless loop", "  volatile bool on = true;\n  while (on) {\n  }\n", "", "timed out", "endless loop"},
  }));
  INFO(sabotage.name);
  const WorkbookCopy book;
  solve_chapter_1(book);
  book.fill_in("1.3", sabotage.body);
  book.write(file_1, book.read(file_1) + sabotage.outside);

  const auto start = std::chrono::steady_clock::now();
  const Ran ran = book.run({"test", "1", "--json", "--time-limit", "1"});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const json run = only_run(ran);
  INFO(run.dump(2));
  CHECK(ran.exit_code == 1);
  CHECK(seconds < 30);
  CHECK(results(run, "1.1") == Results{"passed"});
  CHECK(results(run, "1.2") == Results{"passed"});
  CHECK(results(run, "1.3") == Results{sabotage.result});
  CHECK(contains(messages(run, "1.3"), sabotage.message));
  CHECK_FALSE(results(run, "whole").contains("passed"));

  const json other = only_run(book.run({"test", "2", "--json"}));
  CHECK(other["todo"] == 16);
  CHECK(other["blocked"] == 4);
}

TEST_CASE("exit(0) before main, outside every exercise, fails the whole chapter") {
  const WorkbookCopy book;
  solve_chapter_1(book);
  book.write(file_1, book.read(file_1) + "static const int quit = (std::exit(0), 0);\n");
  const Ran ran = book.run({"test", "1", "--json"});
  const json run = only_run(ran);
  CHECK(ran.exit_code == 1);
  CHECK(results(run, "1.3") == Results{"passed"});
  CHECK(results(run, "whole") == Results{"crashed"});
  CHECK(contains(messages(run, "whole"), "exit(0)"));
}

TEST_CASE("a compile error names the reader's file and line, in the graft too") {
  const WorkbookCopy book;
  book.fill_in("1.2", "  const int here = \"no number\";\n");
  const json run = only_run(book.run({"test", "1.2", "--json"}));
  CHECK(results(run, "1.2") == Results{"not compiled"});
  const int line = book.line_of(file_1, "const int here");
  INFO(messages(run, "1.2"));
  CHECK(contains(messages(run, "1.2"), fmt::format("{}:{}:", file_1, line)));
}

TEST_CASE("a lost marker costs one exercise, and the message names the fix") {
  struct Lost {
    std::vector<std::string> lines;
    std::string said;
  };
  const Lost lost =
      GENERATE(Lost{{"  // END 1.2\n"}, ": the line // END 1.2 that ends this region is missing"},
               Lost{{"  // BEGIN 1.2\n"}, ": the line // BEGIN 1.2 that begins this region is missing"},
               Lost{{"  // BEGIN 1.2\n", "  // END 1.2\n"}, ": the lines // BEGIN 1.2 and // END 1.2 are missing"});
  const WorkbookCopy book;
  solve_chapter_1(book);
  for (const std::string& line : lost.lines) book.edit(file_1, line, "");
  const Ran ran = book.run({"test", "1", "--json"});
  const json run = only_run(ran);
  CHECK(ran.exit_code == 1);
  CHECK(results(run, "1.1") == Results{"passed"});
  CHECK(results(run, "1.3") == Results{"passed"});
  CHECK_FALSE(results(run, "1.2").contains("passed"));
  INFO(messages(run, "1.2"));
  CHECK(contains(messages(run, "1.2"), file_1));
  CHECK(contains(messages(run, "1.2"), lost.said));
  CHECK(contains(messages(run, "1.2"), "restore the marker lines"));
  CHECK(contains(messages(run, "1.2"), "./workbook reset --file 1.2"));

  const json status = book.run({"status", "--json"}).document();
  CHECK(status["chapters"][0]["exercises"][1]["state"] == "lost");

  // reset refuses, and nothing changes; with --file the chapter is whole again.
  const std::string before = book.read(file_1);
  const Ran refused = book.run({"reset", "1.2"});
  CHECK(refused.exit_code != 0);
  CHECK(contains(refused.err, file_1 + ":"));
  CHECK(contains(refused.err, "reset --file 1.2"));
  CHECK(book.read(file_1) == before);
  CHECK(book.run({"reset", "--file", "1.2"}).exit_code == 0);
  const json reset = book.run({"status", "--json"}).document();
  for (const json& exercise : reset["chapters"][0]["exercises"]) {
    CHECK(exercise["state"] == "open");
  }
}

TEST_CASE("a file that is no readable text, or that holds a conflict, is named, and no advice is to start over") {
  const WorkbookCopy book;
  solve_chapter_1(book);
  const std::string text = book.read(file_1);
  const auto said = [&](const std::string& written, const std::string& what, const std::vector<std::string>& verbs) {
    book.write(file_1, written);
    for (const std::string& verb : verbs) {
      const Ran ran = verb == "status" ? book.run({verb}) : book.run({verb, "1.1"});
      INFO(verb << "\n" << ran.out << ran.err);
      CHECK(contains(ran.out + ran.err, file_1 + what));
      CHECK_FALSE(contains(ran.out + ran.err, "reset --file"));
    }
    CHECK(book.read(file_1) == written);
  };
  std::string wide("\xFF\xFE"), old;
  for (const char c : text) wide += c, wide += '\0', old += c == '\n' ? '\r' : c;
  said(wide, ": the file is encoded in UTF-16: save it as UTF-8", {"test", "status", "reset", "solution"});
  said(wide.insert(2, 2, '\0'), ": the file is encoded in UTF-32: save it as UTF-8", {"test", "status", "reset"});
  said(old, ": the lines end in CR alone, as on old Macs", {"test", "status", "reset", "solution"});
  std::filesystem::remove(book / file_1);
  std::filesystem::create_symlink(std::filesystem::path(file_1).filename(), book / file_1);
  const Ran endless = book.run({"test", "1.1"});
  std::filesystem::remove(book / file_1);
  CHECK(endless.err == fmt::format("workbook: {}: Too many levels of symbolic links\n", (book / file_1).string()));
  book.write(file_1, text);
  const int line = book.line_of(file_1, "// BEGIN 1.1") + 1;
  book.edit(file_1, "  // BEGIN 1.1\n",
            "  // BEGIN 1.1\n<<<<<<< HEAD\n  WORKBOOK_TODO(1.1);\n=======\n>>>>>>> origin/main\n");
  said(book.read(file_1), fmt::format(":{}: this line is a conflict marker of git", line),
       {"test", "status", "solution"});
  CHECK(book.run({"test", "1.2"}).exit_code == 0);
  said("<<<<<<< HEAD\n=======\n>>>>>>> origin/main\n" + text, ":1: this line is a conflict marker of git",
       {"test", "status"});
}

TEST_CASE("a region that needs a helper from outside is judged in the whole chapter, with a note") {
  const WorkbookCopy book;
  solve_chapter_1(book);
  book.edit(file_1, "void scaled_scores(",
            "static float weighted(float weight, float x) { return weight * x; }\n\nvoid scaled_scores(");
  book.edit(file_1, "scale * dot", "weighted(scale, dot)");
  const Ran ran = book.run({"test", "1", "--json"});
  const json run = only_run(ran);
  CHECK(ran.exit_code == 0);
  CHECK(passed_here(run));
  REQUIRE(run["notes"].size() == 1);
  CHECK(contains(run["notes"][0], "exercise 1.1"));
  CHECK(contains(run["notes"][0], "whole chapter"));
  CHECK(contains(book.run({"test", "1"}).out, "note: exercise 1.1"));
}

TEST_CASE("right answers written differently pass, whatever the line ends") {
  const bool crlf = GENERATE(false, true);
  const WorkbookCopy book;
  for (const auto& [id, body] : other_answers) book.fill_in(id, body);
  if (crlf) {
    for (const std::string& file : {book.readers_file("1.1"), book.readers_file("2.1")}) {
      std::string text;
      for (const char c : book.read(file)) text += c == '\n' ? "\r\n" : std::string(1, c);
      book.write(file, text);
    }
  }
  const Ran ran = book.run({"test", "--json"});
  INFO(ran.out);
  CHECK(ran.exit_code == 0);
  for (const json& run : runs_of(ran)) {
    CHECK(passed_here(run));
    CHECK(run["notes"].empty());
  }
  const json status = book.run({"status", "--json"}).document();
  CHECK(status["done"] == 6);
  CHECK(contains(status["next"], "all exercises are solved"));
}

TEST_CASE("the solutions pass, and do not change the reader's progress") {
  const WorkbookCopy book;
  const Ran ran = book.run({"test", "--solutions", "--json"});
  CHECK(ran.exit_code == 0);
  for (const json& run : runs_of(ran)) {
    CHECK(run["source"] == "solutions");
    CHECK(passed_here(run));
  }
  CHECK_FALSE(book.exists(".workbook/progress.json"));
}

TEST_CASE("the previous stage is the book's unless the reader's is requested") {
  const WorkbookCopy book;
  for (const char* id : {"2.1", "2.2", "2.3"}) book.solve(id);
  CHECK(book.run({"test", "2"}).exit_code == 0);  // chapter 1 is open
  const Ran own = book.run({"test", "2", "--previous", "chapters", "--json"});
  CHECK(own.exit_code == 1);
  const json run = only_run(own);
  CHECK(run["blocked"] == 1);
  CHECK(contains(messages(run, "whole"), "blocked by todo 1.1"));
}

TEST_CASE("one test can be run by its name, in whichever chapter it is") {
  const WorkbookCopy book;
  book.solve("2.2");
  const Ran ran = book.run({"test", "--only", "an empty state changes nothing", "--json"});
  CHECK(ran.exit_code == 0);
  const json run = only_run(ran);
  REQUIRE(run["tests"].size() == 1);
  CHECK(run["tests"][0]["name"] == "an empty state changes nothing");
}

TEST_CASE("the known wrong solution that fails like the reader's answer is named") {
  struct Mistake {
    std::string find, replace, cause;
  };
  const std::string line = "      const auto q = Q_tile.row(i);\n";
  const Mistake mistake = GENERATE_COPY(
      Mistake{line, "      if (visible <= 0) break;\n" + line,
              "likely cause: Your code computes no more scores of a tile after the first row without a visible key"},
      Mistake{"m(rows, minus_infinity)", "m(rows, 0.0f)", "likely cause: Your code starts m at 0"});
  const WorkbookCopy book;
  for (const char* id : {"2.1", "2.2", "2.3"}) book.solve(id);
  book.edit(book.readers_file("2.3"), mistake.find, mistake.replace);
  const Ran ran = book.run({"test", "2.3"});
  INFO(ran.out);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.out, mistake.cause));
}

TEST_CASE("an exercise that fails takes at most 30 lines, its first failing test in full, and one conclusion") {
  const WorkbookCopy book;
  solve_chapter_1(book);
  book.edit(file_1, "scale * dot", "dot");
  const Ran ran = book.run({"test", "1.1"});
  INFO(ran.out);
  CHECK(occurrences(ran.out, "\n") <= 30 + 3);  // the chapter, the counts, what to do next
  CHECK(occurrences(ran.out, "likely cause:") == 1);
  CHECK(occurrences(ran.out, "    see: ") == 1);
  CHECK(occurrences(ran.out, "  failed ") > 1);
  CHECK(occurrences(ran.out, "failed on the CPU") == 1);
  CHECK(contains(ran.out, "next: fix exercise 1.1, then ./workbook test 1.1"));
  CHECK(occurrences(book.run({"test", "1.1", "--verbose"}).out, "failed on the CPU") > 1);
}

TEST_CASE("given lines that were changed are named: an exercise alone is tested with the book's around it") {
  const WorkbookCopy book;
  solve_chapter_1(book);
  CHECK_FALSE(contains(book.run({"test", "1.1"}).out, "was changed outside every BEGIN/END region"));
  book.edit(file_1, "#include <cstdint>\n", "#include <cstdint>\n#include <deque>\n");
  const std::string note = fmt::format("note: {}:{} was changed outside every BEGIN/END region", file_1,
                                       book.line_of(file_1, "#include <deque>"));
  CHECK(contains(book.run({"test", "1.1"}).out, note));
}

TEST_CASE("test notes code that grading would refuse, and ignores comments") {
  if (worker::kSanitized) SKIP("a sanitizer adds to every object file");
  const WorkbookCopy book;
  solve_chapter_1(book);
  const std::string body = book.read(file_1);
  const auto noted = [&](const std::string& line) {
    book.write(file_1, body);
    book.edit(file_1, "// BEGIN 1.1\n", "// BEGIN 1.1\n" + line + "\n");
    const json run = only_run(book.run({"test", "1.1", "--json"}));
    INFO(run.dump(2));
    CHECK(passed_here(run));
    std::string notes;
    for (const json& note : run["notes"]) notes += note.get<std::string>() + "\n";
    return notes;
  };
  CHECK(noted("  // asm, __builtin_memcpy and malloc have no place here") == "");
  CHECK(contains(noted("  asm volatile(\"nop\");"), "uses asm (inline assembly), which is not allowed in an answer: "));
  CHECK(contains(noted("  std::remove(\"\");"), "calls remove, which is not allowed in an answer: "));
}

TEST_CASE("the next step is shown when everything passes too") {
  const WorkbookCopy book;
  book.solve("1.2");
  CHECK(contains(book.run({"test", "1.2"}).out,
                 "next: ./workbook solution 1.2 shows how the book does it; then exercise 1.1"));
  CHECK(contains(book.run({"test", "1.1", "--solutions"}).out, "next: your own code: ./workbook test 1.1"));
  CHECK(contains(book.run({"test", "1.2", "--solutions"}).out, "then exercise 1.1"));
  // A reader who starts with chapter 2 continues there and is not sent to chapter 1 first.
  book.solve("2.1");
  CHECK(contains(book.run({"test", "2.1"}).out, "then exercise 2.2"));
  solve_chapter_1(book);
  CHECK(contains(book.run({"test", "1"}).out, "then chapter 2"));
  // Nothing that is finished is proposed.
  CHECK(contains(book.run({"test", "1", "--solutions"}).out, "then chapter 2"));
  for (const char* id : {"2.1", "2.2", "2.3"}) book.solve(id);
  for (const char* all : {"1", "2"}) {
    const Ran ran = book.run({"test", all});
    INFO(ran.out);
    CHECK(contains(ran.out, "all exercises are solved") == (all[0] == '2'));
  }
}

TEST_CASE("the compiler's warnings are shown if they are about the reader's lines") {
  const WorkbookCopy book;
  solve_chapter_1(book);
  book.edit(file_1, "  // END 1.2", "  if (int one = 1) one == 2;\n  // END 1.2");
  book.write(file_1, book.read(file_1) + "static void of_nobody() { int one = 1; one == 2; }\n");
  const Ran ran = book.run({"test", "1"});
  INFO(ran.out);
  CHECK(contains(ran.out, fmt::format("{}:{}:", file_1, book.line_of(file_1, "if (int one"))));
  CHECK_FALSE(contains(ran.out, fmt::format("{}:{}:", file_1, book.line_of(file_1, "of_nobody"))));
  book.write(file_1, book.read(file_1) + "nonsense\n");  // the whole chapter does not compile
  CHECK(contains(book.run({"test", "1"}).out, "warning: "));
}

TEST_CASE("the code's output is shown when a test passes too") {
  const WorkbookCopy book;
  book.solve("1.3");
  book.edit(file_1, "  // END 1.3", "  std::printf(\"%d rows\\n\", int(O.rows()));\n  // END 1.3");
  const Ran ran = book.run({"test", "1.3"});
  INFO(ran.out);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.out, " rows"));
}
