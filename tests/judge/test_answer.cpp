// The rules for answers: whether a region stays in its function, additions between given lines, the names it uses, the
// other answers it calls, and what its object file defines and calls.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/book/files.hpp"
#include "common/book/manifest.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/judge/allowed.hpp"
#include "common/judge/object.hpp"
#include "common/judge/plan.hpp"
#include "common/worker/build.hpp"
#include "common/worker/command.hpp"
#include "common/worker/sanitizers.hpp"
#include "tests/book/fixtures/temporary_book.hpp"
#include "tests/judge/other_words.hpp"

using namespace workbook;
using namespace workbook::judge;
namespace fs = std::filesystem;

namespace {

const book::Book& the_book() {
  static const book::Book book = book::load_book(WORKBOOK_SOURCE);
  return book;
}

/// A file with one region.
std::string around(const std::string& body) {
  return "#include <cmath>\nint f(int a = 0, const int* b = nullptr);\nvoid g();\nnamespace ch02 {\nint h() {\n  // "
         "TODO(2.1) x\n  // BEGIN 2.1\n" +
         body + "\n  // END 2.1\n}\n}  // namespace ch02\n/* a comment */\n#if 1\nint later;\n#endif\n";
}

/// Compiles a source, answer.cpp in this folder, as answers of the CPU are.
worker::CommandResult compile(const book::TemporaryFolder& folder, const std::string& source,
                              const std::vector<std::string>& more) {
  folder.write("answer.cpp", source);
  const worker::Toolchain toolchain = worker::load_toolchain(WORKBOOK_BINARY, WORKBOOK_SOURCE);
  std::vector<std::string> words = toolchain.backends.at(Backend::cpu).compile;
  words.insert(words.end(), {"-I", WORKBOOK_SOURCE, "-I", WORKBOOK_SOURCE "/solutions/02_online_softmax", "-w",
                             (folder / "answer.cpp").string()});
  words.insert(words.end(), more.begin(), more.end());
  return worker::run_command(words);
}

/// What the compiler says of a source; empty: it compiles.
std::string compiled(const std::string& source, std::vector<std::string> more = {"-fsyntax-only"},
                     const std::string& file = "") {
  const book::TemporaryFolder folder;
  if (!file.empty()) more.insert(more.end(), {"-o", (folder / file).string()});
  const worker::CommandResult result = compile(folder, source, more);
  if (result.exit_code != 0) return result.output.empty() ? "it does not compile" : result.output;
  return file.empty() ? "" : folder.read(file);
}

book::MarkedFile parsed(const std::string& text) {
  return book::parse_reader("answer.cpp", text);
}

/// The file with this body, as it is compiled.
std::string with_body(const std::string& body) {
  return book::with_bodies(parsed(around("return 1;")), parsed(around(body)), {"2.1"}, "token");
}

void skip_if_sanitized() {
  if (worker::kSanitized) SKIP("a sanitizer adds to every object file");
}

/// What is refused, a line each.
std::string whats(const std::vector<Refusal>& refused) {
  std::string text;
  for (const Refusal& one : refused) text += one.what + "\n";
  return text;
}

/// What the object file of a source may not have.
std::string refused(const std::string& source, std::vector<std::string> more = {}) {
  const book::TemporaryFolder folder;
  more.insert(more.end(), {"-c", "-o", (folder / "answer.o").string()});
  const worker::CommandResult compiled = compile(folder, source, more);
  INFO(source << compiled.output);
  REQUIRE(compiled.exit_code == 0);
  return whats(refused_in_object(folder / "answer.o", {}));
}

}  // namespace

TEST_CASE("a region that leaves its function does not compile, however it is written") {
  const auto [body, why] = GENERATE(table<std::string, std::string>({
      {"return 1; } int other() {", "closes_what_it_opens"},
      {"return 1; %> int other() <%", "closes_what_it_opens"},
      {"return 1;\n#define END }\nEND int other() {", "closes_what_it_opens"},
      {"return 1;\n#if 0\n{\n#endif\n} int other() {", "closes_what_it_opens"},
      {"#if 1\nreturn 1;\n", "#if"},
      {"#if 0\nreturn 1;\n", "#if"},
      {"return 1;\n#endif\n", "#endif without #if"},
      {"return 1; /* ", "does not end there"},
      {"return 1; auto s = R\"x(", "raw string"},
      {"return (1;", "expected"},
      {"return f(b[1);", ""},
      {"const char c = '\"'; return 1; } int other() { const char d = '\"';", "closes_what_it_opens"},
  }));
  INFO(body);
  const std::string said = compiled(with_body(body));
  INFO(said);
  CHECK(!said.empty());
  CHECK(said.find(why) != std::string::npos);
}

