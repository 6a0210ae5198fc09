// The filter by name: what it refuses, and what it must not.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <ctime>

#include "common/book/files.hpp"
#include "common/grading/screen.hpp"

using namespace workbook;
using grading::screen_source;

TEST_CASE("names that have no place in an answer are refused, with their line") {
  const auto [source, what] = GENERATE(table<std::string, std::string>({
      {"void f() {\n  asm(\"nop\");\n}\n", "inline assembly"},
      {"void f() {\n  __asm__ volatile(\"nop\");\n}\n", "inline assembly"},
      {"\nusing namespace workbook::simt;\n", "internals"},
      {"\nvoid __tsan_read4(void*);\n", "callbacks"},
      {"\n__attribute__((no_sanitize(\"thread\"))) void f();\n", "hides code"},
      {"\n[[gnu::no_sanitize_thread]] void f();\n", "hides code"},
      {"\n#ifdef __SANITIZE_THREAD__\n#endif\n", "simulator from a GPU"},
      {"\n#if defined(__CUDA_ARCH__)\n#endif\n", "simulator from a GPU"},
      {"\n#pragma GCC optimize(\"O0\")\n", "#pragma"},
      {"\n#include <unistd.h>\n", "#include <unistd.h>"},
      {"\n#include \"unistd.h\"\n", "#include"},
      {"\n#  include  \"../../solutions/x.hpp\"\n", "#include"},
      {"\n%:include <sys/mman.h>\n", "#include"},
      {"\n#include /* */ <sys/mman.h>\n", "#include"},
      {"\n#include NAME\n", "made by a macro"},
      {"\n#inc\\\nlude <unistd.h>\n", "#include"},
      {"\nint as\\\nm = 0;\n", "inline assembly"},
      {"\n#define PASTE(a, b) a##b\n", "pasted together"},
      {"\n#line 7 \"other.cpp\"\n", "#line"},
      {"\n#include_next <vector>\n", "#include_next"},
      {"\nlong f() { return syscall(1); }\n", "round the language"},
      {"\nchar s[] = \"//\"; asm(\"\");\n", "inline assembly"},
      {"\nchar c = '\"'; asm(\"\"); char d = '\"';\n", "inline assembly"},
      {"\nauto s = R\"x( )\" )x\"; asm(\"\");\n", "inline assembly"},
      {"\nint n = 1'000; asm(\"\"); int m = 2'000;\n", "inline assembly"},
      // A name before a text that is no prefix; a prefix before a character; a form feed and a tab in a splice.
      {"\n#define xLR\nauto s = xLR\"(\"; asm(\"\"); //)\"\n", "inline assembly"},
      {"\nauto c = L'\"'; asm(\"\"); auto d = L'\"';\n", "inline assembly"},
      {"\nauto c = u8'\"'; asm(\"\"); auto d = u8'\"';\n", "inline assembly"},
      {"\nint as\\\f\t\v\nm = 0;\n", "inline assembly"},
      {"\nauto s = R\"x(\n)\\\nx\" )x\"; asm(\"\");\n", "inline assembly"},
      {"\nint n = 0x1p-3f'0; asm(\"\"); auto d = '\"';\n", "inline assembly"},
      {"\nstatic void f() __attribute__((weakref(\"send\")));\n", "attribute"},
      {"\n[[gnu::constructor]] void f();\n", "attribute"},
      {"\n__attribute__((section(\".text\"))) const char code[] = {15, 5};\n", "attribute"},
      {"\n__attribute__((__alias__(\"f\"))) void g();\n", "attribute"},
      {"\n#define HIDDEN __attribute__\n", "attribute"},
      {"\nextern \"C\" void _ZN8workbook6worker4sendEv();\n", "round the language"},
      {"\n#define TEXT(x) #x\n", "text of code"},
      {"\nint \\u0061sm;\n", "backslash"},
      {"\nvoid f(float* a, const float* b) { __builtin_memcpy(a, b, 32); }\n", "does not see"},
      {"\n#undef __builtin_memmove\n", "does not see"},
  }));
  INFO(source);
  const auto refusals = screen_source(source, "");
  REQUIRE(!refusals.empty());
  CHECK(refusals[0].what.find(what) != std::string::npos);
  CHECK(refusals[0].line >= 2);
  CHECK(refusals[0].line <= 4);
}

TEST_CASE("what an honest answer holds is not refused") {
  const std::string source = GENERATE(
      "// asm, __tsan_read4 and simt:: in a comment\n", "/* #include <unistd.h> */\n",
      "const char* s = \"asm(simt::__tsan)\";\n", "auto s = R\"(\n#include <unistd.h>\nasm)\";\n",
      "#include <vector>\n#include <cmath>\n#include \"online_softmax.hpp\"\n#include \"common/cuda/kernel.hpp\"\n",
      "#pragma once\n#pragma unroll\n#pragma unroll 4\n", "int simtitle = 0, asmuch = 1;\n",
      "#define SQUARE(x) ((x) * (x))\n#if 1\n#else\n#endif\n", "WORKBOOK_TODO(2.1);\n", "");
  INFO(source);
  for (const auto& refusal : screen_source(source, "")) UNSCOPED_INFO(refusal.line << ": " << refusal.what);
  CHECK(screen_source(source, "").empty());
}

TEST_CASE("a long line of quotes, of openings of raw texts or of refused names takes no longer than other text") {
  for (const std::string piece :
       {"\"\"", "'\"'", "R\"", "asm ", "/*", "\\ ", "#", "\"\\\n", "u8R\"aaaaaaaaaaaaaaaaaaaaaa"}) {
    INFO(piece);
    std::string source;
    while (source.size() < (1u << 20)) source += piece;
    const auto start = std::clock();
    screen_source(source, "");
    // Less than one second; it took minutes.
    CHECK(double(std::clock() - start) / CLOCKS_PER_SEC < 5);
  }
}

TEST_CASE("the book's own solutions pass the filter, and given lines are not looked at") {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(WORKBOOK_SOURCE) + "/solutions")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".cu") continue;
    const std::string text = book::read_file(entry.path());
    INFO(entry.path().string());
    for (const auto& refusal : screen_source(text, "")) {
      // What the file was handed out with may be special; an answer within it may not.
      CHECK(screen_source(text, text).empty());
      INFO(refusal.line << ": " << refusal.what);
      CHECK(refusal.what.starts_with("#include"));
    }
    SUCCEED();
  }
  CHECK(screen_source("#include <unistd.h>\n", "#include <unistd.h>\n").empty());
}
