#include "common/grading/isolation.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "common/book/files.hpp"
#include "common/book/folders.hpp"
#include "common/book/foreign_text.hpp"
#include "common/book/text.hpp"
#include "common/judge/allowed.hpp"
#include "common/judge/object.hpp"
#include "common/judge/wrong_solutions.hpp"
#include "common/worker/command.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
using worker::WorkerBuilt;
using worker::WorkerJob;

void set_mode(const fs::path& path, unsigned mode) {
  fs::permissions(path, fs::perms(mode));
}

void give_to(const fs::path& path, unsigned user, unsigned group) {
  if (::chown(path.c_str(), user, group) != 0) throw std::runtime_error("cannot change the owner of " + path.string());
}

/// Makes a folder readable for all users, independently of the modes of the book's files.
void open_to_all(const fs::path& folder) {
  set_mode(folder, 0755);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.is_symlink()) set_mode(entry.path(), entry.is_directory() ? 0755 : 0644);
}

bool is_header(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".hpp" || extension == ".cuh" || extension == ".h";
}

constexpr const char* kWorkshops = "workbook-grading-";
constexpr const char* kInspect = "workbook_inspect";
constexpr double kPatience = 4;                         ///< the ratio of a compiler's wall-clock limit to its CPU limit
constexpr const char* kWorkerSeconds = "600";           ///< CPU time
constexpr const char* kCompilersMemory = "1073741824";  ///< bytes of address space

/// The lock of a file, or null if it is not available.
FileLock take_lock(const fs::path& file, int flags) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (descriptor < 0) return {};
  const FileLock lock(new int(descriptor), [](const int* held) {
    ::close(*held);
    delete held;
  });
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? lock : FileLock();
}

/// Removes the workshops of graders that were killed.
void remove_left_behind() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path(), ignored)) {
    struct stat info {};
    if (!entry.path().filename().string().starts_with(kWorkshops) || ::lstat(entry.path().c_str(), &info) != 0)
      continue;
    if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) continue;
    if (take_lock(entry.path() / "lock", 0)) fs::remove_all(entry.path(), ignored);
  }
}

/// std::runtime_error if the disk of a folder is full. Otherwise the compiler would report an error in the source.
void require_room(const fs::path& folder) {
  constexpr std::uintmax_t enough = 4 << 20;
  if (fs::space(folder).available < enough)
    throw std::runtime_error(fmt::format("the disk of {} is full: nothing can be compiled", folder.string()));
}

/// The isolating program and its first options. `folder`: an empty folder where the separate root is mounted.
std::vector<std::string> isolated(const Isolation& isolation, const char* mode, unsigned user, const fs::path& folder) {
  std::vector<std::string> words{isolation.program.string(), mode};
  if (isolation.other_user) words.insert(words.end(), {"--user", std::to_string(user)});
  if (isolation.view) words.insert(words.end(), {"--view", folder.string()});
  return words;
}

/// Runs a probe in the isolation and adds everything that it can do but must not.
void probe(const Isolation& isolation, const char* mode, unsigned user, const std::vector<fs::path>& paths,
           std::set<std::string>& problems) {
  // The probe is a copy of the isolating program where every user can run it, since the book's folder should be closed
  // to other users.
  const auto folder = book::temporary_folder(fs::temp_directory_path(), "workbook-probe-");
  const fs::path copy = *folder / "probe", view = *folder / "view";
  set_mode(*folder, 0711);
  fs::copy_file(isolation.program, copy);
  set_mode(copy, 0755);
  fs::create_directory(view);
  std::vector<std::string> argv = isolated(isolation, mode, user, view);
  argv.insert(argv.end(), {"--seconds", "30", "--read", copy.string(), "--", copy.string(), "probe", mode});
  for (const fs::path& path : paths) argv.push_back(path.string());
  worker::CommandOptions command;
  command.time = 60;
  command.folder = "/";
  const worker::CommandResult result = worker::run_command(argv, command);
  bool end = false;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    end = end || line == "end";
    if (line == "end") continue;
    if (const std::size_t number = line.find('#'); number != std::string::npos && line.starts_with("could "))
      line = line.substr(0, number) + paths.at(std::stoul(line.substr(number + 1))).string();
    problems.insert(fmt::format("a {} {}", std::string(mode) == "run" ? "worker" : "compiler", line));
  }
  if (!end && problems.empty()) problems.insert(fmt::format("the probe ended with {}", result.exit_code));
}