// That the book's own answers stay in their regions, each of its mutants proves: they are compiled so.
TEST_CASE("no region of the book is in a constexpr function, where a call may happen at compile time") {
  for (const book::Chapter& chapter : the_book().chapters) {
    for (const book::MarkedFile& file : book::read_solution(the_book(), chapter)) {
      for (const book::Region& region : file.regions) {
        // What holds it begins at the last line before it without indentation, or that line's template.
        int line = region.begin_line - 1;
        const auto begins = [](const std::string& text) {
          return !text.empty() && text[0] != ' ' && text[0] != '/' && text.find('(') != std::string::npos;
        };
        while (line > 0 && !begins(file.lines[std::size_t(line)])) --line;
        INFO(file.name << " " << region.id << ": " << file.lines[line]);
        CHECK(file.lines[line].find("constexpr") == std::string::npos);
        CHECK(file.lines[line].find("consteval") == std::string::npos);
      }
    }
  }
}

TEST_CASE("an answer that stays in its region compiles, with its macros, comments and texts") {
  const std::string body = GENERATE(
      "return 1;", "if (later_one()) { return f(1); } return 0;", "// } and /* in a comment\nreturn 1;",
      "const char* s = \"}\"; char c = '}'; auto r = R\"(})\"; return s && c && r;",
      "#define SQUARE(x) ((x) * (x))\nreturn SQUARE(2);", "#define f(x) 1\n#define later 7\nreturn f(2);",
      "#if 0\nIt's prose, isn't it? {\n#endif\nreturn 1;", "#define BRACE {\nif (f(1)) BRACE return 1; }\nreturn 0;",
      "// ends in a backslash \\", "int n = 1'000; return n < 2 ? 1 : 0;", "return 1'0; /*' } int other() { // */");
  INFO(body);
  CHECK(compiled("int later_one();\n" + with_body(body)) == "");
}

TEST_CASE("several files of one source may have additions") {
  std::string source;
  for (const std::string name : {"ring", "phases"}) {
    const book::MarkedFile given = book::parse_reader(name + ".hpp", fmt::format("int {};\n", name)),
                           reader = book::parse_reader(name + ".hpp", fmt::format("int own_{0};\nint {0};\n", name));
    REQUIRE(book::additions_of(reader, given).blocks.size() == 1);
    source += book::with_additions(given, book::additions_of(reader, given), reader, "token");
  }
  CHECK(compiled(source + "int both() { return own_ring + own_phases; }\n") == "");
}

TEST_CASE("additions between given lines are kept at their position; given lines do not change") {
  const std::string given = around("return 1;");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = given;
    return text.replace(text.find(from), from.size(), to);
  };
  const auto added = [&](const std::string& text) { return book::additions_of(parsed(text), parsed(given)); };
  const auto says = [&](const std::string& text) {
    return compiled(book::with_additions(parsed(given), added(text), parsed(text), "token"));
  };
  CHECK(added(given).blocks.empty());
  CHECK(added(given).changed_line == 0);
  const std::string helper =
      with("namespace ch02 {",
           "#include <time.h>\nnamespace mine { int twice(int a) {\n  return 2 * a;\n} }\nnamespace ch02 {");
  CHECK(added(helper).headers == std::vector<std::string>{"<time.h>"});
  REQUIRE(added(helper).blocks.size() == 1);
  CHECK(added(helper).blocks[0].line == 4);
  CHECK(says(helper) == "");
  CHECK(says(with("int later;", "int later;\nint own;\n#define HALF(x) ((x) / 2)")) == "");
  CHECK(says(with("#include <cmath>", "#include <no_such_header>\n#include <cmath>")) == "");
  // Within a function, outside a namespace, after an open comment: none of these is between functions.
  CHECK(says(with("  // TODO(2.1) x", "  return 7;\n  // TODO(2.1) x")) != "");
  CHECK(says(with("int later;", "/*\nint later;")) != "");
  CHECK(says(with("int later;", "#if 0\nint later;")) != "");
  // A missing or changed given line is restored.
  const std::string rewrapped =
      with("int f(int a = 0, const int* b = nullptr);", "int f(int a = 0,\n      const int* b = nullptr);");
  CHECK(added(rewrapped).blocks.empty());
  CHECK(added(rewrapped).changed_line == 2);
}

