// What an answer may do to the code around it: a region that leaves its function, given code that is rewritten,
// exercises that are solved by what depends on them, and what a compiled answer defines and calls.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "common/book/files.hpp"
#include "common/book/manifest.hpp"
#include "common/book/markers.hpp"
#include "common/grading/confine.hpp"
#include "common/grading/given.hpp"
#include "common/grading/object.hpp"
#include "common/judge/plan.hpp"
#include "common/worker/build.hpp"
#include "common/worker/command.hpp"
#include "common/worker/sanitizers.hpp"
#include "tests/book/fixtures/temporary_book.hpp"
#include "tests/grading/samples.hpp"

using namespace workbook;
using namespace workbook::grading;
namespace fs = std::filesystem;

namespace {

const book::Book& the_book() {
  static const book::Book book = book::load_book(WORKBOOK_SOURCE);
  return book;
}

/// A file with one region.
std::string around(const std::string& body) {
  return "namespace ch02 {\nint f() {\n  // TODO(2.1) x\n  // BEGIN 2.1\n" + body + "\n  // END 2.1\n}\n}\n";
}

void skip_if_sanitized() {
  if (worker::kSanitized) SKIP("a sanitizer adds to every object file");
}

/// An answer that is compiled as answers of the CPU are; what its object file may not have.
std::string refused(const std::string& source, const std::vector<std::string>& more = {}) {
  const book::TemporaryFolder folder;
  folder.write("answer.cpp", source);
  const worker::Toolchain toolchain = worker::load_toolchain(WORKBOOK_BINARY, WORKBOOK_SOURCE);
  std::vector<std::string> compile = toolchain.backends.at(Backend::cpu).compile;
  const std::string object = (folder / "answer.o").string();
  compile.insert(compile.end(), {"-I", WORKBOOK_SOURCE, "-c", (folder / "answer.cpp").string(), "-o", object, "-w"});
  compile.insert(compile.end(), more.begin(), more.end());
  const worker::CommandResult compiled = worker::run_command(compile);
  INFO(source << compiled.output);
  REQUIRE(compiled.exit_code == 0);
  return fmt::format("{}", fmt::join(refused_in_object(object, {}), "\n"));
}

}  // namespace

TEST_CASE("a region that leaves its function is found, however it is written") {
  const auto [body, why] = GENERATE(table<std::string, std::string>({
      {"return 1; } int g() {", "} closes what"},
      {"return 1; %> int g() <%", "} closes what"},
      {"return 1;\n#define END }\nEND int g() {", "} closes what"},
      {"return 1;\n#if 0\n{\n#endif\n} int g() {", "#if"},
      {"return 1;\n#if 1\n}\n#else\n{\n#endif\nint g() {", "} closes what"},
      {"#if 1\nreturn 1;\n", "without its #endif"},
      {"return 1;\n#endif\n", "without its #if"},
      {"return 1; /* ", "goes on behind"},
      {"return 1; auto s = R\"x(", "goes on behind"},
      {"return 1; // \\", "goes on behind"},
      {"return 1; // \\ \f\t", "goes on behind"},
      {"return (1;", "is never closed"},
      {"return a[1);", ") closes what"},
      {"#define exp(x) 1\nreturn 1;", "the macro exp is not undefined"},
      {"#define exp(x) 1\n#if 0\n#undef exp\n#endif\nreturn 1;", "the macro exp is not undefined"},
      {"#include <vector>\nreturn 1;", "#include"},
      {"const char c = L'\"'; } int g() { const char d = L'\"';", "} closes what"},
      {"const char* c = \"\\\"\"; } int g() { const char* d = \"\";", "} closes what"},
  }));
  INFO(body);
  const auto leaving = leaving_regions(around(body));
  REQUIRE(leaving.contains("2.1"));
  CHECK(leaving.at("2.1").find(why) != std::string::npos);
  CHECK(confined(around(body)).find("#error exercise 2.1 leaves its region") != std::string::npos);
}

