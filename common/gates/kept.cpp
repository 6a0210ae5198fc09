#include "common/gates/kept.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/book/files.hpp"
#include "common/book/folders.hpp"

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

using judge::ChapterRun, judge::Plan, judge::Workspace;
using nlohmann::json;

constexpr int kFormat = 4;  ///< changes with what an entry holds, and with what a key leaves out

/// A path, or words with one in them, as any clone has it.
std::string anywhere(const Workspace& workspace, std::string text) {
  const std::string root = workspace.book.root.string() + "/";
  for (std::size_t at = text.find(root); at != std::string::npos; at = text.find(root, at)) text.erase(at, root.size());
  return text;
}
json anywhere(const Workspace& workspace, const std::vector<std::string>& words) {
  json all = json::array();
  for (const std::string& word : words) all.push_back(anywhere(workspace, word));
  return all;
}

template <class Paths>
json digests_of(const Workspace& workspace, const Paths& files, Digests& digests) {
  json all = json::object();
  for (const auto& file : files) all[anywhere(workspace, fs::path(file).string())] = digests.of(file);
  return all;
}

/// Of the files in a folder; files in its subfolders no worker of another chapter can include.
json folder_digests(const Workspace& workspace, const fs::path& folder, Digests& digests) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return {anywhere(workspace, folder.string()), digests_of(workspace, files, digests)};
}

/// How workers of a backend are made. Nothing if it is not known what is precompiled for them.
std::optional<json> backend_key(const Workspace& workspace, Backend backend, Digests& digests) {
  const worker::Toolchain::Rules& rules = workspace.toolchain.backends.at(backend);
  const auto precompiled = files_precompiled(workspace.toolchain, backend);
  if (!precompiled) return {};
  return json{{"compile", anywhere(workspace, rules.compile)},
              {"kernels", anywhere(workspace, rules.kernels)},
              {"link", anywhere(workspace, rules.link)},
              {"libraries", anywhere(workspace, rules.libraries)},
              {"objects", digests_of(workspace, rules.objects, digests)},
              {"sources", digests_of(workspace, rules.sources, digests)},
              {"precompiled", digests_of(workspace, *precompiled, digests)},
              {"counts", workspace.toolchain.counts_on(backend)}};
}

json job_key(const Workspace& workspace, const worker::WorkerJob& job, Digests& digests) {
  json used = json::array();
  for (const fs::path& folder : job.used) used.push_back(folder_digests(workspace, folder, digests));
  return {{"backend", name(job.backend)},
          {"sources", digests_of(workspace, job.sources, digests)},
          {"include", folder_digests(workspace, job.include, digests)},
          {"books_sources", digests_of(workspace, job.books_sources, digests)},
          {"books_include", folder_digests(workspace, job.books_include, digests)},
          {"used", used},
          {"libraries", job.libraries},
          {"architecture", job.architecture},
          {"flags", job.flags},
          {"sources_flags", job.sources_flags}};
}

json request_key(const judge::RunRequest& request) {
  return {{"backend", name(request.backend)},
          {"exercise", request.exercise},
          {"previous_readers", request.previous_readers},
          {"grafts", request.grafts.value_or(request.backend != Backend::cuda)},
          {"whole_stands_in", request.whole_stands_in},
          {"token", request.token},
          {"groups", request.groups},
          {"only", request.only},
          {"until_failure", request.until_failure},
          {"time_limit", request.time_limit},
          {"version", request.version},
          {"hidden", request.hidden},
          {"seconds", request.seconds}};
}

/// The tree's texts and the book's, beyond what is compiled of them: where exercises lie, and what their tests are.
json chapter_key(const Workspace& workspace, const Plan& plan, Digests& digests) {
  json exercises = json::object(), texts = json::object();
  for (const auto& [id, exercise] : plan.exercises)
    exercises[id] = {exercise.open, exercise.worker, anywhere(workspace, exercise.broken)};
  for (const std::string& file : plan.chapter->files)
    texts[file] = {digests.of(plan.tree.written() / file), digests.of(workspace.book.solution(*plan.chapter, file))};
  return {{"name", plan.chapter->name()},
          {"manifest", digests.of(workspace.book.manifest(*plan.chapter))},
          {"exercises", exercises},
          {"texts", texts},
          {"tree", plan.tree.name},
          {"whole", plan.whole},
          {"previous", {plan.previous, plan.previous_element}}};
}

fs::path test_program(const Workspace& workspace, const Plan& plan) {
  return workspace.toolchain.build_folder / "bin" / ("tests_" + plan.chapter->name());
}