TEST_CASE("names that an answer may not use are found after preprocessing, and no others") {
  const auto more = [&](const std::string& source) {
    const std::string before = compiled("#include <cmath>\n#include <vector>\n", {"-E"}, "answer.ii");
    const std::string after = compiled("#include <cmath>\n#include <vector>\n" + source, {"-E"}, "answer.ii");
    return whats(more_than(refused_names(after), refused_names(before)));
  };
  const auto [source, what] = GENERATE(table<std::string, std::string>({
      {"void f() { asm(\"nop\"); }", "uses asm (inline assembly)"},
      {"#define PASTE(a, b) a##b\nvoid f() { PASTE(a, sm)(\"nop\"); }", "uses asm"},
      {"auto c = 1'0; /*' */ void f() { __asm__(\"nop\"); } // '", ""},
      {"void __tsan_read4(void*);", "callbacks"},
      {"__attribute__((no_sanitize(\"thread\"))) void f();", "hides code"},
      {"[[gnu::no_sanitize_thread]] void f();", "hides code"},
      {"namespace mine {\n#include \"" WORKBOOK_SOURCE "/tests/worker/fixtures/before_main.cpp\"\n}",
       "before_main.cpp"},
      {"void f(char* a, char* b) { __builtin_memcpy(a, b, 4); }", "does not record"},
      {"void f() { __builtin_ia32_loadlps({}, nullptr); }", "does not record"},
      {"unsigned long f(char* a) { return __builtin_object_size(a, 0); }", "a construct outside standard C++"},
      {"extern \"C\" void mine();\n#pragma redefine_extname mine _Zmine\n", "uses _Zmine"},
      {"int section = 1, alias = section, constructor = alias;", ""},
      {"// asm, __tsan_read4 and no_sanitize in a comment\n#if 0\nasm\n#endif\n#define asm_of_mine 1\n", ""},
      {"#pragma GCC optimize(\"O2\")\n#pragma omp simd\n#define TEXT(x) #x\nconst char* s = TEXT(a + b);", ""},
  }));
  INFO(source);
  const std::string found = more(source);
  if (what.empty() && source.find("1'0") == std::string::npos) CHECK(found == "");
  CHECK(found.find(what) != std::string::npos);
}

TEST_CASE("a compiled answer may define names, call the standard library and use the book's types") {
  skip_if_sanitized();
  for (const test::Style& style : test::honest_styles()) {
    if (style.where == test::Where::kernels) continue;
    INFO(style.body);
    CHECK(refused(
              fmt::format("{0}\n#include \"common/attention/matrix.hpp\"\n#include \"common/cuda/todo.hpp\"\n#include "
                          "<cassert>\n{1}\nint helper(int a) {{ return a; }}\nnamespace ch02 {{\nfloat total;\nvoid "
                          "f(workbook::Matrix<float> m) {{\n  total += std::exp(m(0, 0));\n  if (total > 7) "
                          "WORKBOOK_TODO(2.1);\n{2}\n}}\n}}\n",
                          "#include <cmath>\n#include <vector>", style.between, style.body)) == "");
  }
}

TEST_CASE("a compiler that checks the C library's buffers by itself makes no answer a wrong one") {
  skip_if_sanitized();
  const std::string source =
      "#include <cstdio>\n#include <cstring>\nnamespace ch02 {\nvoid f(char* to, const char* from, unsigned long n) "
      "{\n  char own[64];\n  std::memcpy(own, from, n);\n  std::snprintf(to, n, \"%s\", own);\n  "
      "std::printf(\"%s\", to);\n}\n}\n";
  CHECK(refused(source, {"-D_FORTIFY_SOURCE=2"}) == "");
  CHECK(refused("extern \"C\" int __open_chk(int);\nnamespace ch02 { int f() { return __open_chk(1); } }\n")
            .find("calls __open_chk") != std::string::npos);
}

