#include "common/judge/allowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <sstream>

#include "common/book/files.hpp"
#include "common/judge/object.hpp"
#include "common/worker/command.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

/// What to write instead, by the beginning of what is refused or by the reason at its end; the first that fits.
/// notes/allowed.md has each, with its reason.
struct Instead {
  std::string_view beginning;
  std::string_view instead;
};
constexpr std::string_view kInstruction =
                               "the book's headers have a function for every instruction that a lesson names",
                           kAttribute = "leave out the attribute that puts it there",
                           kThread = "an answer runs in the thread that calls it; a kernel's threads are its grid's";
constexpr std::array kInstead{
    Instead{"(a way round the language)",
            "write one code for all cases, and call functions by the names that C++ gives them"},
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
  const auto fits = [&](const Instead& instead) {
    return instead.beginning.starts_with('(') ? what.ends_with(instead.beginning) : what.starts_with(instead.beginning);
  };
  return std::ranges::find_if(kInstead, fits)->instead;
}

/// What is refused as its writer would call it: of a stream of files the compiled code has many a name.
std::string as_written(const std::string& what) {
  for (const char* name : {"std::__basic_file", "std::basic_filebuf", "std::basic_ifstream", "std::basic_ofstream"})
    if (what.starts_with("calls ") && what.find(name) != what.npos)
      return "opens a file (std::ifstream, std::ofstream, std::fstream)";
  return what;
}

/// The line of a chapter's file that this code was compiled from, as its debug information says; empty: of none.
std::string place_of(const worker::Toolchain& toolchain, const fs::path& object, const Refusal& refused) {
  const fs::path addr2line = worker::find_program("addr2line");
  if (refused.section.empty() || addr2line.empty()) return refused.place;
  std::vector<std::string> argv = toolchain.prefix;  // the object is the student's too
  argv.insert(argv.end(), {addr2line.string(), "-i", "-e", object.string(), "-j", refused.section,
                           fmt::format("{:#x}", refused.offset)});
  // From an inlined function to its caller: "/tmp/…/chapters/02_online_softmax/online_softmax.cpp:31 (discriminator
  // 2)".
  std::istringstream frames(worker::run_command(argv).output);
  const std::string root = toolchain.root.string() + "/";
  for (std::string frame; std::getline(frames, frame);) {
    if (frame.starts_with(root + "chapters/") && !frame.ends_with('?'))
      return frame.substr(root.size(), frame.find(" (") - root.size());
  }
  return "";
}

/// What is refused in a source, a line for each remedy, with the two shortest of what it is for: the rest are what
/// these bring with them. "names asm, which has no place in an answer: the book's headers have …". The place is that of
/// the first of them.
std::vector<Refusal> told(std::vector<Refusal> refused, const std::function<std::string(const Refusal&)>& place) {
  std::map<std::string_view, std::vector<Refusal>> lines;
  for (Refusal& one : refused) lines[instead_of(one.what)].push_back(std::move(one));
  std::vector<Refusal> told;
  for (auto& [instead, all] : lines) {
    std::ranges::stable_sort(all, {}, [](const Refusal& one) { return one.what.size(); });
    const std::string first = as_written(all[0].what),
                      second = as_written(all[std::min<std::size_t>(1, all.size() - 1)].what);
    told.push_back({fmt::format("{}{}, which has no place in an answer: {}", first,
                                second != first ? " and " + second : "", instead),
                    place(all[0])});
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

/// The same, built so that the preprocessor's text lies beside each object file, which names its lines.
worker::WorkerBuilt built_in_steps(const Workspace& workspace, worker::WorkerJob job) {
  job.name += ".names";
  job.flags = {"-save-temps=obj", kNamesLines};
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

std::string not_allowed(const worker::Toolchain& toolchain, const worker::WorkerJob& job,
                        const worker::WorkerBuilt& built, const std::set<std::string>& taken,
                        const std::function<const NameCounts&(const fs::path&)>& books_names) {
  using Line = std::pair<std::string, std::string>;     // what is said, and its place
  std::map<Line, std::vector<std::string>> sources_of;  // a header is a part of several
  for (const fs::path& source : job.sources) {
    if (!is_answer(source)) continue;
    const fs::path& object = built.objects.at(source);
    const bool kernels = source.extension() == ".cu";
    std::vector<Refusal> refused = more_than(refused_names(preprocessed(object)), books_names(source));
    const std::vector<Refusal> more =
        refused_in_object(object, {kernels, kernels && job.backend == Backend::cuda, taken});
    refused.insert(refused.end(), more.begin(), more.end());
    const auto place = [&](const Refusal& one) { return place_of(toolchain, object, one); };
    for (const Refusal& line : told(std::move(refused), place))
      sources_of[{line.what, line.place}].push_back(source.filename().string());
  }
  std::string said;
  for (const auto& [line, sources] : sources_of)
    said += fmt::format("{}: the compiled code {}\n",
                        line.second.empty() ? fmt::format("{}", fmt::join(sources, ", ")) : line.second, line.first);
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
    const auto refused = [&] {
      return not_allowed(workspace.toolchain, job, own,
                         names_taken(workspace.toolchain.backends.at(job.backend).objects),
                         [&](const fs::path& source) -> const NameCounts& { return books[source]; });
    };
    if (std::ranges::any_of(job.sources, [](const fs::path& s) { return is_answer(s) && is_suspicious(s); }) ||
        !refused().empty()) {
      own = built_in_steps(workspace, job);
      if (!own.ok) continue;
      for (const fs::path& source : job.sources) {
        if (!is_answer(source)) continue;
        books[source] = books_names_of(workspace, plan, job.backend, source);
        // What only headers name is not the reader's: the book's file need not include them.
        for (const auto& [name, mine] : refused_names(preprocessed(own.objects.at(source))))
          if (mine.place.empty()) books[source][name] = mine;
      }
    }
    std::istringstream said(refused());
    for (std::string line; std::getline(said, line);)
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

}  // namespace workbook::judge