/// The fields of a run that are not the plan's.
json run_json(const ChapterRun& run) {
  json tests = json::array();
  for (const judge::Verdict& verdict : run.tests) tests.push_back(to_json(verdict));
  return {{"tests", tests}, {"notes", run.notes}, {"warnings", run.warnings}, {"own_warnings", run.own_warnings}};
}
ChapterRun run_from_json(const json& document, const Plan& plan) {
  ChapterRun run;
  run.chapter = plan.chapter;
  run.backend = plan.request.backend;
  run.tree = plan.tree.name;
  for (const json& verdict : document.at("tests")) run.tests.push_back(judge::verdict_from_json(verdict));
  document.at("notes").get_to(run.notes);
  document.at("warnings").get_to(run.warnings);
  document.at("own_warnings").get_to(run.own_warnings);
  return run;
}

/// The result that an entry holds, if it is whole, is for this key, and nothing that was compiled for it has changed.
std::optional<json> result_of(const fs::path& entry, const std::string& key, Digests& digests) {
  try {
    const std::string text = book::read_file(entry);
    const std::size_t line = text.find('\n');
    if (line == std::string::npos || text.substr(0, line) != book::hash(text.substr(line + 1))) return {};
    const json document = json::parse(text.substr(line + 1));
    if (document.at("key") != key) return {};
    for (const auto& [file, digest] : document.at("read").items())
      if (digests.of(file) != digest.get<std::string>()) return {};
    return std::optional<json>(std::in_place, document.at("result"));
  } catch (const std::exception&) {  // deleted meanwhile, or another form: there is no such result
    return {};
  }
}

/// What compiles. Debian's list of packages stands for the compilers' parts, the system's headers and its libraries.
json machine_key(const Workspace& workspace, Digests& digests) {
  const worker::Toolchain& toolchain = workspace.toolchain;
  return {digests.of("/var/lib/dpkg/status"), toolchain.compiler_id, digests.of(toolchain.compiler)};
}

}  // namespace

Digests::Digests(const Workspace& workspace)
    : root_(workspace.book.root),
      build_folder_(workspace.toolchain.build_folder),
      since_(fs::file_time_type::clock::now()) {}

const std::string& Digests::of(const fs::path& file) {
  const fs::path path = root_ / file;  // an absolute one stays as it is
  const auto [known, is_new] = known_.try_emplace(path, "none");
  if (is_new && fs::is_regular_file(path)) {
    const std::string text = book::read_file(path);
    known->second = fmt::format("{} {}", text.size(), book::hash(text));
  }
  return known->second;
}

bool Digests::is_gates_own(const fs::path& path) const {
  const std::string text = path.string();
  return text.starts_with((build_folder_ / "check/").string()) ||
         text.starts_with((build_folder_ / "grafts/").string());
}

bool Digests::stood_still() const {
  return std::ranges::all_of(known_, [&](const auto& entry) {
    if (is_gates_own(entry.first)) return true;  // thousands, and no other process writes them
    std::error_code missing;
    const auto time = fs::last_write_time(entry.first, missing);
    return missing ? entry.second == "none" : time <= since_ && entry.second != "none";
  });
}

std::string key_of(const Workspace& workspace, const Plan& plan, const judge::RunRequest& request, Digests& digests) {
  const bool is_gates_own = !request.build && request.worker_prefix.empty() && request.program.empty();
  if (!is_gates_own || request.debug || request.backend == Backend::cuda || !plan.unavailable.empty()) return {};
  json backends = json::object(), jobs = json::object();
  for (const auto& [name, job] : plan.jobs) {
    jobs[name] = job_key(workspace, job, digests);
    json& how = backends[worker::name(job.backend)];
    if (!how.is_null()) continue;
    const std::optional<json> backend = backend_key(workspace, job.backend, digests);
    if (!backend) return {};
    how = *backend;
  }
  return json{{"format", kFormat},
              {"machine", machine_key(workspace, digests)},
              {"gpu", worker::simulated_gpu().name},
              {"backends", backends},
              {"jobs", jobs},
              {"chapter", chapter_key(workspace, plan, digests)},
              {"test_program", digests.of(test_program(workspace, plan))},
              {"request", request_key(request)}}
      .dump();
}