struct Refused {
  const char *source, *what, *instead = "";
};
const Refused kRefused[] = {
    {"extern \"C\" long send(int, const void*, unsigned long, int) { return 0; }\n", "defines send"},
    {"extern \"C\" long recv(int, void*, unsigned long, int);\nnamespace ch02 { long f() { return recv(3, 0, 0, 0); "
     "} }\n",
     "calls recv"},
    {"extern \"C\" int mprotect(void*, unsigned long, int);\nnamespace ch02 { int f() { return mprotect(0, 0, 7); } "
     "}\n",
     "calls mprotect"},
    {"#include <unistd.h>\nnamespace ch02 { void f() { ::_exit(0); } }\n", "calls _exit"},
    {"extern \"C\" void* sbrk(long);\nnamespace ch02 { void* f() { return sbrk(9); } }\n", "calls sbrk"},
    {"#include <cstdlib>\nnamespace ch02 { int f() { return std::system(\"id\"); } }\n", "calls system",
     "files and processes are not"},
    {"namespace ch02 { float kept[32 * 1024]; }\n", "reserves 131072 bytes", "store the data in local variables"},
    {"double kept[32 * 1024] __attribute__((common));\n", "reserves 262144 bytes"},
    {"namespace ch02 { thread_local float kept[32 * 1024]; float* f() { return kept; } }\n", "reserves 131072 bytes"},
    {"#include <cfenv>\nnamespace ch02 { int f() { return std::fesetround(FE_UPWARD); } }\n", "calls fesetround"},
    {"void* operator new(unsigned long) { return nullptr; }\n", "defines operator new"},
    {"namespace workbook::worker { __attribute__((used)) inline bool send_message(int) { return true; } }\n",
     "defines workbook::worker::send_message"},
    {"namespace workbook::cuda { struct Operations { static int add(); }; }\nnamespace ch02 { int f() { return "
     "workbook::cuda::Operations::add(); } }\n",
     "calls workbook::cuda::Operations::add"},
    {"namespace workbook::cuda { unsigned long take_peak_bytes(); void start_trace(); }\nnamespace ch02 { unsigned "
     "long f() { "
     "workbook::cuda::start_trace(); return workbook::cuda::take_peak_bytes(); } }\n",
     "calls workbook::cuda::start_trace", "call the functions that the lesson names; the rest"},
    {"namespace simt { struct Options; Options& options(); }\nnamespace ch02 { void* f() { return &simt::options(); "
     "} }\n",
     "calls simt::options", "call the functions that the lesson names; the simulator"},
    {"namespace workbook { struct Problem; int forward_oracle(const Problem&) { return 1; } }\n",
     "defines workbook::forward"},
    {"int main() { return 0; }\n", "defines main", "choose another name"},
    {"namespace ch02 { int n; __attribute__((constructor(50))) void f() { ++n; } }\n", "before or after main"},
    {"namespace ch02 { int n; __attribute__((destructor)) void f() { ++n; } }\n", "before or after main"},
    {"namespace ch02 { __attribute__((section(\".preinit_array\"), used)) void (*f)() = nullptr; }\n",
     "before or after main"},
    {"namespace ch02 { __attribute__((section(\".text\"))) extern const unsigned char code[2] = {15, 5}; }\n",
     "data in a code section"},
    {"namespace ch02 { __attribute__((section(\".mine\"))) int f() { return 1; } }\n", "a section of its own",
     "remove the attribute"},
    {"extern \"C\" { static void* pick() { return nullptr; } void chosen() __attribute__((ifunc(\"pick\"))); }\n",
     "at load time"},
    {"static void f() __attribute__((weakref(\"send\")));\nnamespace ch02 { void g() { f(); } }\n", "calls send"},
    {"__asm__(\".symver ours, send@GLIBC_2.2.5\");\nextern \"C\" void ours();\nnamespace ch02 { void g() { ours(); } "
     "}\n",
     "send"},
    {"#include <vector>\ntemplate <> void std::vector<char>::push_back(const char&) {}\n", "defines std::vector"},
    {"#include <thread>\nnamespace ch02 { void f() { std::thread([] {}).detach(); } }\n", "thread",
     "run in the thread that calls your function"},
    {"#include <fstream>\nnamespace ch02 { bool f() { return bool(std::ifstream(\"x\")); } }\n", "filebuf"},
    {"extern \"C\" void _ZN8workbook4cuda11start_traceEv();\nnamespace ch02 { void f() { "
     "_ZN8workbook4cuda11start_traceEv(); } }\n",
     "calls workbook::cuda::start_trace"},
    {"long f() __asm__(\"send\");\nnamespace ch02 { long g() { return f(); } }\n", "calls send"},
};

// The message says what to write instead, in the words of the students' page.
TEST_CASE("a compiled answer that replaces, calls or starts anything else is refused, with the alternative") {
  skip_if_sanitized();
  const Refused row = GENERATE(from_range(std::begin(kRefused), std::end(kRefused)));
  INFO(row.source);
  const book::TemporaryFolder folder;
  const fs::path answer = folder / "answer.cpp", object = folder / "answer.o";
  REQUIRE(compile(folder, row.source, {"-c", "-o", object.string()}).exit_code == 0);
  const std::string all = whats(refused_in_object(object, {}));
  INFO(all);
  CHECK(all.find(row.what) != std::string::npos);
  worker::WorkerJob job;
  job.sources = {answer};
  worker::WorkerBuilt built;
  built.objects[answer] = object;
  const NameCounts none;
  const std::string said = not_allowed(
      {}, job, built, [&](const fs::path&, const ObjectRules& rules) { return inspect(object, rules); },
      [&](const fs::path&) -> auto& { return none; });
  INFO(said);
  REQUIRE(said.starts_with("answer.cpp: your compiled code "));
  CHECK(said.find(row.instead) != std::string::npos);
  const std::string remedy = said.substr(said.find("answer: ") + 8, said.find('\n') - said.find("answer: ") - 8);
  CHECK(book::read_file(fs::path(WORKBOOK_SOURCE) / "notes/allowed.md").find(remedy) != std::string::npos);
}

