// What an earlier check has kept: found again by all that went into it, and by nothing else.
#include "common/gates/kept.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/support/temporary_folder.hpp"

using namespace workbook;
using namespace workbook::gates;
namespace fs = std::filesystem;

namespace {

/// A book of one chapter with a tree in which exercise 1.1 is wrong, and a cache of its own.
class SmallBook {
 public:
  explicit SmallBook(const std::string& name = "a book") : folder_(name) {
    for (const char* tree : {"solutions/01_sums/", "build/check/mutants/1.1-minus/01_sums/"}) {
      folder_.write(std::string(tree) + "sums.cu", "// of " + std::string(tree));
      folder_.write(std::string(tree) + "sums.hpp", "// sums");
    }
    folder_.write("chapters/01_sums/chapter.toml", "# manifest");
    folder_.write("build/bin/tests_01_sums", "a program");
    folder_.write("build/server.o", "an object");
    folder_.write("build/precompiled/kernels.hpp.gch.d", "kernels.hpp.gch: common/simt/api.hpp \\\n common/warp.hpp\n");
    folder_.write("build/precompiled/host.hpp.gch.d", "host.hpp.gch: common/host.hpp\n");
    folder_.write("common/host.hpp", "// host");
    for (const char* header : {"kernels", "host"})
      folder_.write(std::string("build/precompiled/") + header + ".hpp.gch", "precompiled");
    folder_.write("common/simt/api.hpp", "// api");
    folder_.write("common/warp.hpp", "// warp");
    chapter_.number = 1;
    chapter_.slug = "sums";
    chapter_.files = {"sums.cu", "sums.hpp"};
    workspace_.book.root = folder_.path();
    workspace_.toolchain.root = folder_.path();
    workspace_.toolchain.build_folder = folder_ / "build";
    workspace_.toolchain.compiler_id = "GNU 12";
    worker::Toolchain::Rules& sim = workspace_.toolchain.backends[Backend::sim];
    sim.kernels = {"c++", "-O1"};
    sim.libraries = {"-Wl,-rpath," + (folder_ / "build/lib").string()};
    sim.objects = {(folder_ / "build/server.o").string()};
    sim.precompiled = "precompiled/kernels.hpp";
    sim.precompiled_host = "precompiled/host.hpp";
    request_.backend = Backend::sim;
    request_.only = "sums are right";
  }

  judge::Plan plan() const {
    judge::Plan plan;
    plan.chapter = &chapter_;
    plan.request = request_;
    plan.tree = {"check/mutants/1.1-minus", folder_ / "build/check/mutants/1.1-minus/01_sums"};
    worker::WorkerJob job = whole_job(workspace_, chapter_, plan.tree, Backend::sim);
    job.flags = flags_;
    plan.whole = job.name;
    plan.exercises["1.1"].worker = job.name;
    plan.jobs[job.name] = job;
    return plan;
  }
  std::string key() const {
    Digests digests(workspace_);
    return key_of(workspace_, plan(), request_, digests);
  }
  /// Keeps a failed test's verdict; the compiler has read api.hpp.
  void keep(const KeptResults& results) const {
    Digests digests(workspace_);
    judge::ChapterRun run;
    run.chapter = &chapter_;
    run.notes = {"a note"};
    run.tests.emplace_back();
    run.tests[0].test = "sums are right";
    run.tests[0].cause = judge::Cause{"minus", "it is subtracted", ""};
    results.keep(key(), {{"common/simt/api.hpp", digests.of("common/simt/api.hpp")}}, run);
  }
  std::optional<judge::ChapterRun> find(const KeptResults& results) const {
    Digests digests(workspace_);
    return results.find(key(), plan(), digests);
  }