/// Copies headers that are not there yet.
void copy_headers(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const fs::path copy = to / entry.path().filename();
    if (is_header(entry.path()) && !fs::exists(copy)) book::write_file(copy, book::read_file(entry.path()));
  }
}

/// Copies exactly the files from which a worker is compiled to a folder. Returns the job with the copied files.
WorkerJob stage_sources(const WorkerJob& job, const fs::path& stage) {
  WorkerJob staged;
  staged.name = "worker";
  staged.backend = job.backend;
  staged.architecture = job.architecture;
  staged.flags = job.flags;
  std::vector<fs::path> sources = job.sources;
  sources.insert(sources.end(), job.books_sources.begin(), job.books_sources.end());
  for (const fs::path& source : sources) {
    const bool operations = source.stem() == "operations";
    const fs::path relative =
        fs::path(operations ? "tests" : "chapters") / source.parent_path().filename() / source.filename();
    book::write_file(stage / relative, book::read_file(source));
    staged.sources.push_back(stage / relative);
    if (!operations) copy_headers(job.include, (stage / relative).parent_path());  // submitted files take precedence
    copy_headers(source.parent_path(), (stage / relative).parent_path());
    if (!operations) staged.include = (stage / relative).parent_path();
  }
  for (const fs::path& folder : job.used) {
    staged.used.push_back(stage / "used" / folder.filename());
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_regular_file())
        book::write_file(staged.used.back() / entry.path().filename(), book::read_file(entry));
  }
  return staged;
}

/// A key for a source: its path in the book and how it is compiled, independent of the stage.
std::string source_key(const WorkerJob& staged, const fs::path& stage, const fs::path& source) {
  return fmt::format("{} {} {} {}", source.lexically_relative(stage).string(), worker::name(staged.backend),
                     staged.architecture, fmt::join(staged.flags, " "));
}

}  // namespace

UserIds::UserIds() {
  // Above the ids that systems assign to users and services, below those that a user namespace may not map.
  constexpr unsigned from = 60800, to = 64800;
  // The files are not removed: a lock on a removed file would exclude no other process.
  for (first_ = from; first_ < to; first_ += kCount) {
    lock_ = take_lock(fs::temp_directory_path() / fmt::format("workbook-users-{}.lock", first_), O_CREAT);
    if (lock_) return;
  }
  judge::fail_environment(
      "all user ids from {} to {} are in use by other graders on this machine, or the lock files in {} cannot be "
      "created",
      from, to - 1, fs::temp_directory_path().string());
}

Isolation prove_isolation(const fs::path& program, const std::vector<fs::path>& protected_paths) {
  constexpr const char* how = "allowed: fix this, or use --unsafe to run submissions without any protection";
  if (!fs::exists(program))
    judge::fail_environment(
        "submissions cannot be isolated: libseccomp was not found when the book was built (package libseccomp-dev); {}",
        how);
  Isolation isolation;
  isolation.program = program;
  isolation.other_user = ::geteuid() == 0;
  isolation.view = worker::run_command({program.string(), "view"}).exit_code == 0;
  if (!isolation.other_user && !isolation.view)
    judge::fail_environment(
        "submissions cannot be isolated: you are not root, and this system does not allow other users to mount in a "
        "user namespace (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0); {}",
        how);
  std::set<std::string> problems;
  const std::optional<UserIds> users = isolation.other_user ? std::optional<UserIds>(std::in_place) : std::nullopt;
  for (const char* mode : {"run", "build"})
    probe(isolation, mode, users ? users->first() : 0, protected_paths, problems);
  if (!problems.empty()) {
    const std::size_t shown = std::min<std::size_t>(problems.size(), 12);
    judge::fail_environment(
        "the isolation is not effective here ({}):\n  {}{}\nDeny other users access to protected files: chmod -R "
        "go-rwx on the book, the hidden tests and the submissions, or on a parent folder; {}",
        isolation.view ? "with a separate root" : "root may not mount here",
        fmt::join(problems.begin(), std::next(problems.begin(), std::ptrdiff_t(shown)), "\n  "),
        problems.size() > shown ? fmt::format("\n  and {} more", problems.size() - shown) : "", how);
  }
  json layers = json::array({"no_new_privs", "resource limits", "seccomp", "closed descriptors"});
  if (isolation.other_user) layers.insert(layers.begin(), "another user id for each submission");
  if (isolation.view) layers.push_back("a root of its own");
  isolation.record = {{"on", true}, {"layers", layers}, {"proved", true}, {"unreadable", protected_paths.size()}};
  return isolation;
}