TEST_CASE("refused code is named by its line if the compiler reports the line") {
  skip_if_sanitized();
  const auto [source, said] = GENERATE(table<std::string, std::string>({
      {"extern \"C\" int socket(int, int, int);\nnamespace ch02 {\nint f(int a) {\n  return socket(a, 1, 0) + "
       "a;\n}\n}\n",
       "chapters/02_x/x.cpp:34: your compiled code calls socket,"},
      {"void f() {\n  asm(\"nop\");\n}\n", "chapters/02_x/x.cpp:32: your compiled code uses asm "},
      {"#define PASTE(a, b) a##b\n/* a\ncomment */ void f() {\n  PASTE(a, sm)(\"nop\");\n}\n",
       "chapters/02_x/x.cpp:34: your compiled code uses asm "},
      {"unsigned long f(char* a) {\n  return __builtin_object_size(a, 0);\n}\n",
       "chapters/02_x/x.cpp:32: your compiled code uses __builtin_object_size (a construct outside standard C++), "
       "which is not allowed in an answer: write one implementation for all cases, and call functions by their C++ "
       "names"},
      {"#include <fstream>\nvoid f() {\n  std::ofstream(\"x\") << 1;\n}\n",
       "chapters/02_x/x.cpp:33: your compiled code opens a file (std::ifstream, std::ofstream, std::fstream), which is "
       "not allowed in an answer: work on the arguments alone; printing is allowed, files and processes are not"},
      {"static int strange() { return 1; }\nint main() { return strange(); }\n",
       "chapters/02_x/x.cpp:32: your compiled code defines main,"},
      {"extern \"C\" int socket(int, int, int);\n#line 77 \"chapters/02_x/x.hpp\"\ntemplate <class T>\nT f(T a) {\n  "
       "return socket(a, 1, 0) + a;\n}\n#line 2 \"chapters/02_x/x.cpp\"\ntemplate int f(int);\n",
       "chapters/02_x/x.hpp:79: your compiled code calls socket,"},
      {"int kept[50000];\nint* f() { return kept; }\n", "answer.cpp: your compiled code reserves "},
  }));
  const book::TemporaryFolder folder;
  const fs::path answer = folder / "answer.cpp", object = folder / "answer.o";
  const worker::CommandResult compiled = compile(folder, "#line 31 \"chapters/02_x/x.cpp\"\n" + source,
                                                 {"-save-temps=obj", "-gdwarf-4", "-c", "-o", object.string()});
  INFO(compiled.output);
  REQUIRE(compiled.exit_code == 0);
  worker::WorkerJob job;
  job.sources = {answer};
  worker::WorkerBuilt built;
  built.objects[answer] = object;
  worker::Toolchain toolchain;
  toolchain.root = fs::current_path();  // where the compiler worked
  const NameCounts none;
  CHECK_THAT(
      not_allowed(
          toolchain, job, built, [&](const fs::path&, const ObjectRules& rules) { return inspect(object, rules); },
          [&](const fs::path&) -> auto& { return none; }),
      Catch::Matchers::ContainsSubstring(said));
}

TEST_CASE("a stage or operations may call what the book's own object of this source calls, and nothing else") {
  skip_if_sanitized();
  const std::string
      kernel = "namespace simt { void clear_launches(); }\n",
      operation = "namespace workbook::cuda { void begin_chapter(); }\nvoid f() { workbook::cuda::begin_chapter(); }\n";
  const book::TemporaryFolder folder;
  const auto object = [&](const std::string& name, const std::string& source) {
    REQUIRE(compile(folder, source, {"-c", "-o", (folder / name).string()}).exit_code == 0);
    return folder / name;
  };
  const ObjectRules rules{.kernels = true, .books = names_in(object("book.o", operation))};
  CHECK(refused_in_object(object("own.o", operation), rules).empty());
  CHECK(whats(refused_in_object(object("own.o", kernel + operation + "void g() { simt::clear_launches(); }\n"),
                                rules)) == "calls simt::clear_launches()\n");
  // An inline function of its own would be called by the program, too.
  ObjectRules taken = rules;
  taken.taken = {"_ZN4simt14clear_launchesEv"};
  const std::string own = "namespace simt {\n__attribute__((used)) inline void clear_launches() {}\n}\n";
  CHECK(whats(refused_in_object(object("own.o", own + operation), taken)) == "defines simt::clear_launches()\n");
  const std::string clock =
      "#include <chrono>\n__attribute__((used)) inline std::chrono::steady_clock::time_point "
      "std::chrono::steady_clock::now() noexcept { return {}; }\n";
  CHECK(whats(refused_in_object(object("own.o", clock), {})) == "defines std::chrono::_V2::steady_clock::now()\n");
}

