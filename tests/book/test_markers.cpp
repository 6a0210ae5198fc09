#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "common/book/markers.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook::book;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr const char* solution_name = "solutions/01_sums/sums.cpp";
constexpr const char* reader_name = "chapters/01_sums/sums.cpp";

MarkedFile solution() {
  return parse_marked(solution_name, sums_solution);
}

std::string parse_error(const std::string& text) {
  return message_of<MarkerError>([&] { parse_marked("file.cpp", text); });
}

/// A reader's region with this body.
Region region(const std::string& body) {
  const std::string text = "// TODO(1.1) Do.\n// BEGIN 1.1\n" + body + "\n// END 1.1\n";
  return *parse_marked("file.cpp", text).find("1.1");
}

/// The compiler's output for a text in the folder of sums.hpp; empty if it compiles.
std::string compile(const std::string& text) {
  const TemporaryFolder folder;
  folder.write("sums.hpp", sums_header);
  folder.write("graft.cpp", "#define WORKBOOK_TODO(id) throw #id\n" + text);
  const std::string command = fmt::format(
      "cd '{}' && LC_ALL=C ${{CXX:-g++}} -std=c++20 -fsyntax-only graft.cpp >log 2>&1", folder.path().string());
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) SKIP("no compiler in PATH");
  const std::string log = folder.read("log");
  CHECK((status == 0) == (log.find("error:") == std::string::npos));
  return log;
}

/// The line of the first occurrence of `word`.
int line_of(const std::string& text, const char* word) {
  const auto at = text.begin() + static_cast<std::ptrdiff_t>(text.find(word));
  return 1 + static_cast<int>(std::count(text.begin(), at, '\n'));
}

std::string graft_of(const std::string& reader, const char* id) {
  return with_bodies(solution(), parse_reader(reader_name, reader), {id});
}

}  // namespace

TEST_CASE("a region is found with its text, its stub and its body") {
  const MarkedFile file = solution();
  REQUIRE(file.regions.size() == 2);
  const Region& add = *file.find("1.1");
  CHECK(add.todo_line == 4);
  CHECK(add.begin_line == 6);
  CHECK(add.end_line == 8);
  CHECK(add.todo == "Add a and b (about 1 line).");
  CHECK(add.indent == "  ");
  CHECK(add.stub_lines.empty());
  CHECK(add.body == std::vector<std::string>{"  return a + b;"});
  const Region& multiply = *file.find("1.2");
  CHECK(multiply.todo == "Multiply.");
  CHECK(multiply.stub_lines == std::vector<std::string>{"WORKBOOK_TODO(1.2);", "return 0;"});
  CHECK(multiply.body.size() == 2);
  CHECK(file.find("1.3") == nullptr);
}

TEST_CASE("markers that do not fit are errors with file and line") {
  CHECK(parse_error("// TODO(1.1) Do.\n// BEGIN 1.1\nx\n") == "file.cpp:2: BEGIN 1.1 without END 1.1");
  CHECK(parse_error("x\n// END 1.1\n") == "file.cpp:2: END 1.1 without BEGIN 1.1");
  CHECK_THAT(parse_error("// TODO(1.1)\n// BEGIN 1.1\n// TODO(1.2)\n// BEGIN 1.2\n"),
             StartsWith("file.cpp:4: BEGIN 1.2 within region 1.1, which began on line 2"));
  CHECK_THAT(parse_error("// TODO(1.1)\n// BEGIN 1.1\n// BEGIN 1.1\n"), StartsWith("file.cpp:3: BEGIN 1.1 within"));
  CHECK_THAT(parse_error("// TODO(1.1)\n// BEGIN 1.1\nx\n// END 1.2\n"),
             StartsWith("file.cpp:4: END 1.2 instead of END 1.1 (BEGIN on line 2)"));
  CHECK(parse_error("// TODO(1.1)\n// BEGIN 1.1\n// END 1.1\n\n// TODO(1.1)\n// BEGIN 1.1\n// END 1.1\n") ==
        "file.cpp:5: region 1.1 is given twice, first on line 1");
  CHECK(parse_error("x\n// BEGIN 1.1\n// END 1.1\n") == "file.cpp:2: BEGIN 1.1 without its TODO(1.1) line");
  CHECK(parse_error("// TODO(1.1)\n// BEGIN 1.2\n// END 1.2\n") == "file.cpp:2: BEGIN 1.2 instead of BEGIN 1.1");
  CHECK(parse_error("\n// TODO(1.1) Do.\nint x;\n// BEGIN 1.1\n") == "file.cpp:2: TODO(1.1) without BEGIN 1.1");
  CHECK(parse_error("\n// TODO(1.1) Do.\n") == "file.cpp:2: TODO(1.1) without BEGIN 1.1");
  CHECK(parse_error("\n// TODO(1.1) Do.\n// TODO(1.2) Do.\n") == "file.cpp:2: TODO(1.1) without BEGIN 1.1");
  CHECK_THAT(parse_error("\n// STUB: return 0;\n"), StartsWith("file.cpp:2: STUB: without a TODO"));
}

