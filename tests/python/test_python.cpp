// The package in python/ on numpy arrays, with a library of the book's kernels and the simulator; and the C interface
// from C.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/judge/library.hpp"
#include "tests/python/python.hpp"

using namespace workbook;
namespace fs = std::filesystem;

namespace {

judge::Workspace workspace() {
  ::setenv("WORKBOOK_ROOT", WORKBOOK_SOURCE, 1);
  ::setenv("WORKBOOK_BUILD", WORKBOOK_BINARY, 1);
  return judge::open_workspace();
}

fs::path library_of(const std::vector<const char*>& numbers) {
  const judge::Workspace book = workspace();
  std::vector<const book::Chapter*> chapters;
  for (const char* number : numbers) chapters.push_back(&book.book.chapter(number));
  return judge::build_library(book, {chapters, "solutions", Backend::sim});
}
const fs::path& library() {
  // Includes chapter 6, whose stages no call uses, since its CPU code must link too.
  static const fs::path built = library_of({"8", "9", "6"});
  return built;
}
const fs::path& library_with_masks() {
  static const fs::path built = library_of({"15", "16"});
  return built;
}
const fs::path& library_with_cache() {
  static const fs::path built = library_of({"21"});
  return built;
}
/// The output of a script of tests/python, which must pass all of its checks.
std::string printed_by(const std::string& script, const fs::path& libraries, const std::string& argument = "") {
  const std::string python = test::python_with_numpy();
  if (python.empty()) SKIP("no Python with numpy was found; WORKBOOK_PYTHON may name one");
  const auto ran = test::run_python(python, WORKBOOK_SOURCE,
                                    {std::string(WORKBOOK_SOURCE) + "/tests/python/" + script, argument}, libraries);
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  return ran.output;
}

}  // namespace

TEST_CASE("numpy arrays on the simulator: results, gradients, layouts, threads, refused input") {
  CHECK(printed_by("numpy_arrays.py", library()).ends_with("refused\n"));
}

TEST_CASE("masks, sinks, packed sequences and shared heads of numpy arrays on the simulator") {
  CHECK(printed_by("numpy_masks.py", library_with_masks()).ends_with("refused\n"));
}

TEST_CASE("every argument of the package's functions is converted or refused by name and value") {
  CHECK(printed_by("numpy_entry.py", library_with_masks(), library_with_cache()).ends_with("refused\n"));
}

TEST_CASE("flash_attn's functions, lengths, padding and the gradient of the LSE, on numpy arrays") {
  CHECK(printed_by("numpy_flash_attn.py", library_with_masks(), library()).ends_with("refused\n"));
}

TEST_CASE("flash_attn_with_kvcache on numpy arrays: pages, new keys with RoPE, views, refused input") {
  CHECK(printed_by("numpy_kvcache.py", library_with_cache(), library()).ends_with("refused\n"));
}

TEST_CASE("PagedCache on numpy arrays: sequences that grow, fork and end, refused input") {
  CHECK(printed_by("numpy_paged_cache.py", library_with_cache()).ends_with("refused\n"));
}

TEST_CASE("a process that forks, that Ctrl-C interrupts, or whose library is replaced") {
  CHECK(printed_by("numpy_process.py", library(), library_with_masks()).ends_with("reload\n"));
}

TEST_CASE("the header is C, and a program in C can call the library") {
  const std::string compiler = worker::find_program("cc");
  if (compiler.empty()) SKIP("there is no compiler of C");
  const std::string program = std::string(WORKBOOK_BINARY) + "/tests/python_in_C";
  const auto made =
      worker::run_command({compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic",
                           std::string("-I") + WORKBOOK_SOURCE + "/common/cuda",
                           std::string(WORKBOOK_SOURCE) + "/tests/python/in_C.c", library(), "-lm", "-o", program});
  INFO(made.output);
  REQUIRE(made.exit_code == 0);
  const auto ran = worker::run_command({program});
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(ran.output.find("O.strides = (128, 64, 32, 2): stages need tensors without gaps") != std::string::npos);
}