Workshop::Workshop(const worker::Toolchain& toolchain, Isolation isolation, IsolationLimits limits, unsigned slots)
    : toolchain_(toolchain),
      temporary_(book::temporary_folder(fs::temp_directory_path(), kWorkshops)),
      folder_(*temporary_),
      lock_(take_lock(folder_ / "lock", O_CREAT)),
      isolation_(std::move(isolation)),
      limits_(limits),
      slots_(slots),
      inside_(toolchain),
      lost_(slots) {
  if (!lock_) throw std::runtime_error("cannot lock " + folder_.string());
  ::umask(022);  // other users can read files written here unless their folder is closed
  remove_left_behind();
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  threads_ = std::clamp(cores / slots_, 1u, UserIds::kCount - 1);
  if (isolation_.other_user) users_.resize(slots_);
  // Other users may traverse the folder to their own files, but not list it.
  set_mode(folder_, 0711);
  fs::create_directory(folder_ / "view");
  fs::create_directory(folder_ / "books");
  set_mode(folder_ / "books", 0700);
  copy_book();
  for (unsigned slot = 0; slot < slots_; ++slot) clear(slot);
}

void Workshop::copy_book() {
  const fs::path headers = folder_ / "headers", objects = folder_ / "objects";
  for (const fs::path& file : book::files_below(toolchain_.root / "common")) {
    // For the GPU, the book's own kernels are compiled too.
    if (is_header(file) || file.extension() == ".cu")
      book::write_file(headers / file.lexically_relative(toolchain_.root), book::read_file(file));
  }
  fs::create_directories(objects);
  fs::create_directories(headers / "precompiled");
  // Object files and libraries are copied from any folder; programs are not copied.
  const auto moved = [&](const std::string& word) {
    const fs::path path = word;
    const std::string extension = path.extension().string();
    std::error_code ignored;
    const bool is_linked = extension == ".o" || extension == ".a" || extension == ".so";
    if (is_linked && path.is_absolute() && fs::is_regular_file(path, ignored)) {
      // A shared library keeps its name, by which it is found at run time. Object files get a hash, since their names
      // may coincide.
      const std::string name = extension == ".so" ? path.filename().string() : book::hash(word) + extension;
      if (!fs::exists(objects / name)) fs::copy_file(path, objects / name);
      return (objects / name).string();
    }
    return book::replaced(word, (toolchain_.root / "common").string(), (headers / "common").string());
  };
  for (auto& [backend, rules] : inside_.backends) {
    for (auto* words : {&rules.compile, &rules.kernels, &rules.link, &rules.libraries, &rules.objects, &rules.sources})
      for (std::string& word : *words) word = moved(word);
    for (const char* ending : {"", ".gch"}) {
      const fs::path header = toolchain_.build_folder / (rules.precompiled + ending);
      if (fs::is_regular_file(header)) fs::copy_file(header, headers / "precompiled" / header.filename());
    }
    if (backend == Backend::cuda) continue;
    for (auto* words : {&rules.compile, &rules.kernels}) {
      if (words->empty()) continue;
      // Limits the number of errors, since the compiler searches for a suggestion for each. Source lines are not shown,
      // because they would be those of the composed file.
      words->insert(words->end(), {"-fmax-errors=50", "-fno-diagnostics-show-caret"});
      if (limits_.judge_objects) words->insert(words->end(), judge::kChecked.begin(), judge::kChecked.end());
    }
  }
  if (limits_.judge_objects) fs::copy_file(toolchain_.build_folder / "bin" / kInspect, objects / kInspect);
  open_to_all(headers);
  open_to_all(objects);
  if (limits_.judge_objects) set_mode(objects / kInspect, 0755);
}

fs::path Workshop::mirror(unsigned slot) const {
  return folder_ / fmt::format("slot{}", slot) / "mirror";
}