TEST_CASE("an id must be N.M") {
  const char* id = GENERATE("1", "1.", "1.1.1", "1.x", "01.1", "1.01", "1,1", "1.1 and more");
  CHECK_THAT(parse_error(fmt::format("\n// TODO({})\n", id)), StartsWith("file.cpp:2: ") && ContainsSubstring(id));
  CHECK_THAT(parse_error(fmt::format("// TODO(1.1)\n// BEGIN {}\n", id)), StartsWith("file.cpp:2: "));
  CHECK_THAT(parse_error(fmt::format("// TODO(1.1)\n// BEGIN 1.1\n// END {}\n", id)), StartsWith("file.cpp:3: "));
  CHECK_THAT(parse_error(fmt::format("// END {}\n", id)), StartsWith("file.cpp:1: "));
}

TEST_CASE("outside a region a marker must have its id") {
  CHECK_THAT(parse_error("// TODO(1.1)\n// BEGIN\n"), StartsWith("file.cpp:2: "));
  CHECK_THAT(parse_error("// END loop\n"), StartsWith("file.cpp:1: "));
}

TEST_CASE("ordinary comments are no markers") {
  const MarkedFile file = parse_marked("file.cpp",
                                       "// TODO(anna) tidy\n// TODO: more\n// BEGIN of the loop\n// ENDING\n"
                                       "/// BEGIN 1.1\nint x;  // BEGIN 1.1\nauto s = \"// END 1.1\";\n"
                                       "// TODO(1.1) Do.\n// BEGIN 1.1\n// END loop\n// END\n// TODO(x)\n// END 1.1\n");
  REQUIRE(file.regions.size() == 1);
  CHECK(file.regions[0].body == std::vector<std::string>{"// END loop", "// END", "// TODO(x)"});
}

TEST_CASE("line ends, byte-order mark, white space after a marker and a missing last line end are tolerated") {
  std::string text = "\xEF\xBB\xBF" + with_crlf(sums_stub);
  text = replaced(text, "// BEGIN 1.1", "//BEGIN  1.1 \t");
  text.resize(text.size() - 2);
  for (const MarkedFile& file : {parse_marked("file.cpp", text), parse_reader("file.cpp", text)}) {
    REQUIRE(file.regions.size() == 2);
    CHECK(file.find("1.1")->body == std::vector<std::string>{"  WORKBOOK_TODO(1.1);"});
    CHECK(file.lines[0] == "#include \"sums.hpp\"");
    CHECK(file.lines.back() == "}");
    CHECK(replace_body(file, "1.1", file.find("1.1")->body) == text);
  }
}

TEST_CASE("an empty file has no regions") {
  CHECK(parse_marked("file.cpp", "").lines.empty());
  CHECK(make_stub(parse_marked("file.cpp", "")).empty());
}

TEST_CASE("the stub keeps the markers and replaces the bodies by TODOs") {
  CHECK(make_stub(solution()) == sums_stub);
  CHECK(make_stub(parse_marked("file.cpp", with_crlf(sums_solution))) == sums_stub);
}

TEST_CASE("the stub of a stub is the stub") {
  std::string text = replaced(sums_stub, "  return 0;\n", "");
  CHECK(make_stub(parse_marked("file.cpp", text)) == text);
}

