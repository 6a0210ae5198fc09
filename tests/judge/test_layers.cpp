// The layers of common/: an include points down, and so does what a library is linked with.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/book/files.hpp"

using namespace workbook;
namespace fs = std::filesystem;

namespace {

/// Lowest first. Folders of one layer know nothing of each other.
const std::vector<std::set<std::string>> kLayers{{"attention", "simt"},
                                                 {"nccl"},
                                                 {"cuda"},
                                                 {"worker"},
                                                 {"book"},
                                                 {"judge"},
                                                 {"grading", "bench", "training", "gates", "pictures"},
                                                 {"cli"}};

/// The position of a folder's layer; the number of layers for a folder that there is not.
std::size_t layer_of(const std::string& folder) {
  const auto found = std::ranges::find_if(kLayers, [&](const auto& layer) { return layer.contains(folder); });
  return std::size_t(found - kLayers.begin());
}

bool may_use(const std::string& folder, const std::string& used) {
  return layer_of(folder) < kLayers.size() && (folder == used || layer_of(used) < layer_of(folder));
}

/// "common/book/files.hpp" -> "book"; empty for a file outside the folders of common/.
std::string folder_of(const std::string& file) {
  static const std::regex in_common("common/([a-z]+)/.*");
  std::smatch match;
  return std::regex_match(file, match, in_common) ? match[1].str() : "";
}

/// Which of a file's includes the layers do not allow.
std::vector<std::string> wrong_includes(const std::string& file, const std::vector<std::string>& includes) {
  std::vector<std::string> wrong;
  for (const std::string& include : includes) {
    const std::string folder = folder_of(include);
    if (folder.empty() || !may_use(folder_of(file), folder)) wrong.push_back(file + " includes " + include);
  }
  return wrong;
}

/// What a file includes with quotes, as it is written there.
std::vector<std::string> includes_of(const std::string& text) {
  static const std::regex directive("^\\s*#\\s*include\\s*\"([^\"]+)\".*");
  std::vector<std::string> includes;
  std::istringstream lines(text);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, directive)) includes.push_back(match[1]);
  }
  return includes;
}

/// The libraries and programs of a folder in common/, and the libraries with which each is linked.
using Linked = std::map<std::string, std::vector<std::string>>;
Linked linked_in(const std::string& cmake) {
  static const std::regex call("workbook_(?:library|program)\\(\\s*(\\w+)\\s[^)]*?\\sLINK\\s([^)]*)\\)");
  Linked linked;
  for (std::sregex_iterator at(cmake.begin(), cmake.end(), call); at != std::sregex_iterator(); ++at) {
    std::istringstream names((*at)[2].str());
    std::vector<std::string>& used = linked[(*at)[1]];
    for (std::string name; names >> name;) used.push_back(name);
  }
  return linked;
}

/// Which libraries are linked with one that their layer does not allow. By folder.
std::vector<std::string> wrong_links(const std::map<std::string, Linked>& folders) {
  std::map<std::string, std::string> home;  // of each library
  for (const auto& [folder, libraries] : folders) {
    for (const auto& [library, used] : libraries) home[library] = folder;
  }
  std::vector<std::string> wrong;
  for (const auto& [folder, libraries] : folders) {
    for (const auto& [library, used] : libraries) {
      for (const std::string& name : used) {
        if (home.contains(name) && !may_use(folder, home.at(name)))
          wrong.push_back(folder + "'s " + library + " is linked with " + name);
      }
    }
  }
  return wrong;
}

const fs::path kRoot = WORKBOOK_SOURCE;

}  // namespace

TEST_CASE("a kernel file includes no header that reads counters or changes checks") {
  std::set<std::string> seen;
  std::vector<std::string> open{"common/cuda/kernel.hpp", "common/cuda/memory.hpp", "common/cuda/ptx.hpp",
                                "common/simt/copies.hpp"};
  while (!open.empty()) {
    const std::string file = open.back();
    open.pop_back();
    if (!seen.insert(file).second) continue;
    for (const std::string& include : includes_of(book::read_file(kRoot / file)))
      if (fs::exists(kRoot / include)) open.push_back(include);
  }
  CHECK(seen.contains("common/simt/runtime.hpp"));
  for (const char* hosts : {"common/cuda/backend.hpp", "common/simt/simulator.hpp", "common/cuda/device.hpp",
                            "common/cuda/operations.hpp"}) {
    INFO(hosts);
    CHECK(!seen.contains(hosts));
  }
}

