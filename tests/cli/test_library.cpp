// `./workbook library`: its output, bad input, and the errors in Python for open exercises and wrong kernels.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tests/cli/schema.hpp"
#include "tests/cli/small_files.hpp"
#include "tests/cli/traced_book.hpp"
#include "tests/python/python.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

const std::string mine = "chapters/" + ch03 + "/tiled_wmma.cu", books = "solutions/" + ch03 + "/tiled_wmma.cu";

/// The result of a call of the library in Python: "ok", or the error's type and text.
std::string call_of(const WorkbookCopy& book, const std::string& library, const std::string& python) {
  const std::string script =
      "import numpy, flash_attention_workbook as workbook\n"
      "a = numpy.random.default_rng(1).standard_normal((1, 2, 150, 64)).astype(numpy.float16)\n"
      "try:\n"
      "  O, lse = workbook.attention(a, a, a, return_lse=True)\n"
      "  S = a.astype(float) @ a.astype(float).swapaxes(2, 3) / 8\n"
      "  P = numpy.exp(S - lse[..., None])\n"
      "  print('ok' if abs(P @ a - O).max() < 4e-3 and abs(P.sum(-1) - 1).max() < 1e-3 else 'wrong')\n"
      "except Exception as error:\n"
      "  print(type(error).__name__, error)\n";
  const auto ran = run_python(python, WORKBOOK_SOURCE, {"-c", script}, (book / library).string());
  CHECK(ran.exit_code == 0);
  return ran.output;
}

}  // namespace

TEST_CASE("library --json follows notes/json.md; Python reports open exercises, races and invalid addresses") {
  require_counts();
  const WorkbookCopy book = book_with(ch03);
  const auto make = [&] {
    const Ran ran = book.run({"library", "--chapters", "3,3", "--backend", "sim", "--json"});
    INFO(ran.err);
    CHECK(ran.exit_code == 0);
    return ran.document();
  };
  const json open = make();
  expect_schema(book, "library", {open});
  CHECK(open["tree"] == "chapters");
  CHECK(open["chapters"] == json::array({3}));
  CHECK(open["open"].size() > 5);
  CHECK(book.exists(open["header"]));
  const std::string python = python_with_numpy();
  if (python.empty()) SKIP("no Python with numpy was found; WORKBOOK_PYTHON may name one");
  const std::string library = open["library"];
  CHECK(contains(call_of(book, library, python), "OpenExercise exercise 3."));

  const std::string right = book.read(books);
  book.write(mine, right);
  make();
  book.write("small/workbook.h", "");
  {
    const SmallFiles limit;
    const Ran full = book.run({"library", "--chapters", "3", "--backend", "sim", "--out", "small"});
    CHECK(full.exit_code == 3);
    CHECK(full.err == "workbook: cannot write small/libworkbook_sim.so: File too large\n");
  }
  CHECK(std::distance(std::filesystem::directory_iterator(book / "small"), {}) == 1);
  CHECK(call_of(book, library, python) == "ok\n");

  book.edit(mine, "  __syncthreads();  // O and l of all rows are stored\n", "");
  make();
  const std::string race = call_of(book, library, python);
  INFO(race);
  CHECK(race.starts_with("KernelFailed "));
  CHECK(contains(race, "race: read after write"));
  CHECK(contains(race, "tiled_wmma.cu:"));

  book.write(mine, right);
  book.edit(mine, "if (row < rows) lse_tile[row] =", "lse_tile[row] =");
  make();
  const std::string outside = call_of(book, library, python);
  INFO(outside);
  CHECK(contains(outside, "KernelFailed "));
  CHECK(contains(outside, "out of bounds, global memory"));
}

TEST_CASE("library refuses chapters without kernels, and folders that cannot be made") {
  const WorkbookCopy book;
  expect_refused(book, {"library"}, {"--chapters"});
  expect_refused(book, {"library", "--chapters", "2", "--backend", "sim"}, {"--chapters 2", "allowed"});
  expect_refused(book, {"library", "--chapters", "77"}, {"77"});
  expect_refused(book, {"library", "--chapters", "1.5"}, {"--chapters", "\"1.5\"", "allowed: a whole number from 1"});
  expect_refused(book, {"library", "--chapters", "1", "--backend", "cpu"}, {"--backend", "sim or cuda"});
  expect_refused(book, {"library", "--chapters", "1", "--out", "README.md"}, {"--out README.md", "allowed"});
}