TEST_CASE("every exercise of a stub is open and none of a solution") {
  const MarkedFile stub = parse_marked("file.cpp", make_stub(solution()));
  for (const Region& region : stub.regions) CHECK(is_open(region));
  for (const Region& region : solution().regions) CHECK_FALSE(is_open(region));
}

TEST_CASE("stub lines keep their indentation and may be empty") {
  const MarkedFile file =
      parse_marked("file.cpp",
                   "    // TODO(1.1) Do.\n    // STUB: if (x) {\n    // STUB:   WORKBOOK_TODO(1.1);\n"
                   "    // STUB:\n    // STUB: }\n    // BEGIN 1.1\n    // END 1.1\n");
  CHECK(stub_body(file.regions[0]) ==
        std::vector<std::string>{"    if (x) {", "      WORKBOOK_TODO(1.1);", "", "    }"});
}

TEST_CASE("stub lines that look like a solution are an error") {
  const std::string text = "\n// TODO(1.1) Do.\n// STUB: return 0;\n// BEGIN 1.1\nreturn 1;\n// END 1.1\n";
  CHECK_THAT(message_of<MarkerError>([&] { make_stub(parse_marked("file.cpp", text)); }), StartsWith("file.cpp:2: "));
}

TEST_CASE("a stub may be code that runs and is wrong: its region is open until WORKBOOK_FIX is taken out") {
  const std::string text =
      "\n// TODO(1.1) Mend.\n// STUB: WORKBOOK_FIX(1.1);\n// STUB: return 2;\n// BEGIN 1.1\nreturn 1;\n// END 1.1\n";
  const std::string stub = make_stub(parse_marked("file.cpp", text));
  CHECK(stub == "\n// TODO(1.1) Mend.\n// BEGIN 1.1\nWORKBOOK_FIX(1.1);\nreturn 2;\n// END 1.1\n");
  CHECK(is_open(parse_reader("file.cpp", stub).regions.at(0)));
  CHECK_FALSE(is_open(parse_reader("file.cpp", replaced(stub, "WORKBOOK_FIX(1.1);\n", "")).regions.at(0)));
}

TEST_CASE("a region is open while it holds a TODO or no code") {
  const char* open = GENERATE("WORKBOOK_TODO(1.1);", "int x; WORKBOOK_TODO (1.1);", "", "  \t", "// later",
                              "/* WORK\n\n IN PROGRESS */ // so", "auto s = \"\\\"\"; WORKBOOK_TODO(1.1);",
                              "auto c = '\"'; WORKBOOK_TODO(1.1);", "int n = 1'000; WORKBOOK_TODO(1.1);",
                              "/* // */ WORKBOOK_TODO(1.1);", "auto s = \"/*\"; WORKBOOK_TODO(1.1);",
                              "auto s = R\"x(\" )\" )x\"; WORKBOOK_TODO(1.1);", "auto c = u'a'; WORKBOOK_TODO\n(1.1);",
                              "WORKBOOK_FIX(1.1);\nreturn 2;");
  CAPTURE(open);
  CHECK(is_open(region(open)));
}

TEST_CASE("a TODO in a comment or a literal does not make a region open") {
  const char* filled = GENERATE("return 1;", "return 1; // WORKBOOK_TODO(1.1);", "// WORKBOOK_FIX(1.1);\nreturn 2;",
                                "/* WORKBOOK_TODO(1.1);\n*/ return 1;", "auto s = \"WORKBOOK_TODO(1.1)\";",
                                "auto s = R\"(\n\" WORKBOOK_TODO(1.1))\";", "return 1; // and \\\nWORKBOOK_TODO(1.1);",
                                "MY_WORKBOOK_TODO(1.1);", "WORKBOOK_TODO_2(1);", "auto s = \"\\\"WORKBOOK_TODO(1.1)\";",
                                "return 1; // it's\n// WORKBOOK_TODO(1.1)", "{}");
  CAPTURE(filled);
  CHECK_FALSE(is_open(region(filled)));
}