TEST_CASE("a macro of an answer may not change what the book's own files say") {
  const auto names = [](const std::string& source, const std::string& answer, const std::string& given) {
    return refused_names(
        fmt::format("# 0 \"chapters/04_x/{0}\"\n# 1 \"chapters/04_x/x.hpp\" 1\n{1}\n"
                    "# 2 \"chapters/04_x/{0}\" 2\n{2}\n# 1 \"common/y.hpp\" 1\nint y;\n",
                    source, answer, given));
  };
  const NameCounts book = names("stage.cu", "", "run(f);");
  CHECK(more_than(names("stage.cu", "int own;\n\n", "run(f);"), book).empty());
  CHECK(whats(more_than(names("stage.cu", "", "run(own);"), book)) ==
        "changes given code (a macro of an answer changes it)\n");
  CHECK(more_than(names("x.cu", "", "run(own);"), names("x.cu", "", "run(f);")).empty());
}

TEST_CASE("a kernel file calls no function of a file without kernels") {
  skip_if_sanitized();
  const book::TemporaryFolder folder;
  worker::WorkerJob job;
  worker::WorkerBuilt built;
  const auto compiled = [&](const std::string& name, const std::string& source) {
    const std::string object = (folder / (name + ".o")).string();
    REQUIRE(compile(folder, source, {"-c", "-o", object}).exit_code == 0);
    job.sources.emplace_back(name);
    built.objects[name] = object;
  };
  const NameCounts none;
  const auto said = [&] {
    return not_allowed(
        {}, job, built,
        [&](const fs::path& source, ObjectRules rules) {
          rules.taken = names_taken(rules.host_objects);
          return inspect(built.objects.at(source), rules);
        },
        [&](const fs::path&) -> auto& { return none; });
  };
  compiled("x.cpp", "namespace ch07 {\nint of_host(int a) { return a; }\nint other() { return of_host(1); }\n}\n");
  compiled("x.cu", "namespace ch07 {\nint of_kernels(int);\nint f(int a) { return of_kernels(a); }\n}\n");
  CHECK(said() == "");
  compiled("y.cu", "namespace ch07 {\nint of_host(int);\nint g(int a) { return of_host(a); }\n}\n");
  CHECK(
      said().starts_with("y.cu: your compiled code calls ch07::of_host(int), which is not allowed in an answer: call"));
  job.sources = {"y.cu"};
  fs::rename(folder / "x.cpp.o", folder / "kept.0.cpp.o");
  built.objects.erase("x.cpp");
  job.libraries = {(folder / "kept.0.cpp.o").string()};
  CHECK(said().starts_with("y.cu: your compiled code calls ch07::of_host(int)"));
}

TEST_CASE("an invalid or damaged object file is refused") {
  const book::TemporaryFolder folder;
  folder.write("none.o", "not an object file");
  folder.write("cut.o", std::string("\x7f"
                                    "ELF\x02\x01\x01\0",
                                    8) +
                            std::string(60, '\x7f'));
  CHECK(!refused_in_object(folder / "none.o", {}).empty());
  CHECK(!refused_in_object(folder / "cut.o", {}).empty());
}

TEST_CASE("a student's object file is read in a separate process, which it may crash") {
  skip_if_sanitized();
  const std::vector<std::string> program{WORKBOOK_BINARY "/bin/workbook_inspect"};
  const book::TemporaryFolder folder;
  const std::string object = (folder / "answer.o").string();
  const auto inspected = [&](const std::string& source) {
    REQUIRE(compile(folder, source, {"-save-temps=obj", "-c", "-o", object}).exit_code == 0);
    return inspect(program, object, {}, "", {});
  };
  const Inspected refused =
      inspected("extern \"C\" int recv(int);\nnamespace ch02 {\nint f() { asm(\"\"); return recv(1); }\n}\n");
  CHECK(whats(refused.refused) == "calls recv\n");
  CHECK(refused.names.at("asm").count == 1);
  CHECK(inspected("namespace ch02 {\nint f() { return 1; }\n}\n").refused.empty());
  fs::remove(folder / "answer.ii");
  fs::create_directory(folder / "answer.ii");  // as a file that memory cannot hold, it ends the program
  CHECK(whats(inspect(program, object, {}, "", {}).refused) == "takes too much memory or time to check\n");
  fs::remove(folder / "answer.ii");
  book::write_file(object, "no object file");
  CHECK(whats(inspect(program, object, {}, "", {}).refused).find("cannot be read") != std::string::npos);
}

