#include "tests/cli/workbook_copy.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "common/book/files.hpp"
#include "common/book/manifest.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/worker/command.hpp"

namespace workbook::test {
namespace fs = std::filesystem;
namespace {

const fs::path source = WORKBOOK_SOURCE, binary = WORKBOOK_BINARY;
// One per program, because the programs run in parallel.
const fs::path place = binary / "tests of the command" / fs::read_symlink("/proc/self/exe").filename();
const fs::path book_folder = place / "Bücher mit Raum" / "book";
const fs::path build_folder = book_folder / "build" / "default";
const fs::path scratch_folder = place / "scratch";

/// Held until the process ends: two runs of a program must not share the copy.
void lock_place() {
  static const int descriptor = [] {
    fs::create_directories(place);
    const int opened = ::open((place / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (opened < 0 || ::flock(opened, LOCK_EX) != 0) throw std::runtime_error("the copy of the book cannot be locked");
    return opened;
  }();
  (void)descriptor;
}

bool is_stub(const fs::path& relative) {
  const std::string first = relative.begin()->string(), extension = relative.extension().string();
  return first == "chapters" && extension != ".toml" && extension != ".md" && extension != ".svg" &&
         extension != ".json";
}

/// A file of chapter 3 or later. The copy contains only chapters 1 and 2.
bool is_of_later_chapter(const fs::path& relative) {
  return std::any_of(relative.begin(), relative.end(), [](const fs::path& part) {
    const std::string name = part.string();
    const bool numbered = name.size() > 2 && std::isdigit(static_cast<unsigned char>(name[0])) && name[2] == '_';
    return numbered && name.substr(0, 3) != "01_" && name.substr(0, 3) != "02_";
  });
}

/// The contents of a fresh book, as path -> text. The stubs are generated from the solutions, since chapters/ here may
/// contain a reader's work.
std::map<std::string, std::string> fresh_book() {
  std::map<std::string, std::string> files;
  for (const char* folder : {"chapters", "solutions", "notes", "tests", "common/attention", "common/cuda",
                             "common/grading/templates", "common/simt", "common/worker"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source / folder)) {
      const std::string relative = fs::path(folder) / entry.path().lexically_relative(source / folder);
      const bool hidden = entry.path().filename().string().starts_with(".");
      if (hidden || !entry.is_regular_file() || is_stub(relative) || is_of_later_chapter(relative)) continue;
      files[relative] = book::read_file(entry.path());
    }
  }
  for (const char* file : {"README.md", "LICENSE", "workbook", ".clang-format"}) {
    files[file] = fs::exists(source / file) ? book::read_file(source / file) : "# A book\n";
  }
  return files;
}

void remove_unknown(const std::map<std::string, std::string>& known) {
  std::vector<fs::path> unknown;
  for (fs::recursive_directory_iterator entry(book_folder), end; entry != end; ++entry) {
    const fs::path relative = entry->path().lexically_relative(book_folder);
    if (relative == "build") {
      entry.disable_recursion_pending();
    } else if (!entry->is_directory() && !known.contains(relative.string()) && !is_stub(relative)) {
      unknown.push_back(entry->path());
    }
  }
  for (const fs::path& path : unknown) fs::remove(path);
  fs::remove_all(book_folder / ".workbook");
  fs::remove_all(book_folder / "chapters" / ".pristine");  // a release's stubs: another test program's
}

/// The build folder for the command: it uses the programs and precompiled headers of the real one, and nothing is built
/// there.
void make_build_folder() {
  fs::create_directories(build_folder);
  for (const char* folder : {"bin", "precompiled"}) {
    std::error_code ignored;
    fs::remove(build_folder / folder, ignored);
    fs::create_directory_symlink(binary / folder, build_folder / folder);
  }
  nlohmann::json toolchain = nlohmann::json::parse(book::read_file(binary / "toolchain.json"));
  toolchain["cmake"] = worker::find_program("true").string();
  book::write_if_changed(build_folder / "toolchain.json", toolchain.dump(2));
}

/// The region `id` in the file that contains it, under solutions/ or chapters/.
std::pair<std::string, book::MarkedFile> find_region(const std::string& tree, const std::string& id) {
  for (const auto& entry : fs::recursive_directory_iterator(book_folder / tree)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".hpp") continue;
    book::MarkedFile file = book::parse_reader("", book::read_file(entry.path()));
    if (file.find(id) != nullptr) return {entry.path().lexically_relative(book_folder).string(), std::move(file)};
  }
  throw std::runtime_error(fmt::format("no region {} in {}/", id, tree));
}

std::vector<std::string> lines_of(const std::string& text) {
  return book::parse_reader("", text).lines;
}

/// A shell command that redirects the streams to files and executes the command.
std::vector<std::string> command_line(const std::vector<std::string>& arguments, const std::string& redirection) {
  std::vector<std::string> argv{"/bin/sh", "-c", "exec \"$@\" " + redirection, "sh"};
  argv.push_back((binary / "bin" / "workbook_cli").string());
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

std::map<std::string, std::string> environment_of(const std::map<std::string, std::string>& more) {
  std::map<std::string, std::string> environment{{"WORKBOOK_ROOT", book_folder.string()},
                                                 {"WORKBOOK_BUILD", build_folder.string()},
                                                 {"XDG_CACHE_HOME", (place / "cache").string()},
                                                 {"CI", ""},
                                                 {"LC_ALL", "C.UTF-8"}};
  for (const auto& [key, value] : more) environment[key] = value;
  return environment;
}

}  // namespace

nlohmann::json Ran::document() const {
  INFO("exit code " << exit_code << "\nstdout:\n" << out << "\nstderr:\n" << err);
  REQUIRE(nlohmann::json::accept(out));
  return nlohmann::json::parse(out);
}

WorkbookCopy::WorkbookCopy() {
  lock_place();
  static const std::map<std::string, std::string> fresh = fresh_book();
  fs::create_directories(book_folder);
  remove_unknown(fresh);
  for (const auto& [relative, text] : fresh) book::write_if_changed(book_folder / relative, text);
  book::write_stubs(book::load_book(book_folder), /*force=*/true);
  fs::remove_all(book_folder / ".workbook");
  make_build_folder();
  fs::remove_all(scratch_folder);
  fs::create_directories(scratch_folder);
}

Ran WorkbookCopy::run(const std::vector<std::string>& given, const RunOptions& options) const {
  // These tests use only CPU code; chapter 1's kernels would add another run to each.
  std::vector<std::string> arguments = given;
  const bool judges = !given.empty() && (given[0] == "test" || given[0] == "run");
  if (judges && std::find(given.begin(), given.end(), "--backend") == given.end()) {
    arguments.insert(arguments.begin() + 1, {"--backend", "cpu"});
  }
  const fs::path errors = place / "stderr.txt";
  worker::CommandOptions command;
  command.environment = environment_of(options.environment);
  command.environment["STDERR_FILE"] = errors.string();
  command.folder = options.folder.empty() ? book_folder : options.folder;
  command.time = options.time;
  const fs::path input = place / "stdin.txt";
  book::write_file(input, options.input);
  command.environment["STDIN_FILE"] = input.string();
  const worker::CommandResult result =
      worker::run_command(command_line(arguments, "<\"$STDIN_FILE\" 2>\"$STDERR_FILE\""), command);
  return {result.exit_code, result.timed_out, result.output, book::read_file(errors)};
}

fs::path WorkbookCopy::root() const {
  return book_folder;
}
bool WorkbookCopy::exists(const std::string& relative) const {
  return fs::exists(book_folder / relative);
}
std::string WorkbookCopy::read(const std::string& relative) const {
  return book::read_file(book_folder / relative);
}
void WorkbookCopy::write(const std::string& relative, const std::string& text) const {
  book::write_file(book_folder / relative, text);
}

void WorkbookCopy::edit(const std::string& relative, const std::string& from, const std::string& to) const {
  std::string text = read(relative);
  if (occurrences(text, from) != 1) {
    throw std::runtime_error(fmt::format("\"{}\" occurs {} times in {}", from, occurrences(text, from), relative));
  }
  write(relative, text.replace(text.find(from), from.size(), to));
}

int WorkbookCopy::line_of(const std::string& relative, const std::string& text) const {
  const std::vector<std::string> lines = lines_of(read(relative));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find(text) != std::string::npos) return int(i) + 1;
  }
  throw std::runtime_error(fmt::format("\"{}\" does not occur in {}", text, relative));
}