TEST_CASE("a graft is the solution with one region of the reader's") {
  const std::string reader = replaced(replaced(sums_stub, "WORKBOOK_TODO(1.1);", "return b + a;"), "twice", "broken");
  const std::string text = graft_of(reader, "1.1");
  CHECK_THAT(text, ContainsSubstring("return b + a;") && !ContainsSubstring("return a + b;"));
  CHECK_THAT(text, ContainsSubstring("const int product = a * b;") && ContainsSubstring("twice"));
  CHECK(compile(text).empty());
}

TEST_CASE("names and lines of any length are read, and comments before a macro's name") {
  const std::string name(1 << 20, 'a'), before = "// TODO(1.1) x\n// BEGIN 1.1\n", after = "// END 1.1\n";
  const MarkedFile given = parse_reader("a.cpp", before + after);
  const auto graft = [&](const std::string& body) {
    return with_bodies(given, parse_reader("a.cpp", before + body + "\n" + after), {"1.1"});
  };
  CHECK(graft("#define " + name + " 1").find("push_macro(\"" + name + "\")") != std::string::npos);
  CHECK(graft("#define /* a *//*/ b */ \\\n  x 1").find("push_macro(\"x\")") != std::string::npos);
  CHECK(graft("#undef/**/y").find("push_macro(\"y\")") != std::string::npos);
  CHECK(graft("int undefined, define2;").find("push_macro") == std::string::npos);
  const MarkedFile long_line = parse_reader("a.cpp", "#include <" + name + ">\n" + before + after);
  CHECK(additions_of(long_line, given).headers.empty());
}

TEST_CASE("a graft needs the region on both sides") {
  CHECK_THAT(message_of<MarkerError>([] { graft_of("int x;\n", "1.1"); }), StartsWith("chapters/01_sums/sums.cpp:1: "));
  CHECK_THAT(message_of<MarkerError>([] { graft_of(sums_stub, "1.3"); }), StartsWith("solutions/01_sums/sums.cpp:1: "));
}

TEST_CASE("the compiler names the reader's line within a grafted region") {
  const std::string above = "// one more line\n\n" + sums_stub;
  const std::string body = GENERATE("int wrong = oops;\n  return wrong;", "/* two\n lines */\n  int wrong = oops;",
                                    "auto s = R\"(\n\n)\";\n  int wrong = oops;",
                                    "const char* s = \"a\\\nb\";\n  int wrong = oops; // ends in \\");
  const std::string reader = replaced(above, "WORKBOOK_TODO(1.1);", body);
  const int line = line_of(reader, "oops");
  const std::string log = compile(graft_of(reader, "1.1"));
  CAPTURE(body, log);
  CHECK_THAT(log, ContainsSubstring(fmt::format("chapters/01_sums/sums.cpp:{}:", line)));
  CHECK_THAT(log, !ContainsSubstring("solutions/01_sums/sums.cpp:1:"));
}

TEST_CASE("the compiler names the solution's line before and after a grafted region") {
  const std::string body = GENERATE("return a + b;", "// several\n\n\n  return a + b; // ends in \\", "");
  const std::string reader = replaced(sums_stub, "WORKBOOK_TODO(1.1);", body);
  for (const char* word : {"int add(int a, int b)", "return 2 * a"}) {
    const std::string broken = replaced(sums_solution, word, std::string("oops ") + word);
    const MarkedFile marked = parse_marked(solution_name, broken);
    const int line = line_of(broken, "oops");
    const std::string log = compile(with_bodies(marked, parse_reader(reader_name, reader), {"1.1"}));
    CAPTURE(body, log);
    CHECK_THAT(log, ContainsSubstring(fmt::format("solutions/01_sums/sums.cpp:{}:", line)));
  }
}

TEST_CASE("a name with quotes and backslashes survives in a graft") {
  const MarkedFile marked = parse_marked("a \"b\" \\c.cpp", sums_solution);
  CHECK_THAT(with_bodies(marked, marked, {"1.1"}), StartsWith("#line 1 \"a \\\"b\\\" \\\\c.cpp\"\n"));
}