TEST_CASE("an include points down") {
  const std::vector<std::string> below{"common/attention/problem.hpp", "common/worker/worker.hpp"};
  CHECK(wrong_includes("common/book/x.cpp", below).empty());
  CHECK(wrong_includes("common/book/x.cpp", {"common/book/files.hpp"}).empty());
  CHECK(wrong_includes("common/cli/x.cpp", {"common/gates/gate.hpp", "common/training/model.hpp"}).empty());

  CHECK(wrong_includes("common/book/x.cpp", {"common/attention/problem.hpp", "common/judge/run.hpp"}) ==
        std::vector<std::string>{"common/book/x.cpp includes common/judge/run.hpp"});
  CHECK(wrong_includes("common/judge/x.cpp", {"common/cli/session.hpp"}).size() == 1);
  CHECK(wrong_includes("common/grading/x.cpp", {"common/cli/session.hpp"}).size() == 1);
  CHECK(wrong_includes("common/cuda/x.hpp", {"common/worker/worker.hpp"}).size() == 1);
  CHECK(wrong_includes("common/worker/x.hpp", {"common/book/files.hpp"}).size() == 1);
  // Side by side: neither of the other.
  CHECK(wrong_includes("common/attention/x.cpp", {"common/simt/half.hpp"}).size() == 1);
  CHECK(wrong_includes("common/simt/x.cpp", {"common/attention/half.hpp"}).size() == 1);
  CHECK(wrong_includes("common/grading/x.cpp", {"common/bench/tables.hpp"}).size() == 1);
  CHECK(wrong_includes("common/gates/x.cpp", {"common/training/model.hpp"}).size() == 1);
  // Nothing of common/ includes a chapter or a test; a new folder needs its place.
  CHECK(wrong_includes("common/cuda/x.cpp", {"solutions/04_q_split/q_split.hpp", "tests/text.hpp"}).size() == 2);
  CHECK(wrong_includes("common/judge/x.cpp", {"common/unheard/of.hpp"}).size() == 1);
  CHECK(wrong_includes("common/unheard/x.cpp", {"common/unheard/of.hpp"}).size() == 1);
}

TEST_CASE("includes are found however they are written") {
  CHECK(includes_of("#include <vector>\n#include \"common/a/b.hpp\"\n  #  include  \"c.hpp\"  // why\n// #include\n") ==
        std::vector<std::string>{"common/a/b.hpp", "c.hpp"});
}

TEST_CASE("a library is linked with the layers below it") {
  const std::string judge = "workbook_library(judge plan.cpp\n run.cpp LINK verdict book fmt::fmt)\n";
  CHECK(linked_in(judge) == Linked{{"judge", {"verdict", "book", "fmt::fmt"}}});
  const Linked book = linked_in("workbook_library(book a.cpp LINK judge)\n");
  CHECK(wrong_links({{"judge", linked_in("workbook_library(judge a.cpp LINK book)\n")},
                     {"book", linked_in("workbook_library(book a.cpp LINK fmt::fmt)\n")}})
            .empty());
  CHECK(wrong_links({{"judge", linked_in(judge)}, {"book", book}}) ==
        std::vector<std::string>{"book's book is linked with judge"});
  CHECK(wrong_links({{"grading", linked_in("workbook_library(grading a.cpp LINK bench)\n")},
                     {"bench", linked_in("workbook_library(bench a.cpp LINK book)\n")}})
            .size() == 1);
}

TEST_CASE("the folders of common/ keep to their layers") {
  std::vector<std::string> wrong;
  std::map<std::string, Linked> folders;
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "common")) {
    const std::string file = entry.path().lexically_relative(kRoot).generic_string();
    const std::string extension = entry.path().extension().string();
    if (entry.path().filename() == "CMakeLists.txt" && !folder_of(file).empty())
      folders[folder_of(file)] = linked_in(book::read_file(entry.path()));
    if (extension != ".cpp" && extension != ".hpp" && extension != ".cu" && extension != ".cuh") continue;
    ++files;
    for (const std::string& found : wrong_includes(file, includes_of(book::read_file(entry.path()))))
      wrong.push_back(found);
  }
  CHECK(files > 150);
  for (const std::string& found : wrong_links(folders)) wrong.push_back(found);
  for (const std::string& found : wrong) UNSCOPED_INFO(found);
  CHECK(wrong.empty());
  CHECK(folders.size() >= 9);
}

TEST_CASE("no file of cli has more than 300 lines") {
  for (const auto& entry : fs::directory_iterator(kRoot / "common" / "cli")) {
    CAPTURE(entry.path().filename());
    CHECK(std::ranges::count(book::read_file(entry.path()), '\n') <= 300);
  }
}