void Workshop::clear(unsigned slot) {
  const fs::path folder = folder_ / fmt::format("slot{}", slot);
  fs::remove_all(folder);
  fs::create_directories(folder / "mirror");
  fs::create_directories(folder / "workers");
  set_mode(folder, 0711);
  set_mode(folder / "mirror", 0700);
  set_mode(folder / "workers", 0710);
  if (isolation_.other_user) give_to(folder / "workers", 0, user(slot, 0));
  lost_[slot] = 0;
  std::erase_if(known_, [&](const auto& known) { return known.first.first == slot; });
}

std::vector<std::string> Workshop::prefix(const char* mode, unsigned slot, unsigned user) const {
  std::vector<std::string> words = isolated(isolation_, mode, user, folder_ / "view");
  words.insert(words.end(), {"--share", std::to_string(slot), "--shares", std::to_string(slots_)});
  return words;
}

std::vector<std::string> Workshop::worker_prefix(unsigned slot, Backend backend) const {
  if (isolation_.program.empty()) return {};
  std::vector<std::string> words = prefix("run", slot, user(slot, 0));
  words.insert(words.end(), {"--cpu", kWorkerSeconds, "--library-path", (folder_ / "objects").string()});
  if (backend == Backend::cuda) words.emplace_back("--gpu");
  words.emplace_back("--");
  return words;
}

double Workshop::build_seconds(unsigned slot, const WorkerJob& job) {
  const std::lock_guard lock(mutex_);
  constexpr double least = 8, times_the_books = 3, most_lost = 2, enough = 300;
  const bool books = job.name.starts_with(kBooks);
  const double first = limits_.build_seconds > 0 ? limits_.build_seconds
                       : books                   ? enough
                                                 : std::max(least, times_the_books * books_seconds_[job.backend]);
  return books || lost_[slot] == 0 ? first : lost_[slot] < most_lost ? first / 2 : 0;
}

std::vector<std::string> Workshop::build_prefix(unsigned slot, unsigned thread, const fs::path& stage, Backend backend,
                                                double seconds) const {
  std::vector<std::string> words = prefix("build", slot, user(slot, thread + 1));
  // The wall-clock limit is larger than the CPU limit, so that load on the machine does not end a compiler early.
  words.insert(words.end(), {"--seconds", fmt::format("{:.0f}", std::ceil(kPatience * seconds)), "--cpu",
                             fmt::format("{:.0f}", std::ceil(seconds)), "--memory",
                             backend == Backend::cuda ? "0" : kCompilersMemory, "--write", stage.string()});
  const std::string compiler = fs::path(toolchain_.compiler).parent_path().parent_path().string();
  for (const std::string& path : {(folder_ / "headers").string(), (folder_ / "objects").string(), compiler,
                                  fs::path(toolchain_.ninja).parent_path().string()}) {
    if (path.size() > 1) words.insert(words.end(), {"--read", path});
  }
  words.emplace_back("--");
  return words;
}

void Workshop::hand_over(unsigned slot, const std::string& name, WorkerBuilt& built) const {
  const fs::path executable = folder_ / fmt::format("slot{}", slot) / "workers" / book::hash(name);
  fs::remove(executable);  // from an earlier build of the same job; not writable for a user other than root
  fs::copy_file(built.executable, executable);
  // The simulator reads its own executable for kernel names and source lines.
  if (isolation_.other_user) give_to(executable, 0, user(slot, 0));
  set_mode(executable, isolation_.other_user ? 0750 : 0500);
  built.executable = executable;
}

void Workshop::take_known_objects(unsigned slot, const fs::path& stage, WorkerJob& staged) {
  const auto is_the_same = [&](const auto& file) {
    return fs::exists(stage / file.first) && book::read_file(stage / file.first) == file.second;
  };
  const std::lock_guard lock(mutex_);
  std::erase_if(staged.sources, [&](const fs::path& source) {
    for (const unsigned whose : {slots_, slot}) {
      for (const KnownObject& known : known_[{whose, source_key(staged, stage, source)}].objects) {
        if (!std::ranges::all_of(known.files, is_the_same)) continue;
        const fs::path object = stage / known.object.filename();
        fs::copy_file(known.object, object);
        staged.libraries.push_back(object.string());
        return true;
      }
    }
    return false;
  });
}

