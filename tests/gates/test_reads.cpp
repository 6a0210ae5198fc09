// What a test program of the book's own may read of chapters.
#include "common/gates/reads.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <string>

#include "common/worker/command.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace workbook;
using namespace workbook::gates;

TEST_CASE("files of chapters are taken by number or name, and all others") {
  const OfChapters reads{{1, 3}, {"mistakes.cpp"}};
  for (const char* taken : {"tests/01_sums/test_sums.cpp", "solutions/03_c/c.cu", "tests/02_b/mistakes.cpp",
                            "tests/steps/01_sums.toml", "common/judge/run.cpp", "README.md"}) {
    CHECK(reads.take(taken));
  }
  for (const char* left : {"tests/02_b/test_b.cpp", "chapters/12_d/README.md", "tests/steps/02_b.toml"})
    CHECK_FALSE(reads.take(left));
}

TEST_CASE("a program reads no other file of a chapter, and everything else") {
  const TemporaryFolder book, elsewhere;
  for (const char* file : {"tests/01_sums/a.cpp", "tests/02_b/a.cpp", "tests/02_b/mistakes.cpp", "tests/02_b/in/a.cpp",
                           "chapters/02_b/README.md", "tests/steps/02_b.toml", "tests/steps/01_a.toml",
                           "notes/figures/02_b.svg", "build/chapters/02_b/a.cpp"}) {
    book.write(file, "text");
  }
  elsewhere.write("02_b/a.cpp", "text");
  const auto reads = [](const std::filesystem::path& file) {  // within a process that is started
    return worker::run_command({"/bin/cat", file.string()}).output.starts_with("text");
  };
  const bool restricted = with_only({{1}, {"mistakes.cpp"}}, book.path(), [&] {
    for (const char* file :
         {"tests/01_sums/a.cpp", "tests/02_b/mistakes.cpp", "tests/steps/01_a.toml", "build/chapters/02_b/a.cpp"}) {
      INFO(file);
      CHECK(reads(book / file));
    }
    CHECK(reads(elsewhere / "02_b/a.cpp"));
    book.write("build/new.txt", "text");
    CHECK(reads(book / "build/new.txt"));
  });
  if (!restricted) SKIP("this kernel has no Landlock");
  with_only({{1}, {"mistakes.cpp"}}, book.path(), [&] {
    for (const char* file : {"tests/02_b/a.cpp", "tests/02_b/in/a.cpp", "chapters/02_b/README.md",
                             "tests/steps/02_b.toml", "notes/figures/02_b.svg"}) {
      INFO(file);
      CHECK_FALSE(reads(book / file));
    }
  });
  CHECK(reads(book / "tests/02_b/a.cpp"));  // this thread is what it was
}