std::string part_key(const Workspace& workspace, const std::string& program, const std::optional<OfChapters>& reads,
                     Digests& digests) {
  if (worker::gpu_present()) return {};
  std::set<fs::path> files;
  for (const char* name : {"chapters", "cmake", "common", "notes", "solutions", "tests", "CMakeLists.txt",
                           "CMakePresets.json", "README.md", "workbook", ".clang-format", ".ci"}) {
    const fs::path path = workspace.book.root / name;
    if (!fs::is_directory(path)) {
      files.insert(path);
      continue;
    }
    for (const fs::path& file : book::files_below(path))
      if (!reads || reads->take(fs::relative(file, workspace.book.root))) files.insert(file);
  }
  const worker::Toolchain& toolchain = workspace.toolchain;
  json backends = json::object();
  for (const auto& [backend, rules] : toolchain.backends)
    backends[name(backend)] = {anywhere(workspace, rules.compile), anywhere(workspace, rules.kernels),
                               anywhere(workspace, rules.link), anywhere(workspace, rules.libraries)};
  const char* const path = std::getenv("PATH");  // which tools the tests find
  return json{{"format", kFormat},
              {"machine", machine_key(workspace, digests)},
              {"program", program},
              {"files", digests_of(workspace, files, digests)},
              {"build", {toolchain.build_type, toolchain.sanitize, toolchain.simulator, backends}},
              {"path", path == nullptr ? "" : path}}
      .dump();
}

std::vector<std::optional<FilesRead>> read_for(const Workspace& workspace, const std::vector<Plan>& plans,
                                               const judge::Built& built, Digests& digests) {
  std::vector<fs::path> objects;
  for (const auto& [name, worker] : built)
    for (const auto& [source, object] : worker.objects) objects.push_back(object);
  const auto read = files_read(workspace.toolchain, objects);
  const auto read_for_one = [&](const Plan& plan) -> std::optional<FilesRead> {
    FilesRead files;
    for (const auto& [name, job] : plan.jobs) {
      const auto worker = built.find(name);
      if (worker == built.end() || !worker->second.ok) return {};
      for (const auto& [source, object] : worker->second.objects) {
        const auto found = read.find(object);
        if (found == read.end()) return {};
        for (const fs::path& file : found->second) files[file.string()] = digests.of(file);
      }
    }
    return files;
  };
  std::vector<std::optional<FilesRead>> all;
  for (const Plan& plan : plans) all.push_back(read_for_one(plan));
  return all;
}

std::optional<json> KeptResults::find(const std::string& key, Digests& digests) const {
  if (key.empty() || folder_.empty()) return {};
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / book::hash(key), none)) {
    const std::optional<json> result = result_of(entry.path(), key, digests);
    if (!result) continue;
    std::error_code ignored;
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now(), ignored);  // when it was used
    return result;
  }
  return {};
}

std::optional<ChapterRun> KeptResults::find(const std::string& key, const Plan& plan, Digests& digests) const {
  try {
    const std::optional<json> result = find(key, digests);
    if (result) return run_from_json(*result, plan);
  } catch (const std::exception&) {  // of another form
  }
  return {};
}

void KeptResults::keep(const std::string& key, const FilesRead& read, const ChapterRun& run) const {
  if (run.finished) keep(key, read, run_json(run));
}

void KeptResults::keep(const std::string& key, const FilesRead& read, const json& result) const {
  if (key.empty() || folder_.empty()) return;
  const json files = read;
  const std::string text =
      json{{"key", key}, {"read", files}, {"result", result}}.dump(-1, ' ', false, json::error_handler_t::replace);
  try {
    book::write_file(folder_ / book::hash(key) / book::hash(files.dump()), book::hash(text) + "\n" + text);
  } catch (const std::runtime_error&) {  // no space, or a folder of another user
  }
}

void KeptResults::prune() const {
  struct Entry {
    fs::file_time_type used;
    fs::path path;
    std::uintmax_t bytes;
  };
  std::vector<Entry> entries;
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone)) continue;
    entries.push_back({at->last_write_time(gone), at->path(), at->file_size(gone)});
    if (gone)
      entries.pop_back();
    else
      bytes += entries.back().bytes;
  }
  if (bytes <= most_bytes_) return;
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (bytes <= most_bytes_ / 4 * 3) break;
    bytes -= entry.bytes;
    fs::remove(entry.path, error);
    fs::remove(entry.path.parent_path(), error);  // if it was the last
  }
}

fs::path cache_folder() {
  const auto folder = [](const char* variable) {
    const char* text = std::getenv(variable);
    const fs::path path = text == nullptr ? "" : text;
    return path.is_absolute() ? path : fs::path();
  };
  fs::path cache = folder("XDG_CACHE_HOME");
  if (cache.empty() && !folder("HOME").empty()) cache = folder("HOME") / ".cache";
  return cache.empty() ? cache : cache / "flashattention-workbook" / "trees";
}

}  // namespace workbook::gates
