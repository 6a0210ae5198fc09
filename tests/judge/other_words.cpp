#include "tests/judge/other_words.hpp"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <set>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/text.hpp"
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

/// Ideas: what honest submissions lost points for in an attack on the grader at 07f50e5, then what C++ allows and a
/// reader of text trips over (comments, texts, macros, names, brackets).
const std::array kStyles{
    Style{"  // Zuerst das Maximum, dann die Summe: \"don't\" (sic), {[ und 1'000 /* gehören dazu."},
    Style{"  constexpr int own_million = 1'000'000;  // it's 10^6\n  static_assert(own_million > 0);"},
    Style{"#if 0\n  That's how it works (and it doesn't matter: { [\n#endif"},
    Style{"#define OWN_OPEN {\n#define OWN_CLOSE }\n  OWN_OPEN int own_a = 0; (void)own_a; OWN_CLOSE"},
    Style{"#define OWN_TEXT(c) #c\n  const char* own_text = OWN_TEXT(a + b); (void)own_text;"},
    Style{"  const char* own_raw = R\"x(} /* \" ' )\")x\"; (void)own_raw;"},
    Style{"  const auto own_twice = [](int own_a) -> int { return 2 * own_a; };\n  (void)own_twice(2);"},
    Style{"  struct Own {\n    int a = 1;\n    int twice() const { return 2 * a; }\n  };\n  (void)Own{}.twice();"},
    Style{"  const auto own_bits = [](unsigned own_x) { return __popc(own_x); };\n  (void)own_bits;", "",
          Where::kernels},
    Style{"#pragma GCC unroll 4\n  for (int own_i = 0; own_i < 4; ++own_i) {\n  }"},
    Style{"  (void)0;", "#pragma GCC optimize(\"O3\")", Where::host},
    Style{"#pragma omp simd\n  for (int own_i = 0; own_i < 4; ++own_i) {\n  }"},
    Style{"  int größe = 1;\n  (void)größe;"}, Style{"  do {\n  } while (false);  // TODO: tidy up; END of it"},
    Style{"  enum { own_rows = 16 };\n  using own_type = decltype(own_rows);\n  (void)own_type{};"},
    Style{"  const float own_table[] = {1.f, 2.f};\n  const auto [own_first, own_second] = own_table;\n  "
          "(void)(own_first + own_second);"},
    Style{"  (void)own_helper(2);", "static inline int own_helper(int a) { return a; }"},
    Style{"  (void)own_space::twice(2);", "namespace own_space {\ninline int twice(int a) { return 2 * a; }\n}"},
    Style{"  (void)own_made.size();", "#include <vector>\nstatic const std::vector<float> own_made(10, 1.5f);",
          Where::host},
    Style{"  (void)OWN_TWICE(2);", "#define OWN_TWICE(x) (2 * (x))"},
    Style{"  (void)own_pair<int>{1, 2}.b;", "template <class T>\nstruct own_pair {\n  T a, b;\n};"},
    Style{"  (void)own_one;", "constexpr int own_one = 1;"}, Style{"  assert(1 + 1 == 2);", "#include <cassert>"},
    Style{"  (void)std::is_same_v<int, long>;", "#include <bits/stdc++.h>"},
    Style{"  const clock_t own_begin = clock();\n  (void)own_begin;", "#include <time.h>", Where::host},
    Style{"  int own_n = 3;\n  float own_row[own_n];\n  own_row[0] = 0;\n  (void)own_row;", "", Where::host},
    Style{"  char own_text[16];\n  std::sprintf(own_text, \"%d\", 7);", "#include <cstdio>", Where::host},
    Style{"  (void)std::stof(\"1.5\");", "#include <string>", Where::host},
    Style{"  static float own_kept[100];\n  own_kept[3] += 1;", "", Where::host},
    Style{"  try {\n    throw std::runtime_error(\"own\");\n  } catch (const std::exception&) {\n  }",
          "#include <stdexcept>", Where::host},
    Style{"  try {\n    throw 42;\n  } catch (int own_thrown) {\n    (void)own_thrown;\n  }", "", Where::host},
    Style{"  std::complex<float> own_z(1, 2);\n  own_z = own_z * own_z / own_z;", "#include <complex>", Where::host},
    Style{"  volatile __int128 own_wide = 7;\n  own_wide = own_wide / 3;", "", Where::host},
    Style{"  int own_numbers[] = {2, 1};\n  std::qsort(own_numbers, 2, sizeof(int), [](const void*, const void*) { "
          "return 0; });",
          "#include <cstdlib>", Where::host},
    Style{"  (void)std::tolower('A');", "#include <cctype>", Where::host},
    Style{"  if (std::isnan(0.f)) std::cerr << \"never\" << std::endl;", "#include <cmath>\n#include <iostream>",
          Where::host},
    Style{"  std::map<std::string, std::unique_ptr<int>> own_map;\n  own_map[\"a\"] = std::make_unique<int>(1);",
          "#include <map>\n#include <memory>\n#include <string>", Where::host},
    // A second list, thought out before the grader was read.
    Style{"  [](int own_i) {\n  own_again:\n    switch (own_i) {\n      case 0:\n        ++own_i;\n        "
          "[[fallthrough]];\n"
          "      case 1:\n        if (own_i < 2 and not (own_i > 5)) {\n          own_i += 2;\n          goto "
          "own_again;\n"
          "        }\n    }\n  }(0);"},
    // clang-format would take the brackets apart.
    Style{"  // clang-format off\n  int own_list<:2:> = <% 1, 2 %>;\n  (void)own_list;\n  // clang-format on"},
    Style{"  for (const int own_i : std::views::iota(0, 3)) (void)own_i;", "#include <ranges>", Where::host},
    Style{"  std::variant<int, float> own_v = 1.5f;\n  (void)std::visit([](auto own_x) { return int(own_x); }, own_v);",
          "#include <variant>", Where::host},
    Style{"  thread_local std::vector<float> own_scratch;\n  own_scratch.assign(4, 0.f);", "#include <vector>",
          Where::host},
    Style{"  auto* own_block = static_cast<float*>(std::malloc(64));\n  std::free(own_block);", "#include <cstdlib>",
          Where::host},
    Style{"  struct OwnBase {\n    virtual ~OwnBase() = default;\n    virtual int own_get() const { return 1; }\n  };\n"
          "  struct OwnMore : OwnBase {\n    int own_get() const override { return 2; }\n  };\n  const OwnMore "
          "own_more;\n"
          "  (void)static_cast<const OwnBase&>(own_more).own_get();",
          "", Where::host},
    Style{"  (void)1.0_own;", "constexpr long double operator\"\"_own(long double x) { return x; }", Where::host},
    Style{"  (void)std::bit_cast<unsigned>(1.0f);", "#include <bit>"},
    Style{"  std::valarray<float> own_row(1.f, 4);\n  (void)std::inner_product(std::begin(own_row), std::end(own_row), "
          "std::begin(own_row), 0.f);",
          "#include <numeric>\n#include <valarray>", Where::host},
    Style{"  own_task();",
          "#include <coroutine>\nstruct OwnTask {\n  struct promise_type {\n    OwnTask get_return_object() { return "
          "{}; }\n"
          "    std::suspend_never initial_suspend() { return {}; }\n    std::suspend_never final_suspend() noexcept { "
          "return {}; }\n    void return_void() {}\n    void unhandled_exception() {}\n  };\n};\ninline OwnTask "
          "own_task() { co_return; }",
          Where::host},
    Style{"  const auto own_owner = std::make_shared<float[]>(4);\n  std::any own_any = own_owner[0];\n"
          "  const std::function<float(float)> own_twice = [](float own_x) { return 2 * own_x; };\n"
          "  (void)own_twice(std::any_cast<float>(own_any));",
          "#include <any>\n#include <functional>\n#include <memory>", Where::host},
    Style{"  std::mt19937 own_engine(1);\n  std::normal_distribution<float> own_normal;\n  "
          "(void)own_normal(own_engine);\n"
          "  (void)(std::regex_match(std::string(\"aa\"), std::regex(\"a+\")) ? std::bitset<9>(7).count() : 0);",
          "#include <bitset>\n#include <random>\n#include <regex>", Where::host},
    Style{"  char own_text[32];\n  std::to_chars(own_text, own_text + 32, 1.5f);\n  std::ostringstream own_stream;\n"
          "  own_stream << std::setprecision(3) << own_text << "
          "std::chrono::steady_clock::now().time_since_epoch().count() "
          "<< std::chrono::system_clock::now().time_since_epoch().count();",
          "#include <charconv>\n#include <chrono>\n#include <iomanip>\n#include <sstream>", Where::host},
    Style{
        "  std::priority_queue<float> own_queue;\n  std::unordered_map<int, std::list<float>> own_lists{{1, {1, 2}}};\n"
        "  std::deque<float> own_deque(own_lists[1].begin(), own_lists[1].end());\n"
        "  std::stable_sort(own_deque.begin(), own_deque.end());\n"
        "  for (const float own_x : own_deque | std::views::reverse) own_queue.push(own_x);\n"
        "  (void)std::reduce(own_deque.begin(), own_deque.end());",
        "#include <algorithm>\n#include <deque>\n#include <list>\n#include <numeric>\n#include <queue>\n#include "
        "<ranges>\n#include <unordered_map>",
        Where::host},
    Style{
        "  volatile double own_x = 0.5;\n  int own_e = 0;\n  double own_i = 0;\n  own_x = std::ldexp(std::frexp(own_x, "
        "&own_e), own_e) + std::modf(own_x, &own_i) + std::fma(own_x, own_x, own_x) + std::lround(own_x) + "
        "std::nearbyint(own_x) + std::hypot(own_x, 1) + std::log1p(own_x) + std::expm1(own_x) + "
        "std::nextafter(own_x, 1) + std::scalbn(own_x, 2) + std::lgamma(own_x) + std::erfc(own_x) + "
        "std::riemann_zeta(own_x);",
        "#include <cmath>", Where::host},
    Style{"#pragma unroll\n  for (int own_i = 0; own_i < 4; ++own_i) {\n  }", "", Where::kernels},
    Style{"  alignas(16) float own_four[4] = {1, 2, 3, 4};\n  const float4 own_all = *reinterpret_cast<const "
          "float4*>(own_four);\n  (void)own_all;",
          "", Where::kernels}};