  TemporaryFolder folder_;
  book::Chapter chapter_;
  judge::Workspace workspace_;
  judge::RunRequest request_;
  std::vector<std::string> flags_;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

}  // namespace

TEST_CASE("a result that was kept is found again, in any clone") {
  const TemporaryFolder cache;
  const KeptResults results(cache.path());
  const SmallBook book;
  CHECK_FALSE(book.find(results));
  book.keep(results);
  const SmallBook clone("another clone");
  CHECK(clone.key() == book.key());
  for (const SmallBook* each : {&book, &clone}) {
    const auto found = each->find(results);
    REQUIRE(found);
    REQUIRE(found->tests.size() == 1);
    CHECK(found->tests[0].test == "sums are right");
    CHECK(found->tests[0].result == judge::Result::failed);
    CHECK(found->tests[0].cause_id() == "minus");
    CHECK(found->notes == std::vector<std::string>{"a note"});
    CHECK(found->chapter == &each->chapter_);
    CHECK(found->tree == "check/mutants/1.1-minus");
  }
  CHECK_FALSE(book.find(KeptResults({})));
}

TEST_CASE("a program's result counts while no file that it may read has changed") {
  const TemporaryFolder cache;
  const KeptResults results(cache.path());
  const SmallBook book;
  for (const char* file :
       {"chapters/02_products/lesson.md", "solutions/02_products/x.cu", "tests/02_products/test_x.cpp",
        "tests/steps/02_products.toml", "tests/worker/test_a.cpp", "notes/a.md"})
    book.folder_.write(file, "first");
  const auto key = [&](const std::optional<OfChapters>& reads) {
    Digests digests(book.workspace_);
    return part_key(book.workspace_, "tests_a", reads, digests);
  };
  const OfChapters one{{1}, {}};
  if (worker::gpu_present()) SKIP("nothing is kept where there is a GPU");
  const std::string first = key(one), all = key({});
  CHECK(all != first);
  Digests digests(book.workspace_);
  results.keep(first, {}, nlohmann::json{{"passed", 3}});
  CHECK(results.find(first, digests)->at("passed") == 3);
  CHECK_FALSE(results.find(all, digests));
  std::string last = all;
  for (const char* file : {"chapters/02_products/lesson.md", "solutions/02_products/x.cu",
                           "tests/02_products/test_x.cpp", "tests/steps/02_products.toml"}) {
    book.folder_.write(file, "second");
    CHECK(key(one) == first);
    CHECK(key({}) != std::exchange(last, key({})));
  }
  for (const char* file : {"tests/worker/test_a.cpp", "notes/a.md", "common/warp.hpp", "solutions/01_sums/sums.cu"}) {
    last = key(one);
    book.folder_.write(file, "second");
    CHECK(key(one) != last);
  }
  const OfChapters named{{1}, {"mistakes.cpp"}};
  last = key(named);
  const std::string without = key(one);
  book.folder_.write("tests/02_products/mistakes.cpp", "second");
  CHECK(key(named) != last);
  CHECK(key(one) == without);
}

TEST_CASE("a result is not found when anything that went into it has changed") {
  const TemporaryFolder cache;
  const KeptResults results(cache.path());
  SmallBook book;
  book.keep(results);
  const auto misses = [&](const std::function<void()>& change) {
    REQUIRE(book.find(results));
    change();
    return !book.find(results);
  };
  const auto misses_file = [&](const std::string& file) {
    const std::string before = book.folder_.read(file);
    const bool missed = misses([&] { book.folder_.write(file, before + "\n"); });
    book.folder_.write(file, before);
    return missed;
  };
  CHECK(misses_file("build/check/mutants/1.1-minus/01_sums/sums.cu"));   // the mutant
  CHECK(misses_file("build/check/mutants/1.1-minus/01_sums/sums.hpp"));  // a header of the chapter
  CHECK(misses_file("solutions/01_sums/sums.hpp"));
  CHECK(misses_file("chapters/01_sums/chapter.toml"));
  CHECK(misses_file("common/simt/api.hpp"));  // a header that the compiler has read,
  CHECK(misses_file("common/warp.hpp"));      // one that is precompiled,
  CHECK(misses_file("common/host.hpp"));      // for kernels or for other files
  CHECK(misses_file("build/bin/tests_01_sums"));
  CHECK(misses_file("build/server.o"));
  worker::Toolchain::Rules& sim = book.workspace_.toolchain.backends.at(Backend::sim);
  CHECK(misses([&] { sim.kernels = {"c++", "-O2"}; }));
  sim.kernels = {"c++", "-O1"};
  CHECK(misses([&] { sim.libraries.emplace_back("-lm"); }));
  sim.libraries.pop_back();
  CHECK(misses([&] { book.flags_ = {"-g"}; }));
  book.flags_.clear();
  CHECK(misses([&] { book.workspace_.toolchain.compiler_id = "GNU 13"; }));
  book.workspace_.toolchain.compiler_id = "GNU 12";
  CHECK(misses([&] { book.request_.only = "sums are fast"; }));
  book.request_.only = "sums are right";
  CHECK(misses([&] { book.request_.time_limit = 1; }));
  book.request_.time_limit = 10;
  const char* before = std::getenv(simt::kGpuVariable);
  const std::string gpu = before == nullptr ? "" : before;
  CHECK(misses([&] { worker::simulate_gpu("t4"); }));
  before == nullptr ? ::unsetenv(simt::kGpuVariable) : ::setenv(simt::kGpuVariable, gpu.c_str(), 1);
  CHECK(book.find(results));
}

TEST_CASE("nothing is kept of a debug, hidden-test, GPU or unfinished run, or with an unknown precompiled header") {
  SmallBook book;
  CHECK_FALSE(book.key().empty());
  book.request_.debug = true;
  CHECK(book.key().empty());
  book.request_.debug = false;
  book.request_.program = "hidden_tests";
  CHECK(book.key().empty());
  book.request_.program.clear();
  book.request_.backend = Backend::cuda;
  CHECK(book.key().empty());
  book.request_.backend = Backend::sim;
  book.folder_.write("build/precompiled/kernels.hpp.gch.d", "");  // nobody knows what is in it
  CHECK(book.key().empty());

  const TemporaryFolder cache;
  judge::ChapterRun run;
  run.finished = false;
  KeptResults(cache.path()).keep("a key", {}, run);
  CHECK(files_in(cache.path()).empty());
}

TEST_CASE("an edited, truncated or renamed entry is rejected") {
  const TemporaryFolder cache;
  const KeptResults results(cache.path());
  SmallBook book;
  book.keep(results);
  REQUIRE(files_in(cache.path()).size() == 1);
  const fs::path entry = files_in(cache.path())[0];
  const std::string text = file_text(entry);
  const auto believed = [&](const std::string& changed) {
    cache.write(entry.lexically_relative(cache.path()).string(), changed);
    return book.find(results).has_value();
  };
  std::string passed = text;
  const std::size_t at = passed.find("\"failed\"");
  REQUIRE(at != std::string::npos);
  passed.replace(at, 8, "\"passed\"");
  CHECK_FALSE(believed(passed));
  CHECK_FALSE(believed(text.substr(0, text.size() / 2)));
  CHECK_FALSE(believed(""));
  CHECK_FALSE(believed("{}\n"));
  CHECK(believed(text));

  book.request_.only = "sums are fast";  // the entry as it is, where one for another key would lie
  book.keep(results);
  for (const fs::path& file : files_in(cache.path())) cache.write(file.lexically_relative(cache.path()).string(), text);
  CHECK_FALSE(book.find(results));
}

TEST_CASE("concurrent threads keep and find complete results") {
  const TemporaryFolder cache;
  const KeptResults results(cache.path());
  const SmallBook book;
  book.keep(results);
  std::atomic<int> found = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          book.keep(results);
          found += book.find(results).has_value();
        }
      });
    }
  }
  CHECK(found == 200);
  CHECK(files_in(cache.path()).size() == 1);  // no temporary ones are left
}