TEST_CASE("definitions of the program around an answer are accepted, inline functions of kernel headers are not") {
  const worker::Toolchain toolchain = worker::load_toolchain(WORKBOOK_BINARY, WORKBOOK_SOURCE);
  if (!toolchain.can_build(Backend::sim)) SKIP(toolchain.why_not(Backend::sim));
  worker::build_targets(toolchain, toolchain.backends.at(Backend::sim).targets);
  const ObjectRules rules{true, false, names_taken(toolchain.backends.at(Backend::sim).objects)};
  const book::TemporaryFolder folder;
  folder.write("answer.cpp",
               "namespace simt {\n__attribute__((used)) inline float exp2_ftz(float x) { return x; }\n"
               "__attribute__((used)) inline bool in_kernel() { return true; }\n"
               "__attribute__((used)) inline void run_blocks() {}\n}\n"
               "__attribute__((used)) inline int __popc(unsigned) { return 1; }\n"
               "__attribute__((used)) inline int helper(unsigned) { return 1; }\n");
  const std::string object = (folder / "answer.o").string();
  const worker::CommandResult compiled = worker::run_command(
      {toolchain.backends.at(Backend::cpu).compile.at(0), "-c", (folder / "answer.cpp").string(), "-o", object});
  REQUIRE(compiled.exit_code == 0);
  CHECK(whats(refused_in_object(object, rules)) == "defines simt::in_kernel()\n");
}

TEST_CASE("code of kernels may call no C function that moves data unseen") {
  skip_if_sanitized();
  const book::TemporaryFolder folder;
  const fs::path object = folder / "answer.o";
  REQUIRE(
      compile(folder,
              "#include <cstdlib>\n#include <cstring>\nnamespace ch02 {\nvoid f(char* a, const char* b, unsigned long "
              "n) {\n  std::memcpy(a, b, n);\n  mempcpy(a, b, n);\n  std::strncpy(a, b, n);\n}\n}\n",
              {"-c", "-o", object.string()})
          .exit_code == 0);
  CHECK(refused_in_object(object, {}).empty());
  CHECK(whats(refused_in_object(object, {.kernels = true})) == "calls mempcpy\ncalls strncpy\n");
}

TEST_CASE("code of kernels may call no function that reads or writes memory unseen, and has no variables of its own") {
  skip_if_sanitized();
  const book::TemporaryFolder folder;
  const fs::path object = folder / "answer.o";
  const auto refused = [&](const std::string& body) {
    const std::string source =
        "#include <cmath>\n#include <cstdlib>\n#include <cstring>\n#include <exception>\n#include <iostream>\n"
        "namespace ch04 {\n" +
        body + "\n}\n";
    REQUIRE(compile(folder, source, {"-O1", "-fno-builtin", "-c", "-o", object.string()}).exit_code == 0);
    CHECK(refused_in_object(object, {}).empty());
    return whats(refused_in_object(object, {.kernels = true}));
  };
  CHECK(refused("float f(float a, float b, int* c) { return remquof(a, b, c); }") == "calls remquof\n");
  CHECK(refused("int f(const char* a, const char* b) { return memcmp(a, b, 4); }") == "calls memcmp\n");
  CHECK(refused("int f(int a) { srand(a); return 1; }") == "calls srand\n");
  CHECK(refused("std::exception_ptr f() { return std::current_exception(); }") == "calls std::current_exception()\n");
  CHECK(refused("static float kept[4];\nfloat* f(int i) { return kept + i; }") ==
        "declares a static variable that is not constant: ch04::kept\n");
  CHECK(refused("float* f() { static float once = 1; return &once; }") ==
        "declares a static variable that is not constant: ch04::f()::once\n");
  CHECK(refused("float f(float a, int b) { return std::fma(std::exp2(a), std::ldexp(a, b), std::sqrt(a)); }").empty());
  CHECK(refused("constexpr float table[2] = {1, 2};\nconst float* f(int i) { return table + i; }\n"
                "void g(float a) { std::cout << a << std::endl; }")
            .empty());
  CHECK(refused("long double f(long double a, long double* b) { return modfl(a, b); }") == "calls modfl\n");
  CHECK(refused("extern \"C\" void* __memcpy_chk(void*, const void*, unsigned long, unsigned long);\n"
                "void f(void* a, void* b) { __memcpy_chk(a, b, 4, 4); }") == "calls __memcpy_chk\n");
  CHECK(refused("extern \"C\" int __printf_chk(int, const char*, ...);\nint f(const char* a) {\n"
                "  return __printf_chk(1, \"%s\", a) + fprintf(stdout, \"%s%m\", a);\n}") ==
        "calls __printf_chk\ncalls fprintf\n");
  CHECK(refused("void f(void (*a)()) { std::set_terminate(a); }") == "calls std::set_terminate(void (*)())\n");
  CHECK(refused("struct Own : std::streambuf {};\nvoid f() { Own own; }").find("streambuf") != std::string::npos);
  CHECK(refused("int f() {\n  try {\n    throw std::bad_exception();\n  } catch (const std::exception&) {\n"
                "    return 1;\n  }\n}")
            .empty());
  CHECK(refused("thread_local float shared[4];\nfloat* f(int i) { return shared + i; }").empty());
}