void Workshop::keep_objects(unsigned slot, const worker::Toolchain& toolchain, const WorkerJob& staged,
                            const WorkerBuilt& built) {
  std::vector<fs::path> objects;
  for (const auto& [source, object] : built.objects) objects.push_back(object);
  const auto read = worker::files_read(toolchain, objects);
  const fs::path folder = slot == slots_ ? folder_ / "books" : mirror(slot) / "objects";
  fs::create_directories(folder);
  const std::lock_guard lock(mutex_);
  for (const auto& [source, object] : built.objects) {
    if (!read.contains(object)) continue;
    const std::string key = source_key(staged, toolchain.root, source);
    std::vector<KnownObject>& known = known_[{slot, key}].objects;
    KnownObject kept{folder / fmt::format("{}.{}{}.o", book::hash(key), known.size(), source.extension().string()), {}};
    for (const fs::path& file : read.at(object))
      if (file.is_relative() && *file.begin() != "common") kept.files[file] = book::read_file(toolchain.root / file);
    fs::copy_file(object, kept.object);
    known.push_back(std::move(kept));
  }
}

void Workshop::open_stage(unsigned slot, unsigned thread, const fs::path& stage) const {
  fs::create_directory_symlink(folder_ / "headers" / "common", stage / "common");
  for (const char* folder : {"build/workers/objects", "build/workers/worker", "tmp"})
    fs::create_directories(stage / folder);
  fs::create_directory_symlink(folder_ / "headers" / "precompiled", stage / "build" / "precompiled");
  if (!isolation_.other_user) return;
  const unsigned id = user(slot, thread + 1);
  give_to(stage, 0, id);
  set_mode(stage, 0750);
  for (const char* folder : {"tmp", "build/workers", "build/workers/objects", "build/workers/worker"})
    give_to(stage / folder, id, id);
}

void Workshop::learn_or_judge(unsigned slot, const std::string& name, const worker::Toolchain& toolchain,
                              const WorkerJob& staged, WorkerBuilt& built) {
  const auto key = [&](const fs::path& source) { return source_key(staged, toolchain.root, source); };
  const auto names = [&](const fs::path& source) { return folder_ / "objects" / book::hash(key(source) + ".names"); };
  const bool books = name.starts_with(kBooks);
  if (books) {
    const std::lock_guard lock(mutex_);
    for (const fs::path& source : staged.sources) {
      known_[{slots_, key(source)}].books_names = judge::refused_names(judge::preprocessed(built.objects.at(source)));
      if (!judge::is_answer(source))
        book::write_file(names(source),
                         fmt::format("{}\n", fmt::join(judge::names_in(built.objects.at(source)), "\n")));
    }
  }
  // The book's own objects are checked too: if this compiler's output violates the rules there, every submission would
  // fail.
  if (limits_.judge_objects && !name.starts_with(kTried)) {
    std::vector<std::string> command = toolchain.prefix;
    command.push_back((folder_ / "objects" / kInspect).string());
    const std::string said = judge::not_allowed(
        toolchain, staged, built,
        [&](const fs::path& source, const judge::ObjectRules& rules) {
          const std::string books = judge::is_answer(source) ? "" : names(source).string();
          auto taken = toolchain.backends.at(staged.backend).objects;
          taken.insert(taken.end(), rules.host_objects.begin(), rules.host_objects.end());
          judge::Inspected found = judge::inspect(command, built.objects.at(source), rules, books, taken);
          built.seconds += found.seconds;
          return found;
        },
        [&](const fs::path& source) -> const judge::NameCounts& {
          const std::lock_guard lock(mutex_);
          const auto& with_headers = known_[{slot, key(source)}].books_names;
          return with_headers.empty() ? known_[{slots_, key(source)}].books_names : with_headers;
        });
    built.ok = said.empty();
    built.log += said + (built.ok ? "" : "notes/allowed.md explains the rules and what to write instead\n");
  }
  if (built.ok && !name.starts_with(kTried)) keep_objects(books ? slots_ : slot, toolchain, staged, built);
}