TEST_CASE("a source file that changes during a build is noticed, except the gates' copies") {
  const SmallBook book;
  Digests digests(book.workspace_);
  digests.of("common/warp.hpp");
  digests.of("build/check/mutants/1.1-minus/01_sums/sums.cu");
  CHECK(digests.of("common/gone.hpp") == "none");
  CHECK(digests.stood_still());
  const auto later = fs::file_time_type::clock::now() + std::chrono::seconds(1);
  fs::last_write_time(book.folder_ / "build/check/mutants/1.1-minus/01_sums/sums.cu", later);
  CHECK(digests.stood_still());
  fs::last_write_time(book.folder_ / "common/warp.hpp", later);
  CHECK_FALSE(digests.stood_still());
}

TEST_CASE("the least recently used results are deleted when there are too many") {
  const TemporaryFolder cache;
  const KeptResults all(cache.path());
  SmallBook book;
  std::uintmax_t bytes = 0;
  for (int i = 0; i < 8; ++i) {
    book.request_.only = "test " + std::to_string(i);
    book.keep(all);
  }
  for (const fs::path& file : files_in(cache.path())) {
    bytes += fs::file_size(file);
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  all.prune();
  CHECK(files_in(cache.path()).size() == 8);
  CHECK(book.find(all));  // now it is used
  KeptResults(cache.path(), bytes / 2).prune();
  CHECK(files_in(cache.path()).size() == 3);
  CHECK(book.find(all));
}
