// How often the command builds: once per call, and the book's own targets only after a change of the book: first the
// program that implements the verb, then its dependencies.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "common/book/files.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Replaces ninja and CMake in toolchain.json by programs that record their calls.
class CountedBuilds {
 public:
  explicit CountedBuilds(const WorkbookCopy& book) : book_(book) {
    json toolchain = json::parse(book.read(kToolchain));
    toolchain["ninja"] = stand_in("ninja", toolchain["ninja"]);
    toolchain["cmake"] = stand_in("cmake", toolchain["cmake"]);
    book.write(kToolchain, toolchain.dump());
  }
  struct Builds {
    int cmake, ninja;
    bool operator==(const Builds&) const = default;
  };
  /// The builds of one call of the command.
  Builds of(const std::vector<std::string>& arguments) const {
    book::write_file(scratch("calls"), "");
    book_.run(arguments);
    const std::string calls = book::read_file(scratch("calls"));
    return {occurrences(calls, "cmake\n"), occurrences(calls, "ninja\n")};
  }

 private:
  static constexpr const char* kToolchain = "build/default/toolchain.json";
  static std::string stand_in(const std::string& name, const std::string& program) {
    const fs::path path = scratch(name);
    book::write_file(path, "#!/bin/sh\necho " + name + " >>\"" + scratch("calls").string() + "\"\nexec \"" + program +
                               "\" \"$@\"\n");
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
  const WorkbookCopy& book_;
};

}  // namespace

TEST_CASE("a test starts one build, of one chapter or of several, and no more of the book than has changed") {
  const WorkbookCopy book;
  const CountedBuilds builds(book);
  using Builds = CountedBuilds::Builds;
  for (const char* id : {"1.1", "1.2", "1.3", "2.1"}) book.solve(id);
  CHECK(builds.of({"test", "1"}) == Builds{2, 1});  // the test program, and chapter 1's tests
  CHECK(builds.of({"test", "1.2"}) == Builds{0, 1});
  book.edit(book.readers_file("1.2"), "// END 1.2", "(void)0;\n  // END 1.2");
  CHECK(builds.of({"test", "1.2"}) == Builds{0, 1});
  CHECK(builds.of({"test", "1", "2"}) == Builds{1, 1});  // chapter 2's tests were not built before
  CHECK(builds.of({"test", "1", "2"}) == Builds{0, 1});
  book.write("common/attention/remark.hpp", "// The book has changed.\n");
  CHECK(builds.of({"test", "1"}) == Builds{2, 1});
  fs::remove(book / "common/attention/remark.hpp");
}

TEST_CASE("an exercise that is open needs no compiler") {
  const WorkbookCopy book;
  const CountedBuilds builds(book);
  CHECK(book.run({"test", "1.1"}).exit_code == 1);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"test", "1.1"}, {"test", "1.1", "2.1"}, {"test", "1.1", "--json"}})
    CHECK(builds.of(arguments) == CountedBuilds::Builds{0, 0});
  const Ran ran = book.run({"test", "1.1"});
  CHECK(contains(ran.out, "todo 1.1 (chapters/01_naive_attention/naive_attention.cpp:"));
  CHECK(contains(ran.out, "next: exercise 1.1"));
}
