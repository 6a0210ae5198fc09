// Building workers: jobs are independent, only changes are rebuilt, and an old program is never used as a new one. The
// programs built here are not workers but mains that return a number, which identifies their source.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>

#include "common/worker/command.hpp"
#include "tests/worker/fixtures/fixtures.hpp"

using namespace workbook::worker;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

/// A small book in a temporary folder, with its build folder in it.
struct Book : TemporaryFolder {
  explicit Book(const std::string& name = "book") : TemporaryFolder(name) {
    toolchain = toolchain_for(path() / "build");
    toolchain.root = path();
    toolchain.backends.at(Backend::cpu).objects.clear();  // no server: the sources have their own main
  }
  /// The job for src/NAME.cpp, with headers from src/.
  WorkerJob job(const std::string& name) const {
    return {name, Backend::cpu, {path() / "src" / (name + ".cpp")}, path() / "src"};
  }
  WorkerBuilt build(const std::string& name) const { return build_workers(toolchain, {job(name)}).at(name); }
  Toolchain toolchain;
};

int result_of(const WorkerBuilt& built) {
  INFO(built.log);
  REQUIRE(built.ok);
  return run_command({built.executable.string()}).exit_code;
}

const std::string kBroken = "// one\nint main() {\n  return nothing;\n}\n";

}  // namespace

TEST_CASE("a compile error stops only its job, and is reported by file and line from the root") {
  const Book book;
  book.write("src/good.cpp", "int main() { return 3; }");
  book.write("src/bad.cpp", kBroken);
  auto built = build_workers(book.toolchain, {book.job("bad"), book.job("good")});
  CHECK_FALSE(built.at("bad").ok);
  CHECK_THAT(built.at("bad").log, ContainsSubstring("src/bad.cpp:3:") && ContainsSubstring("nothing"));
  CHECK_THAT(built.at("bad").log, !ContainsSubstring(book.path().string()));
  CHECK(result_of(built.at("good")) == 3);
  CHECK(built.at("good").log.empty());
}

TEST_CASE("an error in a header names the header") {
  const Book book;
  book.write("src/tile.hpp", "\ninline int tile() { return nothing; }\n");
  book.write("src/a.cpp", "#include \"tile.hpp\"\nint main() { return tile(); }");
  const WorkerBuilt built = book.build("a");
  CHECK_FALSE(built.ok);
  CHECK_THAT(built.log, ContainsSubstring("src/tile.hpp:2:"));
}

TEST_CASE("after a failed build the old program is not used") {
  const Book book;
  book.write("src/a.cpp", "int main() { return 1; }");
  CHECK(result_of(book.build("a")) == 1);
  book.write("src/a.cpp", kBroken);
  CHECK_FALSE(book.build("a").ok);
  CHECK_FALSE(book.build("a").ok);
  book.write("src/a.cpp", "int main() { return 2; }");
  CHECK(result_of(book.build("a")) == 2);
}

TEST_CASE("the files that the compiler read for an object are listed") {
  const Book book;
  book.write("src/tile.hpp", "#include \"size.hpp\"\n#include <string>\n");
  book.write("src/size.hpp", "inline int size() { return 3; }");
  book.write("src/other.hpp", "");
  book.write("src/a.cpp", "#include \"tile.hpp\"\nint main() { return size(); }");
  book.write("src/bad.cpp", kBroken);
  const auto built = build_workers(book.toolchain, {book.job("a"), book.job("bad")});
  const fs::path object = built.at("a").objects.at(book / "src/a.cpp");
  const auto read = files_read(book.toolchain, {object, built.at("bad").objects.at(book / "src/bad.cpp")});
  REQUIRE(read.size() == 1);
  std::vector<fs::path> files = read.at(object);
  std::sort(files.begin(), files.end());
  CHECK(files == std::vector<fs::path>{"src/a.cpp", "src/size.hpp", "src/tile.hpp"});
  CHECK(files_read(book.toolchain, {}).empty());
}

TEST_CASE("unchanged sources are not built again") {
  const Book book;
  book.write("src/a.cpp", "int main() { return 1; }");
  book.write("src/b.cpp", "int main() { return 2; }");
  const auto first = build_workers(book.toolchain, {book.job("a"), book.job("b")});
  const auto a = fs::last_write_time(first.at("a").executable), b = fs::last_write_time(first.at("b").executable);
  book.write("src/b.cpp", "int main() { return 4; }");
  const auto second = build_workers(book.toolchain, {book.job("a"), book.job("b")});
  CHECK(fs::last_write_time(second.at("a").executable) == a);
  CHECK(fs::last_write_time(second.at("b").executable) != b);
  CHECK(result_of(second.at("b")) == 4);
}

