// What a test program of the book's own may read of chapters.
#include "common/gates/reads.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace workbook;
using namespace workbook::gates;

TEST_CASE("files of selected chapters, files with a selected name and files of no chapter are read") {
  const OfChapters reads{{1, 3}, {"mistakes.cpp"}};
  for (const char* taken : {"tests/01_sums/test_sums.cpp", "solutions/03_c/c.cu", "tests/02_b/mistakes.cpp",
                            "tests/steps/01_sums.toml", "common/judge/run.cpp", "README.md"}) {
    CHECK(reads.take(taken));
  }
  for (const char* left : {"tests/02_b/test_b.cpp", "chapters/12_d/README.md", "tests/steps/02_b.toml"})
    CHECK_FALSE(reads.take(left));
}