TEST_CASE("replacing a body leaves every other byte") {
  const std::string text =
      "\xEF\xBB\xBF" + replaced(with_crlf(sums_stub), "int twice(int a)", "int  twice(int a)\t") + "//";
  const MarkedFile file = parse_reader("file.cpp", text);
  CHECK(replace_body(file, "1.1", {"  return 1;", "  // 2"}) ==
        replaced(text, "  WORKBOOK_TODO(1.1);\r\n", "  return 1;\r\n  // 2\r\n"));
  CHECK(replace_body(file, "1.1", {}) == replaced(text, "  WORKBOOK_TODO(1.1);\r\n", ""));
  CHECK_THROWS_AS(replace_body(file, "1.3", {}), MarkerError);
}

TEST_CASE("the text outside the regions is equal for a solution, its stub and the filled-in stub") {
  const std::string outside = outside_regions(solution());
  const MarkedFile stub = parse_marked("file.cpp", sums_stub);
  CHECK(outside_regions(stub) == outside);
  const std::string filled = replaced(sums_stub, "WORKBOOK_TODO(1.1);", "// BEGINNING\n\n// STUB: x\nreturn a;");
  CHECK(outside_regions(parse_reader("file.cpp", with_crlf(filled))) == outside);
  CHECK(outside_regions(parse_reader("file.cpp", replaced(filled, "// END 1.1", "// END 1.1  "))) == outside);
  CHECK(first_difference(parse_reader("file.cpp", filled), stub) == 0);
}

TEST_CASE("a difference outside the regions is found with the reader's line") {
  const MarkedFile stub = parse_marked("file.cpp", sums_stub);
  const std::string filled = replaced(sums_stub, "WORKBOOK_TODO(1.1);", "int c = a;\n  return c + b;");
  const auto difference = [&](const std::string& text) { return first_difference(parse_reader("f", text), stub); };
  CHECK(difference(replaced(filled, "twice", "thrice")) == 12);
  CHECK(difference(replaced(filled, "// (about 1 line).\n", "")) == 5);
  CHECK(difference(filled + "int more;\n") == 21);
  CHECK(difference("") == 1);
  CHECK(difference(replaced(sums_stub, "  // END 1.2\n}\n", "")) == 16);  // region 1.2 is no region any more
}

TEST_CASE("one broken marker of a reader costs one exercise") {
  const auto found = [](const std::string& from, const std::string& to) {
    const MarkedFile file = parse_reader("file.cpp", replaced(sums_stub, from, to));
    return std::pair(file.find("1.1") != nullptr, file.find("1.2") != nullptr);
  };
  CHECK(found("  // END 1.1\n", "") == std::pair(false, true));
  CHECK(found("  // BEGIN 1.1\n", "") == std::pair(false, true));
  CHECK(found("// END 1.1", "// END 1.2") == std::pair(false, true));
  CHECK(found("// BEGIN 1.1", "// BEGIN 1.1\n// BEGIN 1.1") == std::pair(false, true));
  CHECK(found("// END 1.2", "// END") == std::pair(true, false));
  CHECK(found("// TODO(1.1) Add a and b\n", "") == std::pair(true, true));
}

TEST_CASE("a reader's marker may be within a comment, unless it is also on a separate line") {
  const std::string body = "  O *= factor;  // to BEGIN 4.5";
  for (const char* before : {"  // TODO(4.4) Rescale O and\n  // l (about 3 lines). BEGIN 4.4\n",
                             "  // TODO(4.4) Rescale O (about\n  // 3 lines). BEGIN 4.4 My idea.\n",
                             "  // TODO(4.4) Rescale O (about 3 lines). BEGIN\n  // 4.4 My idea.\n",
                             "  // TODO(4.4) Rescale O. BEGIN 4.4\n"})
    for (const char* after : {"\n  // and no more. END 4.4\n", "\n  // and no more. END\n  // 4.4\n"}) {
      const MarkedFile file = parse_reader("q.cu", before + body + after);
      REQUIRE(file.regions.size() == 1);
      CHECK(file.regions[0].id == "4.4");
      CHECK(file.regions[0].todo_line == 1);
      CHECK(file.regions[0].body == std::vector{body});
    }
  const MarkedFile own = parse_reader("q.cu", "// as in BEGIN 4.4\n// BEGIN 4.4\nO = 1;\n// END 4.4\n");
  REQUIRE(own.regions.size() == 1);
  CHECK(own.regions[0].begin_line == 2);
}