TEST_CASE("a changed header rebuilds the sources that include it") {
  const Book book;
  book.write("src/number.hpp", "inline int number() { return 1; }\n");
  book.write("src/a.cpp", "#include \"number.hpp\"\nint main() { return number(); }");
  CHECK(result_of(book.build("a")) == 1);
  book.write("src/number.hpp", "inline int number() { return 2; }\n");
  CHECK(result_of(book.build("a")) == 2);
}

TEST_CASE("a header that is no longer included may go") {
  const Book book;
  book.write("src/number.hpp", "inline int number() { return 1; }\n");
  book.write("src/a.cpp", "#include \"number.hpp\"\nint main() { return number(); }");
  CHECK(result_of(book.build("a")) == 1);
  fs::remove(book / "src/number.hpp");
  book.write("src/a.cpp", "int main() { return 2; }");
  CHECK(result_of(book.build("a")) == 2);
}

TEST_CASE("a file put back with an old date is built again") {
  const Book book;
  book.write("src/number.hpp", "inline int number() { return 1; }\n");
  book.write("src/a.cpp", "#include \"number.hpp\"\nint main() { return number(); }");
  book.write("src/saved.hpp", "inline int number() { return 2; }\n");
  book.write("src/saved.cpp", "int main() { return 3; }");
  for (const char* file : {"src/saved.hpp", "src/saved.cpp"}) {
    fs::last_write_time(book / file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  CHECK(result_of(book.build("a")) == 1);
  fs::rename(book / "src/saved.hpp", book / "src/number.hpp");
  CHECK(result_of(book.build("a")) == 2);
  fs::rename(book / "src/saved.cpp", book / "src/a.cpp");
  CHECK(result_of(book.build("a")) == 3);
}

TEST_CASE("warnings are in the log of a program that was built, also when nothing is built again") {
  const Book book;
  book.write("src/a.cpp", "int main() { int x = 1; if (x = 2) return 5; }");
  for (int i = 0; i < 2; ++i) {
    const WorkerBuilt built = book.build("a");
    CHECK(result_of(built) == 5);
    CHECK_THAT(built.log, ContainsSubstring("src/a.cpp:1:") && ContainsSubstring("warning"));
  }
}

TEST_CASE("a link error is in the log, beside the warnings, until it is fixed") {
  const Book book;
  const std::string warned = "int main() { int x = 1; if (x = 2) return number(); }";
  book.write("src/a.cpp", "int number();\n" + warned);
  WorkerBuilt built = book.build("a");
  CHECK_FALSE(built.ok);
  CHECK_THAT(built.log, ContainsSubstring("warning") && ContainsSubstring("undefined reference to `number()'"));
  book.write("src/a.cpp", kBroken);
  built = book.build("a");
  CHECK_FALSE(built.ok);
  CHECK_THAT(built.log, !ContainsSubstring("undefined reference"));
  book.write("src/a.cpp", "int number() { return 6; }\n" + warned);
  built = book.build("a");
  CHECK(result_of(built) == 6);
  CHECK_THAT(built.log, !ContainsSubstring("undefined reference"));
}

TEST_CASE("a missing source fails only its job, and is named from the root") {
  const Book book;
  book.write("src/good.cpp", "int main() { return 3; }");
  const auto built = build_workers(book.toolchain, {book.job("gone"), book.job("good")});
  CHECK_FALSE(built.at("gone").ok);
  CHECK_THAT(built.at("gone").log, StartsWith("src/gone.cpp"));
  CHECK(result_of(built.at("good")) == 3);
}

TEST_CASE("one source with the headers of two folders makes two programs") {
  const Book book;
  book.write("src/main.cpp", "#include \"number.hpp\"\nint main() { return number(); }");
  book.write("one/number.hpp", "inline int number() { return 1; }\n");
  book.write("two/number.hpp", "inline int number() { return 2; }\n");
  const WorkerJob one{"one", Backend::cpu, {book / "src/main.cpp"}, book / "one"};
  const WorkerJob two{"two", Backend::cpu, {book / "src/main.cpp"}, book / "two"};
  const auto built = build_workers(book.toolchain, {one, two});
  CHECK(result_of(built.at("one")) == 1);
  CHECK(result_of(built.at("two")) == 2);
}

TEST_CASE("sources of one name in two folders do not get in each other's way") {
  const Book book;
  book.write("one/a.cpp", "int main() { return 1; }");
  book.write("two/a.cpp", "int main() { return 2; }");
  const auto built = build_workers(book.toolchain, {{"one", Backend::cpu, {book / "one/a.cpp"}, book / "one"},
                                                    {"two", Backend::cpu, {book / "two/a.cpp"}, book / "two"}});
  CHECK(result_of(built.at("one")) == 1);
  CHECK(result_of(built.at("two")) == 2);
}

TEST_CASE("folders may have spaces, quotes, dollars and letters of any language in their names") {
  const Book book("Übung 3 für $HOME, it's (naïve) & 日本");
  const std::string folder = "kapitel eins $x ü";
  book.write(folder + "/number.hpp", "inline int number() { return 1; }\n");
  book.write(folder + "/my file.cpp", "#include \"number.hpp\"\nint main() { return number(); }");
  book.write(folder + "/bad $file.cpp", kBroken);
  const WorkerJob good{"chapters/" + folder, Backend::cpu, {book / folder / "my file.cpp"}, book / folder};
  const WorkerJob bad{"bad " + folder, Backend::cpu, {book / folder / "bad $file.cpp"}, book / folder};
  auto built = build_workers(book.toolchain, {good, bad});
  CHECK(result_of(built.at(good.name)) == 1);
  CHECK_FALSE(built.at(bad.name).ok);
  CHECK_THAT(built.at(bad.name).log, ContainsSubstring(folder + "/bad $file.cpp:3:"));
  const auto before = fs::last_write_time(built.at(good.name).executable);
  built = build_workers(book.toolchain, {good});
  CHECK(fs::last_write_time(built.at(good.name).executable) == before);
  book.write(folder + "/number.hpp", "inline int number() { return 2; }\n");
  CHECK(result_of(build_workers(book.toolchain, {good}).at(good.name)) == 2);
}

TEST_CASE("a folder whose name ninja cannot read in a list of dependencies is built again, and right") {
  const Book book;
  const std::string folder = "O'Brien & Sons";
  book.write(folder + "/number.hpp", "inline int number() { return 1; }\n");
  book.write(folder + "/a.cpp", "#include \"number.hpp\"\nint main() { return number(); }");
  book.write(folder + "/bad.cpp", kBroken);
  const WorkerJob good{"good", Backend::cpu, {book / folder / "a.cpp"}, book / folder};
  const WorkerJob bad{"bad", Backend::cpu, {book / folder / "bad.cpp"}, book / folder};
  const auto built = build_workers(book.toolchain, {good, bad});
  CHECK(result_of(built.at("good")) == 1);
  CHECK_FALSE(built.at("bad").ok);
  book.write(folder + "/number.hpp", "inline int number() { return 2; }\n");
  CHECK(result_of(build_workers(book.toolchain, {good, bad}).at("good")) == 2);
}

TEST_CASE("a build waits for another build of the same folder, and both are correct") {
  const Book book;
  for (const std::string name : {"a", "b", "both"}) {
    book.write("src/" + name + ".cpp", "int main() { return " + std::to_string(name.size()) + "; }");
  }
  const int lock = ::open((book.toolchain.build_folder / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  REQUIRE(::flock(lock, LOCK_EX) == 0);
  std::vector<pid_t> builders;
  for (const std::string name : {"a", "b"}) {
    const pid_t builder = ::fork();
    REQUIRE(builder >= 0);
    if (builder == 0) {
      ::close(lock);
      const auto built = build_workers(book.toolchain, {book.job(name), book.job("both")});
      ::_exit(built.at(name).ok && built.at("both").ok ? 0 : 1);
    }
    builders.push_back(builder);
  }
  ::usleep(200'000);
  CHECK_FALSE(fs::exists(book.toolchain.build_folder / "workers"));
  ::close(lock);
  for (const pid_t builder : builders) {
    int status = -1;
    REQUIRE(::waitpid(builder, &status, 0) == builder);
    CHECK(status == 0);
  }
  const auto built = build_workers(book.toolchain, {book.job("a"), book.job("b"), book.job("both")});
  CHECK(result_of(built.at("a")) == 1);
  CHECK(result_of(built.at("b")) == 1);
  CHECK(result_of(built.at("both")) == 4);
}

TEST_CASE("a backend that this build does not have is an error that names it, and why") {
  Book book;
  book.write("src/a.cpp", "int main() {}");
  WorkerJob job = book.job("a");
  job.backend = Backend::cuda;
  book.toolchain.backends.erase(Backend::cuda);
  book.toolchain.unavailable[Backend::cuda] = "there is no abacus";
  CHECK_THROWS_WITH(build_workers(book.toolchain, {job}),
                    ContainsSubstring("\"cuda\"") && ContainsSubstring("there is no abacus"));
  CHECK(book.toolchain.why_not(Backend::cuda) == "there is no abacus");
  CHECK(book.toolchain.why_not(Backend::cpu).empty());
  CHECK(build_workers(book.toolchain, {}).empty());
}

TEST_CASE("kernels are compiled for the architecture of their job, or for the toolchain's") {
  Book book;
  // A compiler that prints the requested architecture.
  book.write("nvcc",
             "#!/bin/sh\nfor word; do\n  shift\n  case $word in\n    -arch=*|-gencode=*) echo \"for $word\";;\n"
             "    *) set -- \"$@\" \"$word\";;\n  esac\ndone\nexec c++ -x c++ \"$@\"\n");
  fs::permissions(book / "nvcc", fs::perms::owner_all);
  Toolchain::Rules cuda = book.toolchain.backends.at(Backend::cpu);
  cuda.kernels = {(book / "nvcc").string(), "-arch=sm_80"};
  book.toolchain.backends[Backend::cuda] = cuda;
  book.write("src/a.cu", "int main() { return 5; }");
  WorkerJob anywhere{"anywhere", Backend::cuda, {book / "src/a.cu"}, book / "src"}, hopper = anywhere;
  hopper.name = "hopper";
  hopper.architecture = "sm_90a";
  const auto built = build_workers(book.toolchain, {anywhere, hopper});
  CHECK(result_of(built.at("anywhere")) == 5);
  CHECK_THAT(built.at("anywhere").log, ContainsSubstring("for -arch=sm_80"));
  CHECK(result_of(built.at("hopper")) == 5);
  CHECK_THAT(built.at("hopper").log, ContainsSubstring("for -gencode=arch=compute_90a,code=sm_90a"));
  CHECK_THAT(built.at("hopper").log, !ContainsSubstring("sm_80"));
}

TEST_CASE("kernels are compiled with the precompiled header, and anew when it changes") {
  Book book;
  if (!book.toolchain.compiler_id.starts_with("GNU")) SKIP("clang++ does without");
  Toolchain::Rules sim = book.toolchain.backends.at(Backend::cpu);
  sim.kernels = {book.toolchain.compiler, "-x", "c++"};
  sim.precompiled = "all.hpp";
  sim.precompiled_host = "host.hpp";
  book.toolchain.backends[Backend::sim] = sim;
  book.write("src/a.cu", "int main() { return number; }");
  WorkerJob job{"a", Backend::sim, {book / "src/a.cu"}, book / "src"};
  const auto built = [&] { return build_workers(book.toolchain, {job}).at("a"); };
  // A compiler reads the header itself if it cannot use the precompiled one, as here.
  book.write("build/all.hpp", "constexpr int number = 5;");
  CHECK_FALSE(built().ok);  // a build folder without the precompiled header does not use it
  book.write("build/all.hpp.gch", "first");
  CHECK(result_of(built()) == 5);
  book.write("build/all.hpp", "constexpr int number = 6;");
  fs::last_write_time(book / "build/all.hpp.gch", fs::file_time_type::clock::now() + std::chrono::seconds(2));
  CHECK(result_of(built()) == 6);
  job.flags = {"-O0", "-g"};  // flags that differ from those of the precompiled header
  job.name = "a.debug";
  CHECK_THAT(build_workers(book.toolchain, {job}).at("a.debug").log, ContainsSubstring("number"));
  job.flags.clear();
  job.sources_flags = {"-DOTHER=1,2"};  // a macro that the header does not use
  CHECK(result_of(build_workers(book.toolchain, {job}).at("a.debug")) == 6);
  book.write("src/b.cpp", "int main() { return number; }");  // files without kernels have another header
  book.write("build/host.hpp", "constexpr int number = 7;");
  book.write("build/host.hpp.gch", "first");
  CHECK(result_of(build_workers(book.toolchain, {{"b", Backend::sim, {book / "src/b.cpp"}, book / "src"}}).at("b")) ==
        7);
}

TEST_CASE("flags of a job's sources do not affect the book's sources, which other jobs share") {
  Book book;
  book.write("src/own.cpp",
             "int books();\n#ifndef NUMBER\n#define NUMBER 0\n#endif\nint main() { return 10 * NUMBER + books(); }");
  book.write("src/books.cpp", "#ifdef NUMBER\n#error no\n#endif\nint books() { return 2; }");
  WorkerJob plain{"plain", Backend::cpu, {book / "src/own.cpp"}, book / "src", {book / "src/books.cpp"}, book / "src"};
  WorkerJob other = plain;
  other.name = "other";
  other.sources_flags = {"-DNUMBER=4"};
  const auto built = build_workers(book.toolchain, {plain, other});
  CHECK(result_of(built.at("plain")) == 2);
  CHECK(result_of(built.at("other")) == 42);
  CHECK(built.at("plain").objects.at(book / "src/books.cpp") == built.at("other").objects.at(book / "src/books.cpp"));
}

TEST_CASE("if nothing can be written, no old program is used") {
  const Book book;
  book.write("src/a.cpp", "int main() { return 1; }");
  CHECK(result_of(book.build("a")) == 1);
  const fs::path file = book.toolchain.build_folder / "workers/build.ninja";
  fs::remove(file);
  fs::create_directory(file);
  book.write("src/a.cpp", "int main() { return 2; }");
  CHECK_THROWS_WITH(book.build("a"), ContainsSubstring(file.string()));
}

TEST_CASE("a toolchain that is missing or damaged is an error that names the file") {
  const TemporaryFolder folder;
  const std::string file = (folder / "toolchain.json").string();
  CHECK_THROWS_WITH(load_toolchain(folder.path(), folder.path()), ContainsSubstring(file));
  for (const char* text : {"{", "[]", "{\"ninja\": 1}", "{}"}) {
    folder.write("toolchain.json", text);
    CHECK_THROWS_WITH(load_toolchain(folder.path(), folder.path()), ContainsSubstring(file));
  }
}

TEST_CASE("an error in the book's code is reported with the end of the log") {
  Book book;
  book.write("cmake",
             "#!/bin/sh\nprintf '%s\\n' \"$@\"\nhead -c 9000 /dev/zero | tr '\\0' .\necho 'the end'\nexit 1\n");
  fs::permissions(book / "cmake", fs::perms::owner_all);
  book.toolchain.cmake = (book / "cmake").string();
  CHECK_THROWS_WITH(build_targets(book.toolchain, {"worker_server"}), ContainsSubstring("....the end"));
  book.write("cmake", "#!/bin/sh\nexit 0\n");
  CHECK_NOTHROW(build_targets(book.toolchain, {"worker_server"}));
}

TEST_CASE("targets are built once, and again after a change to the book's code or to the built files") {
  Book book;
  book.write("cmake", "#!/bin/sh\necho built >>\"$(dirname \"$0\")/builds\"\n");
  fs::permissions(book / "cmake", fs::perms::owner_all);
  book.toolchain.cmake = (book / "cmake").string();
  const auto builds = [&](const std::vector<std::string>& targets) {
    book.write("builds", "");
    build_targets(book.toolchain, targets);
    return fs::file_size(book / "builds") > 0;
  };
  book.write("common/a.cpp", "int a;");
  book.write("build/bin/a", "a program");
  CHECK(builds({"a"}));
  CHECK_FALSE(builds({"a"}));
  CHECK(builds({"a", "b"}));
  CHECK_FALSE(builds({"b"}));
  book.write("common/a.cpp", "int aa;");
  CHECK(builds({"a"}));
  book.write("common/b.cpp", "");
  CHECK(builds({"a"}));
  fs::remove(book / "common/b.cpp");
  CHECK(builds({"a"}));
  fs::remove(book.toolchain.build_folder / "bin/a");
  CHECK(builds({"a"}));
  CHECK_FALSE(builds({"a"}));
}
