#include "common/judge/allowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "common/book/files.hpp"
#include "common/judge/object.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

/// What to write instead, by the beginning of what is refused; the first that fits. notes/allowed.md has each, with its
/// reason.
struct Instead {
  std::string_view beginning;
  std::string_view instead;
};
constexpr std::string_view kInstruction =
                               "the book's headers have a function for every instruction that a lesson names",
                           kAttribute = "leave out the attribute that puts it there",
                           kThread = "an answer runs in the thread that calls it; a kernel's threads are its grid's";
constexpr std::array kInstead{
    Instead{"names asm ", kInstruction},
    Instead{"names __asm", kInstruction},
    Instead{"names __builtin_", "write the access in plain C++, so that the simulator sees it"},
    Instead{"names #include", "call what the lesson names; each source is compiled by itself"},
    Instead{"names ", "do without it, since it takes code out of what is checked"},
    Instead{"defines ", "choose another name, since the program around the answer has this one"},
    Instead{"keeps ", "keep what a call needs in its own variables, or in a std::vector"},
    Instead{"has code that runs before", "make it a constant, or a static variable of a function"},
    Instead{"has ", kAttribute},
    Instead{"chooses ", kAttribute},
    Instead{"calls std::thread", kThread},
    Instead{"calls typeinfo for std::thread", kThread},
    Instead{"calls pthread_", kThread},
    Instead{"calls std::__future_base", kThread},
    Instead{"calls simt::", "call what the lesson names; the simulator's own functions are for the book's headers"},
    Instead{"calls workbook::", "call what the lesson names; the rest is for the book's own programs"},
    Instead{"calls ", "an answer works on its arguments and may print; files and processes are not its business"},
    Instead{"", "write it in plain C++"}};

std::string_view instead_of(const std::string& what) {
  return std::ranges::find_if(kInstead, [&](const Instead& instead) { return what.starts_with(instead.beginning); })
      ->instead;
}

/// What is refused in a source, a line for each remedy, with the two shortest of what it is for: the rest are what
/// these bring with them. "names asm, which has no place in an answer: the book's headers have …".
std::vector<std::string> told(const std::vector<std::string>& refused) {
  std::map<std::string_view, std::vector<std::string>> lines;
  for (const std::string& what : refused) lines[instead_of(what)].push_back(what);
  std::vector<std::string> told;
  for (auto& [instead, whats] : lines) {
    std::ranges::stable_sort(whats, {}, &std::string::size);
    told.push_back(fmt::format("{}{}, which has no place in an answer: {}", whats[0],
                               whats.size() > 1 ? " and " + whats[1] : "", instead));
  }
  return told;
}

/// Whether a file's text, comments and all, has a name that it may not have. The preprocessor knows; this asks quickly
/// whether it is worth asking.
bool is_suspicious(const fs::path& source) {
  const std::string text = book::read_file(source);
  return !refused_names(text).empty() || text.find(".cu\"") != text.npos || text.find(".cpp\"") != text.npos;
}

/// The jobs of a plan that hold the reader's own code.
std::vector<worker::WorkerJob> readers_jobs(const Plan& plan) {
  std::vector<worker::WorkerJob> jobs;
  for (const auto& [name, job] : plan.jobs) {
    const bool asked = name == plan.whole || std::ranges::any_of(plan.exercises, [&, &job_name = name](const auto& e) {
                         return e.second.worker == job_name;
                       });
    if (asked && !name.starts_with("solutions/")) jobs.push_back(job);
  }
  return jobs;
}

/// The same, built so that the preprocessor's text lies beside each object file.
worker::WorkerBuilt built_in_steps(const Workspace& workspace, worker::WorkerJob job) {
  job.name += ".names";
  job.flags = {"-save-temps=obj"};
  return worker::build_workers(workspace.toolchain, {job}).at(job.name);
}

/// The names of the book's own file of this name.
NameCounts books_names_of(const Workspace& workspace, const Plan& plan, Backend backend, const fs::path& source) {
  const worker::WorkerJob job = whole_job(workspace, *plan.chapter, solutions_tree(workspace, *plan.chapter), backend);
  const worker::WorkerBuilt book = built_in_steps(workspace, job);
  for (const auto& [file, object] : book.objects)
    if (file.filename() == source.filename()) return refused_names(preprocessed(object));
  return {};
}

}  // namespace

bool is_answer(const fs::path& source) {
  return source.stem() != "stage" && source.stem() != "operations";
}

std::string preprocessed(const fs::path& object) {
  const fs::path text = fs::path(object).replace_extension(".ii");
  return fs::exists(text) ? book::read_file(text) : "";
}

std::string not_allowed(const worker::WorkerJob& job, const worker::WorkerBuilt& built,
                        const std::set<std::string>& taken,
                        const std::function<const NameCounts&(const fs::path&)>& books_names) {
  std::map<std::string, std::vector<std::string>> sources_of;  // of each line: a header is a part of several
  for (const fs::path& source : job.sources) {
    if (!is_answer(source)) continue;
    const fs::path& object = built.objects.at(source);
    const bool kernels = source.extension() == ".cu";
    std::vector<std::string> refused = more_than(refused_names(preprocessed(object)), books_names(source));
    const std::vector<std::string> more =
        refused_in_object(object, {kernels, kernels && job.backend == Backend::cuda, taken});
    refused.insert(refused.end(), more.begin(), more.end());
    for (const std::string& line : told(refused)) sources_of[line].push_back(source.filename().string());
  }
  std::string said;
  for (const auto& [line, sources] : sources_of)
    said += fmt::format("{}: the compiled code {}\n", fmt::join(sources, ", "), line);
  return said;
}

std::vector<std::string> not_gradable(const Workspace& workspace, const Plan& plan, const Built& built) {
  std::vector<std::string> lines;
  // A sanitizer adds to every object file.
  if (!workspace.toolchain.sanitize.empty() || plan.request.backend == Backend::cuda) return lines;
  for (const worker::WorkerJob& job : readers_jobs(plan)) {
    const auto found = built.find(job.name);
    if (found == built.end() || !found->second.ok || !job.flags.empty()) continue;
    worker::WorkerBuilt own = found->second;
    std::map<fs::path, NameCounts> books;
    if (std::ranges::any_of(job.sources, [](const fs::path& s) { return is_answer(s) && is_suspicious(s); })) {
      own = built_in_steps(workspace, job);
      if (!own.ok) continue;
      for (const fs::path& source : job.sources)
        if (is_answer(source)) books[source] = books_names_of(workspace, plan, job.backend, source);
    }
    std::istringstream said(not_allowed(job, own, names_taken(workspace.toolchain.backends.at(job.backend).objects),
                                        [&](const fs::path& source) -> const NameCounts& { return books[source]; }));
    for (std::string line; std::getline(said, line);)
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

}  // namespace workbook::judge