TEST_CASE("code of kernels contains no access that the compiler does not instrument") {
  skip_if_sanitized();
  const auto refused = [](const std::string& body) {
    const book::TemporaryFolder folder;
    const fs::path object = folder / "answer.o";
    std::vector<std::string> flags{"-fsanitize=thread", "-fno-elide-constructors", "-c", "-o", object.string()};
    flags.insert(flags.end(), kChecked.begin(), kChecked.end());
    const worker::CommandResult compiled = compile(folder,
                                                   "#include <new>\n#include <stdexcept>\nnamespace ch04 {\n"
                                                   "struct Pair { float a, b; };\nstruct Row { float v[8]; };\n"
                                                   "template <class T, int n> struct Both { Pair x, y; };\n"
                                                   "Pair pair(float);\nRow row(float);\nvoid take(Pair);\n"
                                                   "void any(const char*, ...);\nvoid call(void (*)());\n" +
                                                       body + "\n}\n",
                                                   flags);
    INFO(compiled.output);
    REQUIRE(compiled.exit_code == 0);
    return whats(inspect(object, {.kernels = true}).refused);
  };
  const auto [body, what] = GENERATE(table<std::string, std::string>({
      {"void f(Pair* p) { new (p) Pair(pair(1)); }", "in ch04::f"},
      {"void f(Row* p) { new (p) Row(row(1)); }", "in ch04::f"},
      {"void f(int i) { static thread_local Pair tile[32]; new (&tile[i]) Pair(pair(1)); }", "in ch04::f"},
      {"thread_local Row outer;\nvoid f() { any(\")\", outer, &f); }", "in ch04::f"},
      {"void f(Both<int, 2>* p) { any(\"(\\\"\", p->y); }", "in ch04::f"},
      {"void f(Pair* p) { any(\"\", *p, 1); }", "in ch04::f"},
      {"struct Own {\n  Pair p;\n  __attribute__((noinline)) Own() : p(pair(1)) {}\n};\nvoid f(void* p) { new (p) Own; "
       "}",
       "in ch04::Own::Own"},
      {"float f(int i) { static const thread_local float tile[32] = {}; return tile[i]; }",
       "declares a constant in shared memory: const float tile [32]"},
      {"void g();\nvoid f(Pair* p) { *p = pair(1); take(*p); take(pair(2)); call(g); call(&g); }", ""},
      {"float f(int i) { Pair p[2] = {pair(1), pair(2)}; any(\"\", p[i], p); take(p[1]); return p[i].a; }", ""},
      {"Both<int, 2> f(int i) { if (i > 7) throw std::runtime_error(\"\"); return {pair(1), pair(2)}; }", ""},
      {"const Pair table[] = {{1, 2}, {3, 4}};\nPair f(int i) { take(table[i]); return table[1 - i]; }", ""},
      {"void f(Both<int, 2> b, Pair* p) { *p = b.y; any(\"\", b.x); [&] { b.y = pair(2); }(); take(b.y); }", ""},
  }));
  INFO(body);
  const std::string said = refused(body);
  INFO(said);
  CHECK((what.empty() ? said.empty() : said.find(what) != std::string::npos));
}

TEST_CASE("the book's answers contain nothing that an answer may not contain") {
  skip_if_sanitized();
  // Handed in, they have to get their points. What they are compiled from and by is what the gate "solutions" builds.
  Workspace workspace;
  workspace.book = the_book();
  workspace.toolchain = worker::load_toolchain(WORKBOOK_BINARY, WORKBOOK_SOURCE);
  std::vector<worker::WorkerJob> jobs;
  for (const book::Chapter& chapter : workspace.book.chapters) {
    for (const Backend backend : {Backend::cpu, Backend::sim}) {
      if (chapter.runs_on(backend) && workspace.toolchain.can_build(backend))
        jobs.push_back(whole_job(workspace, chapter, solutions_tree(workspace, chapter), backend));
    }
  }
  const auto built = worker::build_workers(workspace.toolchain, jobs);
  int judged = 0;
  for (const worker::WorkerJob& job : jobs) {
    INFO(job.name << "\n" << built.at(job.name).log);
    REQUIRE(built.at(job.name).ok);
    const std::set<std::string> taken = names_taken(workspace.toolchain.backends.at(job.backend).objects);
    for (const auto& [source, object] : built.at(job.name).objects) {
      if (source.stem() == "stage" || source.stem() == "operations") continue;
      INFO(source);
      CHECK(whats(refused_in_object(object, {source.extension() == ".cu", false, taken})) == "");
      ++judged;
    }
  }
  CHECK(judged > int(workspace.book.chapters.size()));
}
