#include "tests/grading/samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/grading/release.hpp"

namespace workbook::test {
namespace fs = std::filesystem;
namespace {

book::MarkedFile solution_file(const book::Book& book) {
  const fs::path path = book.root / "solutions/02_online_softmax/online_softmax.cpp";
  return book::parse_marked("online_softmax.cpp", book::read_file(path));
}

std::vector<std::string> lines_of(const std::string& text) {
  return book::parse_reader("", text).lines;
}

/// Declarations that a source needs for its attack, without a header that would give it away.
constexpr const char* kDeclarations = R"(
extern "C" {
int open(const char*, int, ...);
long read(int, void*, unsigned long);
long write(int, const void*, unsigned long);
int close(int);
int fork();
int getppid();
int kill(int, int);
int socket(int, int, int);
int socketpair(int, int, int, int*);
int connect(int, const void*, unsigned);
int unlink(const char*);
int execl(const char*, const char*, ...);
long ptrace(int, ...);
long process_vm_readv(int, const void*, unsigned long, const void*, unsigned long, unsigned long);
void _exit(int);
}
)";

std::string quoted(const fs::path& path) {
  return fmt::format("\"{}\"", path.string());
}

Sample in_body(const book::Book& book, const std::string& name, const std::string& attack) {
  Sample sample;
  sample.name = name;
  std::string text = answer(book, "2.1", attack_body(attack));
  const std::string at = "namespace ch02 {";
  text.insert(
      text.find(at),
      std::string("#include <cstdio>\n#include <cstdlib>\n#include <fstream>\n#include "
                  "<filesystem>\n#include <string>\n#include <thread>\n#include <csetjmp>\n#include <cfenv>\n") +
          kDeclarations);
  sample.files[kAnswerFile] = text;
  sample.second = true;
  return sample;
}

}  // namespace

std::string solved(const book::Book& book) {
  return book::read_file(book.root / "solutions/02_online_softmax/online_softmax.cpp");
}

std::string untouched(const book::Book& book) {
  grading::Assignment assignment = grading::make_assignment(book, {"2.1", "2.3"}, {});
  return grading::released_text(solution_file(book), assignment);
}

std::string answer(const book::Book& book, const std::string& exercise, const std::string& body,
                   const std::string& at_end) {
  return book::replace_body(solution_file(book), exercise, lines_of(body)) + at_end;
}

std::string attack_body(const std::string& attack) {
  return fmt::format(
      "  const bool worked = {};\n  if (worked) throw std::runtime_error(\"ATTACK SUCCEEDED\");\n"
      "  return {{10, 1}};\n",
      attack);
}

/// The solution's answer to an exercise.
std::string region_of(const book::Book& book, const std::string& exercise) {
  return book::join_lines(solution_file(book).find(exercise)->body) + "\n";
}

