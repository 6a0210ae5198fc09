// What a tree's worker is compiled from.
#include "common/judge/plan.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/support/temporary_folder.hpp"

using namespace workbook;
using namespace workbook::judge;

TEST_CASE("of a tree for the first element alone the other elements' files are the book's, unless they are changed") {
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