void Workshop::explain(unsigned slot, double seconds, WorkerBuilt& built) {
  require_room(folder_);
  if (built.log.ends_with("compiling was interrupted\n"))
    throw std::runtime_error("the compiler was ended by a signal");
  if (built.log.find("CPU time limit exceeded signal terminated program") != std::string::npos)
    built.log = fmt::format("compiling took longer than {:.0f} seconds and was ended\n", std::ceil(seconds));
  const std::size_t ended = built.log.find("compiling took longer than");
  if (ended == std::string::npos) return;
  built.log.erase(0, ended);  // the text before it is the command
  const std::lock_guard lock(mutex_);
  lost_[slot] += lost_[slot] == 0 ? 1 : 0.5;
}

WorkerBuilt Workshop::build_one(unsigned slot, unsigned thread, const WorkerJob& job) {
  // Only its user can enter this folder.
  const fs::path stage = folder_ / fmt::format("slot{}", slot) / fmt::format("stage{}", thread);
  fs::remove_all(stage);
  WorkerJob staged = stage_sources(job, stage);
  take_known_objects(slot, stage, staged);
  open_stage(slot, thread, stage);
  worker::Toolchain toolchain = inside_;
  toolchain.root = stage;
  toolchain.build_folder = stage / "build";
  const bool names_alone = job.name.starts_with(kBooksWithHeaders);
  if (names_alone)
    for (auto* words : {&toolchain.backends.at(job.backend).compile, &toolchain.backends.at(job.backend).kernels})
      if (!words->empty()) words->emplace_back("-E");
  const double seconds = build_seconds(slot, job);
  if (seconds == 0)
    return {.log = "compiling took too long several times: the rest of this submission is not compiled\n"};
  if (!isolation_.program.empty()) toolchain.prefix = build_prefix(slot, thread, stage, job.backend, seconds);
  WorkerBuilt built = worker::build_workers(toolchain, {staged}).at("worker");
  if (names_alone) {
    const std::lock_guard lock(mutex_);
    for (const auto& [source, text] : built.objects)
      if (fs::exists(text))
        known_[{slot, source_key(staged, stage, source)}].books_names = judge::refused_names(book::read_file(text));
    return built;
  }
  if (built.ok) learn_or_judge(slot, job.name, toolchain, staged, built);
  {
    const std::lock_guard lock(mutex_);
    double& books = books_seconds_[job.backend];
    if (job.name.starts_with(kBooks)) books = std::max(books, built.seconds);
    // Slow code costs a submission as timeouts do; the book's own costs nothing. No chapter takes less than 4 s.
    lost_[slot] += std::max(0.0, built.seconds / (2 * std::max(books, 4.0)) - 1);
  }
  if (built.ok) hand_over(slot, job.name, built);
  if (!built.ok) explain(slot, seconds, built);
  fs::remove_all(stage);
  return built;
}

judge::Built Workshop::build(unsigned slot, const std::vector<WorkerJob>& jobs) {
  std::vector<WorkerJob> own, others;
  for (const WorkerJob& job : jobs) {
    // The book's own solution, unless it contains additions of the submission, and the book's wrong solutions.
    const bool books =
        job.name.starts_with(judge::kWrong) ||
        (job.name.starts_with("solutions/") &&
         !fs::canonical(job.include).lexically_relative(toolchain_.root / "solutions").string().starts_with(".."));
    (books ? own : others).push_back(job);
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&](unsigned thread) {
    judge::Built built;
    for (std::size_t i = next++; i < others.size(); i = next++)
      built[others[i].name] = build_one(slot, thread, others[i]);
    return built;
  };
  std::vector<std::future<judge::Built>> threads;
  for (unsigned thread = 0; thread < std::min<std::size_t>(threads_, others.size()); ++thread)
    threads.push_back(std::async(std::launch::async, work, thread));
  judge::Built built;
  for (auto& thread : threads) built.merge(thread.get());
  if (own.empty()) return built;
  // These are built outside the isolation, once for all submissions.
  const std::lock_guard lock(mutex_);
  for (WorkerJob& job : own) {
    for (auto* sources : {&job.sources, &job.books_sources})
      for (fs::path& source : *sources) source = fs::canonical(source);
    for (fs::path* include : {&job.include, &job.books_include}) *include = fs::canonical(*include);
  }
  for (auto& [name, result] : worker::build_workers(toolchain_, own)) {
    if (result.ok) hand_over(slot, name, result);
    built[name] = std::move(result);
  }
  return built;
}

}  // namespace workbook::grading