TEST_CASE("an answer that stays in its region is left as it is") {
  const std::string body =
      GENERATE("return 1;", "if (a) { return f(b[1]); }", "// } and /* in a comment\nreturn 1;",
               "const char* s = \"}\"; char c = '}'; auto r = R\"(})\"; return 1;",
               "#define SQUARE(x) ((x) * (x))\nreturn SQUARE(2);\n#undef SQUARE", "#if 1\nf({});\n#else\ng();\n#endif",
               "int n = 1'000; return n < 2 ? 1 : 0;", "", "WORKBOOK_TODO(2.1);");
  INFO(body);
  CHECK(leaving_regions(around(body)).empty());
  CHECK(confined(around(body)) == around(body));
}

TEST_CASE("the book's own answers stay where they are, call what they may, and go in no circle") {
  for (const book::Chapter& chapter : the_book().chapters) {
    std::map<std::string, std::string> solution;
    for (const std::string& file : chapter.files) solution[file] = book::read_file(the_book().solution(chapter, file));
    for (const auto& [file, text] : solution) {
      INFO(file);
      for (const auto& [id, why] : leaving_regions(text)) FAIL_CHECK(id << ": " << why);
      CHECK(keeps_given(text, text));
    }
    for (const std::string& id : circular_exercises(solution, solution)) FAIL_CHECK(id);
  }
}

TEST_CASE("given code that is rewritten is found; an answer, a header and a function of one's own are not that") {
  const std::string given =
      "#include <cmath>\nnamespace ch02 {\nint g() {\n  return f() + 1;\n}\n" + around("WORKBOOK_TODO(2.1);") + "}\n";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = given;
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK(keeps_given(given, given));
  CHECK(keeps_given(with("WORKBOOK_TODO(2.1);", "int x = 1;\n  return x;"), given));
  CHECK(keeps_given(with("#include <cmath>", "#include <cmath>\n#include <vector>"), given));
  CHECK(keeps_given(with("int g() {", "int own(int a) {\n  return a;\n}\n\nint g() {"), given));
  CHECK(!keeps_given(with("return f() + 1;", "return 7;"), given));
  CHECK(!keeps_given(with("  return f() + 1;", "  return 7;\n  return f() + 1;"), given));
  CHECK(!keeps_given(with("  return f() + 1;", "#if 0\n  return f() + 1;\n#endif"), given));
  CHECK(!keeps_given(with("  return f() + 1;", "  /*\n  return f() + 1;\n  */ return 7;"), given));
  CHECK(!keeps_given(with("int g() {", "#define f() 7\nint g() {"), given));
  CHECK(!keeps_given(with("int g() {", "int h() { return 7; } namespace x {\nint g() {"), given));
}

TEST_CASE("an answer that calls what the book makes of it is judged on the student's own") {
  const std::string file = "online_softmax.cpp", solution = test::solved(the_book());
  const auto circular = [&](const std::string& exercise, const std::string& body) {
    return circular_exercises({{file, solution}}, {{file, test::answer(the_book(), exercise, body)}});
  };
  // 2.1 by 2.3 is an answer of its own, and so is 2.3 by 2.1; each by the other is none.
  const std::string first = "  attend_tile({}, {}, {}, {}, {}, 0, 0, 1, 1, false);\n  return {};\n";
  const std::string second = "  lse_tile[0] = online_softmax({}, Bc).m;\n";
  CHECK(circular("2.1", first).empty());
  CHECK(circular("2.3", second).empty());
  const std::string both = book::replace_body(book::parse_reader("", test::answer(the_book(), "2.1", first)), "2.3",
                                              {"  lse_tile[0] = online_softmax({}, Bc).m;"});
  CHECK(circular_exercises({{file, solution}}, {{file, both}}) == std::set<std::string>{"2.1", "2.3"});
  CHECK(circular("2.1", "  return {softmax(x, {}, block), 1};\n").contains("2.1"));
  CHECK(circular("2.1", "  // softmax(x) would do\n  return {};\n").empty());
  CHECK(circular("2.1", "  return online_softmax(x.first(1), block);\n").empty());
}