std::vector<Sample> hostile_samples(const book::Book& book, const Places& places) {
  std::vector<Sample> samples;
  const auto add = [&](const std::string& name, const std::string& text, const std::string& result = "",
                       const std::string& says = "") -> Sample& {
    Sample sample;
    sample.name = name;
    if (!text.empty()) sample.files[kAnswerFile] = text;
    sample.result = result;
    sample.says = says;
    // What stands outside a region, and what is wrong within 2.1's, leaves 2.3 as it is: each is judged alone.
    sample.second = text.find("l[i] *= rescale;") != std::string::npos;
    samples.push_back(sample);
    return samples.back();
  };
  const auto body = [&](const std::string& name, const std::string& attack) -> Sample& {
    samples.push_back(in_body(book, name, attack));
    return samples.back();
  };
  const auto before = [&](const std::string& text, const std::string& more) {
    std::string result = text;
    return result.insert(result.find("namespace ch02 {"), more);
  };
  const std::string wrong = "  return {10, 1};\n";

  // ---- Says that it has passed. ----
  body("prints_passed_and_exits",
       "(std::puts(\"All tests passed (99 assertions in 18 test cases)\"), std::exit(0), false)")
      .result = "crashed";
  // Out of its function: code before main, calls of the server's own.
  const auto leaves = [&](const std::string& name, const std::string& code) {
    add(name, answer(book, "2.1", code), "");
  };
  leaves("exits_in_a_static_initialiser",
         wrong + "}\nextern \"C\" void _exit(int);\nstatic const int done = (_exit(0), 0);\nvoid rest() {\n");
  leaves("replaces_the_servers_calls",
         wrong + "}\nextern \"C\" long send(int, const void*, unsigned long, int) { return -1; }\nvoid rest() {\n");
  leaves("closes_its_function_by_a_digraph", wrong + "%>\nint main() <% return 0; %>\nvoid rest() <%\n");
  leaves("closes_its_function_by_a_macro",
         wrong + "#define END }\nEND int main() { return 0; }\nvoid rest() {\n#undef END\n");
  leaves("closes_its_function_in_one_branch", "#if 0\n{\n#endif\n" + wrong + "}\nvoid rest() {\n#if 0\n}\n#endif\n");
  leaves("comments_the_book_out", wrong + "/*\n");
  leaves("leaves_a_macro_behind", "#define exp(x) 1.0f\n" + wrong);
  add("replaces_the_servers_calls_beside_its_region",
      answer(book, "2.1", wrong, "\nextern \"C\" long send(int, const void*, unsigned long, int) { return -1; }\n"),
      "failed");
  add("makes_text_of_the_books_code", answer(book, "2.1", "#define std(...) #__VA_ARGS__\n" + wrong + "#undef std\n"),
      "");
  add("attribute_constructor", answer(book, "2.1", wrong, "\n[[gnu::constructor]] static void early() {}\n"), "");
  add("attribute_weakref", answer(book, "2.1", wrong, "\nstatic void f() __attribute__((weakref(\"send\")));\n"), "");
  add("code_as_data",
      answer(book, "2.1", wrong, "\n__attribute__((section(\".text\"))) const char code[] = {15, 5};\n"), "");
  add("mangled_name", answer(book, "2.1", wrong, "\nextern \"C\" void _ZN8workbook6worker12send_messageEv();\n"), "");
  add("another_line", answer(book, "2.1", "#line 1 \"solutions/02_online_softmax/online_softmax.cpp\"\n" + wrong), "");
  add("hides_behind_a_prefix",
      before(answer(book, "2.1", wrong), "#define xLR\nauto s = xLR\"(\"; asm(\"nop\"); //)\"\n"), "");
  body("changes_the_rounding", "(__builtin_printf(\"%d\", fesetround(0x400)), false)");
  body("jumps_out", "[] { struct B { void* b[40]; }; static B b; return std::setjmp(*(std::jmp_buf*)&b) != 0; }()");
  body("spins_in_threads",
       "[] { for (int i = 0; i < 64; ++i) std::thread([] { for (volatile int i = 1; i != 0;) { } }).detach(); return "
       "false; }()")
      .result = "not compiled";

  // Each by the other: right where the other is the book's, and nothing together.
  Sample circle;
  circle.name = "each_by_the_other";
  circle.files[kAnswerFile] = book::replace_body(book::parse_reader("", answer(book, "2.1", R"(
  float m = minus_infinity;
  for (const float s : x) m = std::max(m, s);
  if (m == minus_infinity) return {m, 0};
  const std::vector<float> q(1, 1.0f), k(x.begin(), x.end()), v(x.size(), 1.0f);
  std::vector<float> o(1), lse(1);
  const auto n = std::int64_t(x.size());
  attend_tile({"Q", q, 1, 1}, {"K", k, n, 1}, {"V", v, n, 1}, {"O", o, 1, 1}, lse, 0, 1, block, 1, false);
  return {m, std::exp(lse[0] - m)};
)")),
                                                 "2.3", lines_of(R"(
  for (std::int64_t i = 0; i < Q_tile.rows(); ++i) {
    const std::int64_t visible = std::max<std::int64_t>(0, workbook::visible_keys(first_query + i, Nq, K.rows(), causal));
    std::vector<float> S(std::size_t(visible), 0.0f);
    for (std::int64_t j = 0; j < visible; ++j) {
      for (std::int64_t c = 0; c < K.columns(); ++c) S[j] += Q_tile.row(i)[c] * K.row(j)[c];
      S[j] *= scale;
    }
    const auto [m, l] = online_softmax(S, Bc);
    for (std::int64_t c = 0; c < K.columns(); ++c) {
      float o = 0;
      for (std::int64_t j = 0; j < visible; ++j) o += std::exp(S[j] - m) * V.row(j)[c];
      O_tile.row(i)[c] = visible == 0 ? 0 : o / l;
    }
    lse_tile[i] = visible == 0 ? minus_infinity : m + std::log(l);
  }
)"));
  samples.push_back(circle);
  // The same circle, out of sight: each stands where 2.1 calls 2.3. Ideas: an attack on the grader at 07f50e5 (a decoy
  // before the region's end, a trailing return type, a constexpr lambda); a pointer, a template, a macro.
  for (const auto& [name, open, call] : std::initializer_list<std::array<const char*, 3>>{
           {"behind_a_decoy", "\n#if 0\n  void decoy() {\n#endif\n", "attend_tile("},
           {"by_a_trailing_return_type", "  const auto by = [](auto&&... all) -> void { attend_tile(all...); };\n",
            "by("},
           {"by_a_constexpr_lambda", "  constexpr auto by = [](auto&&... all) { attend_tile(all...); };\n", "by("},
           {"by_a_pointer", "  auto* volatile by = &attend_tile;\n", "by("},
           {"by_a_member", "  struct By { decltype(&attend_tile) call = attend_tile; } by;\n", "by.call("},
           {"by_a_macro", "#define BY(a, b) a##b\n", "BY(attend, _tile)("},
           {"by_invoke", "", "std::invoke(attend_tile, "}}) {
    Sample other = circle;
    other.name = std::string("each_by_the_other_") + name;
    std::string& text = other.files[kAnswerFile];
    const std::string first = "  float m = minus_infinity;\n  for (const float s : x)", called = "  attend_tile({\"Q\"";
    text.replace(text.find(called), called.size(),
                 fmt::format("{}  {}workbook::Matrix<const float>{{\"Q\"", open, call));
    for (const char* matrix : {"{\"K\"", "{\"V\"", "{\"O\""})
      text.insert(text.find(matrix), fmt::format("workbook::Matrix<{}float>", matrix[2] == 'O' ? "" : "const "));
    text.insert(text.find("namespace ch02 {"), "#include <functional>\n");
    samples.push_back(other);
  }

  // A function beside the exercises comes along; a given line that was changed is the book's again.
  const std::string call = "  return mine(x, block);\n",
                    helper = "SoftmaxState mine(std::span<const float> x, std::int64_t block) {\n" +
                             region_of(book, "2.1") + "}\n\n";
  const auto with_helper = [&] {
    std::string text = answer(book, "2.1", call);
    const std::string at = "SoftmaxState online_softmax(";
    return text.insert(text.find(at), helper);
  };
  Sample& own_function = add("has_a_function_of_its_own", with_helper(), "passed");
  own_function.first = own_function.second = own_function.whole = true;
  std::string rewritten = with_helper();
  const std::string given = "return m + std::log(l);";
  rewritten.replace(rewritten.find(given), given.size(), "return std::log(l) + m;");
  Sample& given_again = add("rewrites_what_is_given", rewritten, "passed");
  given_again.first = given_again.second = given_again.whole = true;

  add("defines_main", answer(book, "2.1", wrong, "\nint main() { return 0; }\n"), "failed");
  add("defines_the_oracle",
      answer(book, "2.1", wrong,
             "\nnamespace workbook { struct Forward; struct Problem; Forward forward_oracle(const Problem&) { throw 1; "
             "} }\n"),
      "");
  body("writes_results_json",
       "[] { bool any = false; for (const char* file : {\"results.json\", \"/autograder/results/results.json\", "
       "\"../results.json\", \"/tmp/results.json\"}) { std::ofstream out(file); any = any || bool(out << \"{}\"); } "
       "return any; }()");
  body("writes_junit",
       "[] { std::ofstream out(\"junit.xml\"); return bool(out << \"<testsuites/>\" << std::flush); }()");
  body("forges_a_reply",
       "[] { const std::string text = \"{\\\"id\\\": 1, \\\"status\\\": \\\"ok\\\", \\\"seconds\\\": 0.0, "
       "\\\"extra_bytes\\\": 0, \\\"counters\\\": {}}\"; const unsigned length = unsigned(text.size()); "
       "write(3, &length, 4); write(3, text.data(), text.size()); return false; }()")
      .result = "not compiled";
  body("closes_the_pipe", "(close(3), false)").result = "not compiled";
  body("becomes_an_impostor", "[] { int pair[2]; return socketpair(1, 1, 0, pair) == 0; }()");
  add("throws_that_there_is_no_device",
      before(answer(book, "2.1", "  throw workbook::worker::Unavailable(\"no device\");\n"),
             "namespace workbook::worker { class Unavailable : public std::runtime_error { public: using "
             "std::runtime_error::runtime_error; }; }\n"));
  add("throws_that_it_was_refused",
      before(answer(book, "2.1", "  throw workbook::cuda::Refused(\"too large\");\n"),
             "namespace workbook::worker { class Refused : public std::runtime_error { public: using "
             "std::runtime_error::runtime_error; }; }\n"),
      "not compiled");

  // ---- Brings its own book along. ----
  Sample& own_tests = add("overwrites_tests", untouched(book), "todo");
  own_tests.files["tests/02_online_softmax/test_online_softmax.cpp"] = "int main() { return 0; }\n";
  own_tests.files["tests/support/outcome.cpp"] = "#error ours\n";
  Sample& own_headers = add("overwrites_headers", untouched(book), "todo");
  own_headers.files["chapters/02_online_softmax/online_softmax.hpp"] = "#error ours\n";
  own_headers.files["common/cuda/todo.hpp"] = "#define WORKBOOK_TODO(id) return {}\n";
  own_headers.files["common/attention/oracle.cpp"] = "#error ours\n";
  Sample& own_build = add("overwrites_cmake_files", untouched(book), "todo");
  own_build.files["CMakeLists.txt"] = "message(FATAL_ERROR ours)\n";
  own_build.files["workbook"] = "#!/bin/sh\necho all passed\n";
  Sample& own_manifest = add("overwrites_chapter_toml", untouched(book), "todo");
  own_manifest.files["chapters/02_online_softmax/chapter.toml"] = "number = 2\n";
  own_manifest.files["assignment.toml"] = "title = \"mine\"\n";

  // ---- Looks for the answers. ----
  add("includes_the_solution", before(untouched(book), fmt::format("#include {}\n", quoted(places.solution))), "");
  add("incbins_the_solution",
      answer(book, "2.1",
             fmt::format("  asm(\".incbin \\\"{}\\\"\");\n  return {{10, 1}};\n", places.solution.string())),
      "");
  add("includes_hidden_tests",
      answer(book, "2.1", fmt::format("#include {}\n  return {{10, 1}};\n", quoted(places.hidden))), "");
  add("incbins_hidden_tests",
      answer(book, "2.1",
             fmt::format("  __asm__(\".incbin \\\"{}\\\"\");\n  return {{10, 1}};\n", places.hidden.string())),
      "");
  body("reads_the_solution", fmt::format("bool(std::ifstream({}))", quoted(places.solution)));
  body("reads_hidden_tests", fmt::format("bool(std::ifstream({}))", quoted(places.hidden)));
  body("reads_another_submission", fmt::format("bool(std::ifstream({}))", quoted(places.other)));
  body("reads_the_parents_memory", "open((\"/proc/\" + std::to_string(getppid()) + \"/mem\").c_str(), 0) >= 0");
  body("reads_the_parents_memory_by_call",
       "[] { char byte; struct { void* base; unsigned long size; } here{&byte, 1}, there{&byte, 1}; return "
       "process_vm_readv(getppid(), &here, 1, &there, 1, 0) > 0; }()");
  body("traces_the_parent", "ptrace(16, getppid(), nullptr, nullptr) == 0");
  body("reads_the_environment",
       "std::getenv(\"WORKBOOK_CONTEXT\") != nullptr || std::getenv(\"WORKBOOK_ROOT\") != nullptr");
  body("reads_its_own_program", "bool(std::ifstream(\"/proc/self/exe\"))");

  // ---- Does harm. ----
  body("edits_files_outside", fmt::format("bool(std::ofstream({}) << \"mine\" << std::flush)", quoted(places.outside)));
  body("deletes_files_outside",
       fmt::format("unlink({0}.c_str()) == 0 || unlink((std::filesystem::path({0}).parent_path() / "
                   "\"class.csv\").c_str()) == 0",
                   "std::string(" + quoted(places.outside) + ")"));
  body("signals_the_parent", "kill(getppid(), 0) == 0");
  body("forks_without_end",
       "[] { int made = 0; for (int i = 0; i < 64; ++i) { const int pid = fork(); if (pid == 0) { "
       "while (true) std::this_thread::yield(); } made += pid > 0; } return made > 0; }()");
  body("starts_a_program", "execl(\"/bin/sh\", \"sh\", \"-c\", \"exit 7\", nullptr) == 0");
  body("fills_memory",
       "[] { std::vector<std::vector<char>> all; for (int i = 0; i < 512; ++i) all.emplace_back(1 << 20, 'x'); return "
       "all.empty(); }()");
  // Nothing of it is touched: what counts is that it is not to be had.
  body("reserves_more_memory_than_is_allowed", "std::malloc(8ull << 30) != nullptr");
  body("fills_the_disk",
       "[] { std::ofstream out(\"/tmp/workbook-sample-fills-the-disk\"); const std::string block(1 << "
       "20, 'x'); for (int i = 0; i < 64 && out; ++i) out << block; return bool(out); }()");
  body("floods_stdout",
       "[] { const std::string block(1 << 20, 'x'); for (int i = 0; i < 64; ++i) std::puts(block.c_str()); "
       "return true; }()")
      .result = "crashed";
  body("loops_without_end", "[] { for (volatile int i = 1; i != 0;) { } return true; }()").result = "timed out";
  body("segmentation_fault", "(*(volatile int*)nullptr = 1, false)").result = "crashed";
  body("connects_to_the_network",
       "[] { const int s = socket(2, 1, 0); if (s < 0) return false; unsigned char address[16] = {2, 0, 0, 22, 127, 0, "
       "0, "
       "1}; connect(s, address, 16); return true; }()");
  body("changes_its_input", "(const_cast<float&>(x[0]) = 1, false)").result = "failed";
  add("replaces_operator_new",
      answer(book, "2.1", wrong, "\nvoid* operator new(std::size_t size) { return __builtin_malloc(size); }\n"),
      "failed");

  // ---- Is not a source, or a strange one. ----
  add("binary_in_place_of_a_source",
      std::string("\x7f"
                  "ELF\x02\x01\x01\0\0\0\0",
                  11),
      "todo", "is no text");
  add("utf_16", std::string("\xff\xfe#\0i\0n\0", 8), "todo", "is no text");
  std::string windows = "\xEF\xBB\xBF";
  for (const char c : solved(book)) windows += c == '\n' ? "\r\n" : std::string(1, c);
  Sample& crlf = add("crlf_and_byte_order_mark", windows, "passed");
  crlf.first = crlf.second = crlf.whole = true;
  Sample& latin = add("not_utf_8", "// Gr\xfc\xdf Gott\n" + solved(book), "passed");
  latin.first = latin.second = latin.whole = true;
  Sample& missing = add("missing_files", "", "todo", "was not handed in");
  missing.files["notes.txt"] = "The dog has eaten it.\n";
  std::string no_begin = solved(book);
  no_begin.erase(no_begin.find("  // BEGIN 2.1\n"), std::string("  // BEGIN 2.1\n").size());
  add("markers_gone", no_begin, "not compiled", "that opens this region is gone");
  add("does_not_compile", answer(book, "2.1", "  return no_such_name;\n"), "not compiled", "no_such_name");
  Sample& twice = add("two_files_that_could_be_meant", "", "todo", "could both be meant");
  twice.files["a/online_softmax.cpp"] = solved(book);
  twice.files["b/online_softmax.cpp"] = solved(book);
  add("takes_minutes_to_compile", answer(book, "2.1", "  return {float(Tree<22, 0>::value), 1};\n"), "not compiled");
  samples.back().files[kAnswerFile] = before(
      samples.back().files[kAnswerFile],
      "template <int depth, long at> struct Tree { static constexpr long value = Tree<depth - 1, 2 * at>::value + "
      "Tree<depth - 1, 2 * at + 1>::value; };\ntemplate <long at> struct Tree<0, at> { static constexpr long value "
      "= at; };\n");
  add("takes_gigabytes_to_compile",
      answer(book, "2.1", wrong, "\nchar large[1u << 30] = {1};\nchar larger[1u << 30] = {1};\n"));

  // ---- Knows where it runs. ----
  add("detects_the_simulator",
      answer(book, "2.1", "#ifdef __SANITIZE_THREAD__\n  return {0, 0};\n#endif\n  return {10, 1};\n"), "");
  add("hides_from_the_simulator",
      before(untouched(book), "__attribute__((no_sanitize(\"thread\"))) static void hidden() {}\n"), "");
  add("calls_the_simulators_callbacks", before(untouched(book), "extern \"C\" void __tsan_read4(void*);\n"), "");

  // ---- Costs the class its time, or the grader its stack. ----
  body("takes_as_long_as_it_may_in_every_call",
       "[] { for (volatile long i = 0; i < 700000000; i = i + 1) { } return false; }()");
  std::string unknown_names = "\nvoid many() {\n";
  for (int i = 0; i < 20000; ++i) unknown_names += fmt::format("  no_such_function_{}(1, 2, 3);\n", i);
  add("floods_the_compilers_messages", answer(book, "2.1", wrong, unknown_names + "}\n"));
  std::string macros = "#define M0 1 +\n";
  for (int i = 1; i <= 30; ++i) macros += fmt::format("#define M{0} M{1} M{1} M{1} M{1}\n", i, i - 1);
  for (int i = 0; i <= 30; ++i) macros += i == 30 ? "  return {float(M30 0), 1};\n" : "";
  for (int i = 0; i <= 30; ++i) macros += fmt::format("#undef M{}\n", i);
  add("expands_macros_without_end", answer(book, "2.1", macros), "not compiled");
  add("nests_brackets_without_end",
      answer(book, "2.1", "  return {float(" + std::string(60000, '(') + "1" + std::string(60000, ')') + "), 1};\n"));
  add("recurses_without_end",
      answer(book, "2.1",
             "  struct Down { static float go(const float* x, long n) { volatile float here[16]; here[n % 16] = x[0]; "
             "return go(x, n + 1) + here[(n + 1) % 16]; } };\n  return {Down::go(x.data(), 0), 1};\n"),
      "crashed");
  add("throws_what_is_no_exception", answer(book, "2.1", "  throw 42;\n"), "failed");
  // Whatever it meets there, it may end itself and nothing else.
  body("writes_all_over_memory",
       "[&] { for (long i = 0; i < (1l << 34); ++i) const_cast<volatile float*>(x.data())[i] = 1; return false; }()");

  // What runs in the server's own steps: when a worker ends, when it asks an exception what it says, and its own sums.
  std::string at_the_end = solved(book);
  const std::string first_line = "  float m = minus_infinity;\n  float l = 0;\n";
  at_the_end.insert(
      at_the_end.find(first_line),
      "  struct Forever { ~Forever() { for (volatile int i = 1; i != 0;) { } } };\n  static Forever kept;\n"
      "  (void)kept;\n");
  Sample& never_ends = add("never_ends_when_it_has_answered", at_the_end, "passed");
  never_ends.first = never_ends.second = never_ends.whole = true;
  const auto says = [&](const std::string& name, const std::string& result, const std::string& what) {
    add(name,
        answer(book, "2.1",
               "  struct Says : std::exception {\n    const char* what() const noexcept override {\n" + what +
                   "    }\n  };\n  throw Says();\n"),
        result);
  };
  says("never_says_what_it_has_thrown", "timed out",
       "      for (volatile int i = 1; i != 0;) { }\n      return \"\";\n");
  says("says_a_hundred_megabytes", "failed",
       "      static std::vector<char> text(100 << 20, 'x');\n      text.back() = 0;\n      return text.data();\n");
  says("says_what_has_no_end", "crashed", "      return reinterpret_cast<const char*>(1);\n");
  body("makes_every_inexact_sum_fatal", "(__builtin_ia32_ldmxcsr(0), false)").result = "crashed";
  add("asks_which_files_there_are",
      answer(book, "2.1",
             fmt::format(
                 "#if __has_include({0}) || __has_include({1})\n  throw std::runtime_error(\"ATTACK SUCCEEDED\");\n"
                 "#endif\n",
                 quoted(places.solution), quoted(places.hidden)) +
                 wrong));

  // The oracle's way, in double and with a whole row of scores: right, and no FlashAttention. The counted bar (memory)
  // is what tells.
  const std::string by_the_oracle = R"(
  const std::int64_t rows = Q_tile.rows(), d = Q_tile.columns(), Nk = K.rows();
  std::vector<double> S(std::size_t(rows * Nk));
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t visible = workbook::visible_keys(first_query + i, Nq, Nk, causal);
    double m = -INFINITY, l = 0;
    for (std::int64_t j = 0; j < visible; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < d; ++c) dot += double(Q_tile.row(i)[c]) * K.row(j)[c];
      S[std::size_t(i * Nk + j)] = scale * dot;
      m = std::max(m, scale * dot);
    }
    for (std::int64_t j = 0; j < visible; ++j) l += std::exp(S[std::size_t(i * Nk + j)] - m);
    for (std::int64_t c = 0; c < d; ++c) {
      double o = 0;
      for (std::int64_t j = 0; j < visible; ++j) o += std::exp(S[std::size_t(i * Nk + j)] - m) * V.row(j)[c];
      O_tile.row(i)[c] = visible == 0 ? 0 : float(o / l);
    }
    lse_tile[i] = visible == 0 ? minus_infinity : float(m + std::log(l));
  }
)";
  Sample& oracle = add("answers_as_the_oracle_does", answer(book, "2.3", by_the_oracle), "passed");
  oracle.first = oracle.second = true;
  // The same, and the notes about one of its blocks say that it was huge: given back, it would pay for all others.
  Sample& hides = add("hides_its_memory",
                      answer(book, "2.3",
                             "  {\n    char* volatile small = new char[16];\n"
                             "    reinterpret_cast<volatile std::size_t*>(small)[-2] = std::size_t(1) << 40;\n"
                             "    delete[] small;\n  }" +
                                 by_the_oracle),
                      "passed");
  hides.first = hides.second = true;
  // A row of scores in memory that comes with what is thrown, by no operator new: thousands of keys of it.
  std::string in_exceptions = by_the_oracle;
  const auto instead = [&](const std::string& old, const std::string& text) {
    for (std::size_t at = 0; (at = in_exceptions.find(old, at)) != std::string::npos; at += text.size())
      in_exceptions.replace(at, old.size(), text);
  };
  instead("  std::vector<double> S(std::size_t(rows * Nk));\n",
          "  struct Row : std::exception {\n    double S[1 << 15];\n  };\n  try {\n    throw Row();\n  } catch (Row& "
          "thrown) {\n  double* const S = thrown.S;\n");
  instead("std::size_t(i * Nk + j)", "j");
  Sample& thrown = add("keeps_its_scores_in_an_exception", answer(book, "2.3", in_exceptions + "  }\n"), "passed");
  thrown.first = thrown.second = true;
  // The row of scores in other places. Ideas: the attack at 07f50e5 (below the stack pointer, a local array, memory of
  // the system's), GPU MODE's catalogue of results kept between calls, and whatever else of the library has memory.
  // It is counted, or more than the stack has, or it does not compile; `compiles`: then 2.3 alone is right.
  const auto keeps = [&](const std::string& name, const std::string& where, bool compiles,
                         const std::string& declared = "") {
    std::string text = by_the_oracle;
    const std::string vector = "  std::vector<double> S(std::size_t(rows * Nk));\n", place = "std::size_t(i * Nk + j)";
    text.replace(text.find(vector), vector.size(), where);
    for (std::size_t at = 0; (at = text.find(place, at)) != std::string::npos;)
      text = text.substr(0, at) + "j" + text.substr(at + place.size());
    Sample& sample = add(fmt::format("keeps_its_scores_{}", name), before(answer(book, "2.3", text), declared),
                         compiles ? "passed" : "");
    sample.first = true;
    sample.second = compiles;
  };
  keeps("in_a_row_of_its_own", "  double S[Nk];\n", true);
  keeps("below_the_stack", "  double* const S = static_cast<double*>(__builtin_alloca(Nk * 8));\n", true);
  keeps("in_a_valarray", "  std::valarray<double> S(Nk);\n", true, "#include <valarray>\n");
  keeps("in_a_string",
        "  std::string text(Nk * 8, 'x');\n  double* const S = reinterpret_cast<double*>(text.data());\n", true,
        "#include <string>\n");
  keeps("in_aligned_memory",
        "  double* const S = static_cast<double*>(::operator new(Nk * 8, std::align_val_t(64)));\n", true,
        "#include <new>\n");
  keeps("in_memory_that_may_fail", "  double* const S = static_cast<double*>(::operator new(Nk * 8, std::nothrow));\n",
        true, "#include <new>\n");
  keeps("in_a_shared_pointer",
        "  const auto owner = std::make_shared<double[]>(Nk);\n  double* const S = owner.get();\n", true,
        "#include <memory>\n");
  keeps("in_a_list_of_blocks", "  std::deque<double> S(Nk);\n", true, "#include <deque>\n");
  keeps("in_a_stream",
        "  std::stringbuf buffer(std::string(Nk * 8, 'x'));\n  double* const S = "
        "const_cast<double*>(reinterpret_cast<const double*>(buffer.view().data()));\n",
        true, "#include <sstream>\n");
  keeps("in_static_memory", "  static double S[1 << 17];\n", false);
  keeps("in_memory_of_a_thread", "  static thread_local double S[1 << 17];\n", false);
  keeps("in_pages_of_the_system", "  double* const S = static_cast<double*>(mmap(nullptr, Nk * 8, 3, 0x22, -1, 0));\n",
        false, "#include <sys/mman.h>\n");
  keeps("above_the_break", "  double* const S = static_cast<double*>(sbrk(Nk * 8));\n", false, "#include <unistd.h>\n");
  keeps("in_malloc", "  double* const S = static_cast<double*>(std::malloc(Nk * 8));\n", false, "#include <cstdlib>\n");
  keeps("in_malloc_by_another_name", "  double* const S = static_cast<double*>(mine(Nk * 8));\n", false,
        "extern \"C\" void* mine(unsigned long) asm(\"malloc\");\n");
  keeps("in_malloc_by_the_compiler", "  double* const S = static_cast<double*>(__builtin_malloc(Nk * 8));\n", false);
  keeps("in_what_printing_makes",
        "  char* text = nullptr;\n  if (asprintf(&text, \"%*d\", int(Nk * 8), 1) < 0) return;\n"
        "  double* const S = reinterpret_cast<double*>(text);\n",
        false, "#include <cstdio>\n");
  keeps(
      "in_a_copy_of_a_text",
      "  const std::string text(Nk * 8, 'x');\n  double* const S = reinterpret_cast<double*>(strdup(text.c_str()));\n",
      false, "#include <string.h>\n#include <string>\n");
  keeps("in_a_resource", "  std::pmr::vector<double> S(Nk);\n", false, "#include <memory_resource>\n");
  // GPU MODE's catalogue (reference-kernels, issue 162): the clock replaced, results kept, the work put off.
  add("replaces_the_clock", answer(book, "2.1", wrong, "\nextern \"C\" int clock_gettime(int, void*) { return 0; }\n"));
  add("replaces_the_steady_clock",
      before(
          answer(book, "2.1", wrong),
          "#include <chrono>\nstd::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept { return "
          "{}; }\n"));
  add("answers_from_a_cache",
      answer(
          book, "2.1",
          "  static std::vector<std::pair<std::size_t, SoftmaxState>> kept;\n  for (const auto& [n, state] : kept)\n "
          "   if (n == x.size()) return state;\n  const SoftmaxState state = [&]() -> SoftmaxState {\n" +
              region_of(book, "2.1") + "  }();\n  kept.emplace_back(x.size(), state);\n  return state;\n"),
      "failed");
  body("puts_its_work_off", "(std::thread([x, block] { (void)x.size(); (void)block; }).detach(), false)");
  // A name that the book's lines need could not be written any more behind the region.
  add("poisons_a_name_of_the_books", answer(book, "2.1", "#pragma GCC poison softmax\n" + region_of(book, "2.1")), "");
  // An explicit instantiation may name what is private: the matrix that holds the answer becomes the one that is read.
  add("takes_private_members_by_an_instantiation",
      before(answer(book, "2.3", "  data_of(O_tile) = const_cast<float*>(V.row(0).data());\n"),
             "template <auto member> struct Opened {\n  friend float*& data_of(workbook::Matrix<float>& m) { return "
             "m.*member; }\n};\ntemplate struct Opened<&workbook::Matrix<float>::data_>;\nfloat*& "
             "data_of(workbook::Matrix<float>&);\n"),
      "passed");
  samples.back().first = true;
  return samples;
}

void write_sample(const fs::path& folder, const Sample& sample) {
  fs::create_directories(folder / sample.name);
  for (const auto& [name, text] : sample.files) book::write_file(folder / sample.name / name, text);
}

}  // namespace workbook::test
