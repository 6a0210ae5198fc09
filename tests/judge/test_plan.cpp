// What a tree's worker is compiled from.
#include "common/judge/plan.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "common/book/files.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace workbook;
using namespace workbook::judge;

TEST_CASE("in a tree for the first element type, unchanged files of other element types are the book's") {
  const TemporaryFolder folder;
  const std::string other = "#define WORKBOOK_ELEMENT bfloat16\n#include \"kernel.cu\"\n";
  for (const char* tree : {"solutions/03_tiles/", "tree/"}) {
    folder.write(std::string(tree) + "kernel_bf16.cu", other);
    folder.write(std::string(tree) + "kernel.cu", "// of " + std::string(tree) + "\n");
  }
  Workspace workspace;
  workspace.book.root = folder.path();
  book::Chapter chapter;
  chapter.number = 3;
  chapter.slug = "tiles";
  chapter.more_elements = {bfloat16};
  chapter.files = {"kernel.cu", "kernel_bf16.cu"};
  Tree tree{"open", folder / "tree"};
  const auto is_of_tree = [&](const char* file) {
    const worker::WorkerJob job = whole_job(workspace, chapter, tree, Backend::sim);
    return std::ranges::count(job.sources, tree.folder / file) > 0;
  };
  CHECK(is_of_tree("kernel.cu"));
  CHECK(is_of_tree("kernel_bf16.cu"));  // it includes what is changed
  tree.first_element_only = true;
  CHECK(is_of_tree("kernel.cu"));
  CHECK_FALSE(is_of_tree("kernel_bf16.cu"));
  folder.write("tree/kernel_bf16.cu", other + "// BEGIN 3.1\n");
  CHECK(is_of_tree("kernel_bf16.cu"));
}

TEST_CASE("a graft has stubs instead of answers that it does not need, and keeps the other lines' numbers") {
  const TemporaryFolder folder;
  const auto region = [](const std::string& id, const std::string& body) {
    return "// TODO(" + id + ") x\n// BEGIN " + id + "\n" + body + "// END " + id + "\n";
  };
  folder.write("solutions/03_tiles/a.cpp",
               region("3.1", "one();\n") + region("3.2", "two();\nthen();\n") + "last();\n");
  folder.write("solutions/03_tiles/b.cpp", region("3.3", "three();\n"));
  folder.write("tree/a.cpp", region("3.1", "mine();\n") + region("3.2", "two();\nthen();\n") + "last();\n");
  folder.write("tree/b.cpp", region("3.3", "wrong();\n"));
  Workspace workspace;
  workspace.book.root = folder.path();
  workspace.toolchain.build_folder = folder / "build";
  book::Chapter chapter;
  chapter.number = 3;
  chapter.slug = "tiles";
  chapter.files = {"a.cpp", "b.cpp"};
  chapter.exercises.resize(1);
  chapter.exercises[0].id = "3.1";
  PlanRequest request;
  request.stubs["3.1"] = {"3.2", "3.3"};
  const Plan plan = make_plan(workspace, chapter, {"tree", folder / "tree"}, request);
  REQUIRE(plan.exercises.at("3.1").worker != plan.whole);
  const std::string grafts = "build/grafts/tree/3.1/03_tiles/";
  const std::string a = book::read_file(folder / (grafts + "a.cpp")), b = book::read_file(folder / (grafts + "b.cpp"));
  CHECK(a.find("mine();") != std::string::npos);
  CHECK(a.find("// BEGIN 3.2\nWORKBOOK_TODO(3.2);\n\n// END 3.2\nlast();\n") != std::string::npos);
  CHECK(b.find("// BEGIN 3.3\nWORKBOOK_TODO(3.3);\n") != std::string::npos);
}