TEST_CASE("a compiled answer may define its chapter, call the language's library and print") {
  skip_if_sanitized();
  CHECK(
      refused("#include <algorithm>\n#include <cmath>\n#include <cstdio>\n#include <iostream>\n#include <map>\n"
              "#include <stdexcept>\n#include <string>\n#include <vector>\n#include \"common/attention/matrix.hpp\"\n"
              "#include \"common/cuda/todo.hpp\"\nnamespace ch02 {\nfloat f(std::vector<float> v, "
              "workbook::Matrix<float> m) {\n  std::sort(v.begin(), v.end());\n  std::map<std::string, double> all;\n "
              " all[std::to_string(v[0])] = std::exp(v[1]) + std::log1p(m(0, 0));\n  std::cout << all.size() << "
              "std::endl;\n  std::printf(\"%f\\n\", v[0]);\n  static std::string kept(\"kept\");\n  if (v.empty()) "
              "throw std::runtime_error(kept);\n  if (v.size() == 7) WORKBOOK_TODO(2.1);\n  return "
              "std::fmax(v[0], 0);\n}\n}\n") == "");
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

TEST_CASE("a compiled answer that replaces, calls or starts something else is refused") {
  skip_if_sanitized();
  const auto [source, what] = GENERATE(table<std::string, std::string>({
      {"extern \"C\" long send(int, const void*, unsigned long, int) { return 0; }\n", "defines send"},
      {"extern \"C\" long recv(int, void*, unsigned long, int);\nnamespace ch02 { long f() { return recv(3, 0, 0, 0); "
       "} }\n",
       "calls recv"},
      {"extern \"C\" int mprotect(void*, unsigned long, int);\nnamespace ch02 { int f() { return mprotect(0, 0, 7); } "
       "}\n",
       "calls mprotect"},
      {"#include <unistd.h>\nnamespace ch02 { void f() { ::_exit(0); } }\n", "calls _exit"},
      {"#include <cstdlib>\nnamespace ch02 { void* f() { return std::malloc(9); } }\n", "calls malloc"},
      {"#include <cstdlib>\nnamespace ch02 { int f() { return std::system(\"id\"); } }\n", "calls system"},
      {"namespace ch02 { float kept[32 * 1024]; }\n", "keeps 131072 bytes"},
      {"void* operator new(unsigned long) { return nullptr; }\n", "defines operator new"},
      {"namespace workbook::worker { __attribute__((used)) inline bool send_message(int) { return true; } }\n",
       "defines workbook::worker::send_message"},
      {"namespace workbook::cuda { struct Operations { static int add(); }; }\nnamespace ch02 { int f() { return "
       "workbook::cuda::Operations::add(); } }\n",
       "calls workbook::cuda::Operations::add"},
      {"namespace workbook::cuda { unsigned long take_peak_bytes(); void start_trace(); }\nnamespace ch02 { unsigned "
       "long f() { "
       "workbook::cuda::start_trace(); return workbook::cuda::take_peak_bytes(); } }\n",
       "calls workbook::cuda::start_trace"},
      {"namespace simt { struct Options; Options& options(); }\nnamespace ch02 { void* f() { return &simt::options(); "
       "} }\n",
       "calls simt::options"},
      {"namespace workbook { struct Problem; int forward_oracle(const Problem&) { return 1; } }\n",
       "defines workbook::forward"},
      {"int main() { return 0; }\n", "defines main"},
      {"namespace ch02 { int n; __attribute__((constructor)) void f() { ++n; } }\n", "before main"},
      {"namespace ch02 { int n; __attribute__((destructor)) void f() { ++n; } }\n", "before or after main"},
      {"#include <cstdio>\nstatic int done = std::puts(\"early\");\nnamespace ch02 { int* f() { return &done; } }\n",
       "before main"},
      {"namespace ch02 { __attribute__((section(\".preinit_array\"), used)) void (*f)() = nullptr; }\n",
       "before or after main"},
      {"namespace ch02 { __attribute__((section(\".text\"))) extern const unsigned char code[2] = {15, 5}; }\n",
       "data among its code"},
      {"namespace ch02 { __attribute__((section(\".mine\"))) int f() { return 1; } }\n", "a place of its own"},
      {"namespace ch02 { thread_local int mine; int* f() { return &mine; } }\n", "each thread's own"},
      {"extern \"C\" { static void* pick() { return nullptr; } void chosen() __attribute__((ifunc(\"pick\"))); }\n",
       "when it is loaded"},
      {"__attribute__((weak)) int g() { return 1; }\n", "defines g()"},
      {"static void f() __attribute__((weakref(\"send\")));\nnamespace ch02 { void g() { f(); } }\n", "calls send"},
      {"__asm__(\".symver ours, send@GLIBC_2.2.5\");\nextern \"C\" void ours();\nnamespace ch02 { void g() { ours(); } "
       "}\n",
       "send"},
      {"#include <vector>\ntemplate <> void std::vector<char>::push_back(const char&) {}\n", "defines std::vector"},
      {"#include <thread>\nnamespace ch02 { void f() { std::thread([] {}).detach(); } }\n", "thread"},
      {"#include <fstream>\nnamespace ch02 { bool f() { return bool(std::ifstream(\"x\")); } }\n", "filebuf"},
      {"extern \"C\" void _ZN8workbook4cuda11start_traceEv();\nnamespace ch02 { void f() { "
       "_ZN8workbook4cuda11start_traceEv(); } }\n",
       "calls workbook::cuda::start_trace"},
      {"long f() __asm__(\"send\");\nnamespace ch02 { long g() { return f(); } }\n", "calls send"},
  }));
  INFO(source);
  const std::string all = refused(source);
  INFO(all);
  CHECK(all.find(what) != std::string::npos);
}

TEST_CASE("memory on the stack that no count sees is refused") {
  const book::TemporaryFolder folder;
  folder.write("a.su",
               "a.cpp:3:5:int f()\t131104\tstatic\na.cpp:4:5:int g(int)\t48\tdynamic\na.cpp:5:5:int h()\t64\tstatic\n"
               "a.cpp:6:5:int i()\t64\tdynamic,bounded\n");
  const std::vector<std::string> refused = refused_on_stack(folder / "a.su");
  REQUIRE(refused.size() == 2);
  CHECK(refused[0] == "has 131104 bytes on the stack in a.cpp:3:5:int f()");
  CHECK(refused[1].find("g(int)") != std::string::npos);
}

TEST_CASE("an object file that is none, or damaged, is refused") {
  const book::TemporaryFolder folder;
  folder.write("none.o", "no object file");
  folder.write("cut.o", std::string("\x7f"
                                    "ELF\x02\x01\x01\0",
                                    8) +
                            std::string(60, '\x7f'));
  CHECK(!refused_in_object(folder / "none.o", {}).empty());
  CHECK(!refused_in_object(folder / "cut.o", {}).empty());
}

TEST_CASE("what the program around an answer defines is taken, an inline function of kernels' headers is not") {
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
  CHECK(refused_in_object(object, rules) ==
        std::vector<std::string>{"defines simt::in_kernel()", "defines helper(unsigned int)"});
}

TEST_CASE("the book's own answers have nothing that an answer may not have") {
  skip_if_sanitized();
  // Handed in, they have to get their points. What they are compiled from and by is what the gate "solutions" builds.
  judge::Workspace workspace;
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
      CHECK(fmt::format("{}",
                        fmt::join(refused_in_object(object, {source.extension() == ".cu", false, taken}), "\n")) == "");
      ++judged;
    }
  }
  CHECK(judged > int(workspace.book.chapters.size()));
}