std::string WorkbookCopy::readers_file(const std::string& id) const {
  const std::string solution = solution_file(id);
  return "chapters" + solution.substr(solution.find('/'));
}
std::string WorkbookCopy::solution_file(const std::string& id) const {
  return find_region("solutions", id).first;
}
std::string WorkbookCopy::solution_body(const std::string& id) const {
  const auto [path, file] = find_region("solutions", id);
  return book::join_lines(file.find(id)->body);
}
std::string WorkbookCopy::readers_body(const std::string& id) const {
  const auto [path, file] = find_region("chapters", id);
  return book::join_lines(file.find(id)->body);
}
void WorkbookCopy::fill_in(const std::string& id, const std::string& body) const {
  const auto [path, file] = find_region("chapters", id);
  write(path, book::replace_body(file, id, lines_of(body)));
}

WorkbookCopy::Background::Background(const WorkbookCopy& book, const std::vector<std::string>& arguments)
    : out_(place / "background.txt") {
  book::write_file(out_, "");
  const std::vector<std::string> words = command_line(arguments, ">\"$STDOUT_FILE\" 2>&1");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> variables{"STDOUT_FILE=" + out_.string()};
  for (const auto& [key, value] : environment_of({})) variables.push_back(key + "=" + value);
  variables.push_back("PATH=" + std::string(::getenv("PATH") ? ::getenv("PATH") : "/usr/bin:/bin"));
  std::vector<char*> environment;
  for (const std::string& variable : variables) environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  const std::string folder = book.root().string();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::chdir(folder.c_str()) != 0) ::_exit(127);
    ::execve(argv[0], argv.data(), environment.data());
    ::_exit(127);
  }
}

WorkbookCopy::Background::~Background() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

std::string WorkbookCopy::Background::out() const {
  return book::read_file(out_);
}

bool WorkbookCopy::Background::prints(const std::string& text, int times, double seconds) const {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    if (occurrences(out(), text) >= times) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

void expect_refused(const WorkbookCopy& book, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& said) {
  const auto files = [] {
    std::set<fs::path> all;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_folder)) all.insert(entry.path());
    return all;
  };
  const std::set<fs::path> before = files();
  const Ran ran = book.run(arguments);
  INFO("arguments: " << fmt::format("{}", fmt::join(arguments, " ")) << "\nstdout: " << ran.out
                     << "\nstderr: " << ran.err);
  CHECK(ran.exit_code == 2);
  CHECK(ran.out.empty());
  CHECK(files() == before);
  for (const std::string& part : said) {
    INFO("must say: " << part);
    CHECK(ran.err.find(part) != std::string::npos);
  }
}

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

bool sanitized() {
  return nlohmann::json::parse(book::read_file(binary / "toolchain.json")).at("sanitize") != "";
}

bool counts() {
  return nlohmann::json::parse(book::read_file(binary / "toolchain.json")).at("counts");
}

fs::path scratch(const std::string& name) {
  return scratch_folder / name;
}

}  // namespace workbook::test