/// Whether a region is part of a file or class rather than a function, so that it cannot contain statements.
bool holds_declarations(const book::Region& region) {
  return !region.body.empty() &&
         (!region.body[0].starts_with(" ") || region.body[0].starts_with("  static __device__") ||
          region.body[0].starts_with("  __device__") || region.body[0].starts_with("  __host__") ||
          region.body[0].starts_with("  template <"));
}

/// The text with these lines after its last #include outside all regions.
std::string with_between(const std::string& text, const std::string& lines) {
  const std::size_t include = text.rfind("\n#include");
  const std::size_t at = include == std::string::npos ? 0 : text.find('\n', include + 1) + 1;
  return text.substr(0, at) + lines + "\n" + text.substr(at);
}

}  // namespace

std::span<const Style> honest_styles() {
  return kStyles;
}

std::string in_other_words(const book::Book& book, const book::Chapter& chapter, const std::string& file) {
  std::string text = book::read_file(book.solution(chapter, file));
  const Where other = file.ends_with(".cpp") ? Where::kernels : Where::host;
  // Files that include each other may have the same style.
  const auto named = [prefix = "own_" + book::replaced(file, ".", "_") + "_"](std::string_view lines) {
    return book::replaced(lines, "own_", prefix);
  };
  std::set<std::string> between;
  std::size_t at = std::hash<std::string>{}(chapter.name() + file);
  for (const book::Region& region : book::parse_reader("", text).regions) {
    while (kStyles[++at % kStyles.size()].where == other) {
    }
    const Style& style = kStyles[holds_declarations(region) ? 0 : at % kStyles.size()];
    std::vector<std::string> body = region.body;
    body.insert(body.begin(), named(style.body));
    body.emplace_back("  /* fertig: #if 0 gilt hier nicht */");
    text = book::replace_body(book::parse_reader("", text), region.id, body);
    if (style.between[0] != 0) between.insert(named(style.between));
  }
  text = reformatted(text);
  for (const std::string& lines : between) text = with_between(text, lines);
  return text;
}

}  // namespace workbook::test