TEST_CASE("a region that occurs twice is rejected") {
  const MarkedFile file = parse_reader("file.cpp", sums_stub + sums_stub);
  CHECK(file.regions.empty());
}

TEST_CASE("a file that is no readable text is named, with its line") {
  const auto damage = [](const std::string& text) {
    const MarkedFile file = parse_reader("file.cpp", text);
    return file.damages.empty() ? "" : file.message(file.damages.front());
  };
  const std::string text = "int a;\n// TODO(1.1) Do.\n// BEGIN 1.1\nint b;\n// END 1.1\n";
  CHECK(damage("").empty());
  CHECK(damage(text).empty());
  CHECK(damage("\xEF\xBB\xBF" + text).empty());
  CHECK(damage("one line\r").empty());
  std::string wide("\xFF\xFE"), wide_big("\xFE\xFF"), old;
  for (const char c : text) {
    wide += c, wide += '\0';
    wide_big += '\0', wide_big += c;
    old += c == '\n' ? '\r' : c;
  }
  for (const std::string& each : {wide, wide_big})
    CHECK(damage(each) == "file.cpp: the file is encoded in UTF-16: save it as UTF-8");
  for (const std::string& start : {std::string("\xFF\xFE\0\0", 4), std::string("\0\0\xFE\xFF", 4)})
    CHECK(damage(start + "i") == "file.cpp: the file is encoded in UTF-32: save it as UTF-8");
  CHECK_THAT(damage(wide.substr(2)), StartsWith("file.cpp:1: this line contains a NUL byte"));
  CHECK_THAT(damage(text + std::string("\0", 1)), StartsWith("file.cpp:6: this line contains a NUL byte"));
  CHECK_THAT(damage(old), StartsWith("file.cpp: the lines end in CR alone"));
}

TEST_CASE("an unresolved git conflict damages the regions that it touches") {
  const std::string first = "// TODO(1.1) Do.\n// BEGIN 1.1\nint a;\n// END 1.1\n",
                    before = "// TODO(1.2) Do.\n// BEGIN 1.2\n", after = "// END 1.2\n",
                    conflict =
                        "<<<<<<< HEAD\nint mine;\n||||||| base\n=======\nWORKBOOK_TODO(1.2);\n>>>>>>> origin/main\n";
  const auto said = [](const std::string& text, const char* id) {
    const MarkedFile file = parse_reader("file.cpp", text);
    const Damage* damage = file.damage_of(id);
    return damage == nullptr ? "" : file.message(*damage);
  };
  const std::string within = first + before + conflict + after;
  CHECK(said(within, "1.1").empty());
  CHECK_THAT(said(within, "1.2"), StartsWith("file.cpp:7: this line is a conflict marker of git"));
  // The conflict may hold the marker lines of both sides, or begin in one region and end in another.
  CHECK_THAT(said(first + "<<<<<<< HEAD\n" + before + after + "=======\n" + before + after + ">>>>>>> x\n", "1.2"),
             StartsWith("file.cpp:5: "));
  const std::string across = "// BEGIN 1.1\n<<<<<<< HEAD\n// END 1.1\n// BEGIN 1.2\n=======\n>>>>>>> x\n// END 1.2\n";
  for (const char* id : {"1.1", "1.2"}) CHECK_THAT(said(across, id), StartsWith("file.cpp:2: "));
  // Between regions it damages none of them, but the file.
  CHECK(said(first + conflict + before + after, "1.2").empty());
  const auto outside = [](const std::string& text) {
    const MarkedFile file = parse_reader("file.cpp", text);
    const Damage* damage = file.damage_outside();
    return damage == nullptr ? "" : file.message(*damage);
  };
  CHECK_THAT(outside(first + conflict + before + after),
             StartsWith("file.cpp:5: this line is a conflict marker of git"));
  CHECK(outside(within).empty());
  CHECK(outside(first + before + after).empty());
  CHECK(said(first + "int x = 1 <<<<<<< 2;\n// ======= a heading\n" + before + after, "1.2").empty());
}
