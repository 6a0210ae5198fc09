#include "common/judge/allowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "common/book/files.hpp"
#include "common/simt/uninstrumented.hpp"
#include "common/worker/command.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

/// What to write instead, selected by the first words of the refusal or by the reason at its end.
/// notes/allowed.md lists each remedy with its reason.
std::string_view remedy_for(std::string_view what) {
  const auto begins = [&](auto... beginnings) { return (what.starts_with(beginnings) || ...); };
  if (what.ends_with("(a construct outside standard C++)"))
    return "write one implementation for all cases, and call functions by their C++ names";
  if (begins("uses asm ", "uses __asm"))
    return "the book's headers have a function for every instruction that a lesson names";
  const bool of_library = what.find("streambuf") != what.npos || what.find("_chars(") != what.npos;
  if (of_library ||
      begins("uses __builtin_", "calls __mem", "calls memc", "calls mempcpy", "calls bcmp", "calls str",
             "calls vprintf", "calls vfprintf", "calls qsort", "calls frexpl", "calls modfl", "calls remquo"))
    return "write the access in plain C++, so that the simulator records it";
  if (begins("passes "))
    return "call the function with a local copy, and assign its result: p[i] = f(x); or make it __forceinline__";
  if (begins("declares "))
    return "device code may read constants (const, constexpr, __constant__); store what changes in registers, shared "
           "memory or a tensor";
  if (begins("changes ")) return "undefine your macro after your code (#undef), or choose another name";
  if (begins("includes ")) return "call the functions that the lesson names; each source file is compiled separately";
  if (begins("uses ")) return "remove it: it exempts code from the checks";
  if (begins("defines ")) return "choose another name: the program that links your code already defines this one";
  if (begins("reserves ")) return "store the data in local variables or in a std::vector";
  if (begins("has ", "selects ")) return "remove the attribute that places it there";
  if (begins("calls std::thread", "calls typeinfo for std::thread", "calls pthread_", "calls std::__future_base"))
    return "run in the thread that calls your function; a kernel's threads are those of its grid";
  if (begins("calls ch0", "calls ch1", "calls ch2"))
    return "call only functions of kernel files in a kernel file; on a GPU, a kernel cannot call the others";
  if (begins("calls simt::"))
    return "call the functions that the lesson names; the simulator's own functions are reserved for the book's "
           "headers";
  if (begins("calls workbook::"))
    return "call the functions that the lesson names; the rest of the book's library is reserved for its own programs";
  if (begins("calls ")) return "work on the arguments alone; printing is allowed, files and processes are not";
  return "write it in plain C++";
}

/// The refusal in the words of the source. File streams appear under several names in compiled code.
std::string as_written(const std::string& what) {
  for (const char* name : {"std::__basic_file", "std::basic_filebuf", "std::basic_ifstream", "std::basic_ofstream"})
    if (what.starts_with("calls ") && what.find(name) != what.npos)
      return "opens a file (std::ifstream, std::ofstream, std::fstream)";
  return what;
}

/// The line of a chapter's file from which this code was compiled, taken from its debug information. Empty: no such
/// line.
std::string location_of(const worker::Toolchain& toolchain, const fs::path& object, const Refusal& refused) {
  const fs::path addr2line = worker::find_program("addr2line");
  if (refused.section.empty() || addr2line.empty()) return refused.location;
  std::vector<std::string> argv = toolchain.prefix;  // the object is the student's too
  argv.insert(argv.end(), {addr2line.string(), "-i", "-e", object.string(), "-j", refused.section,
                           fmt::format("{:#x}", refused.offset)});
  // addr2line lists an inlined function before its caller: "/tmp/…/chapters/02_online_softmax/online_softmax.cpp:31
  // (discriminator 2)".
  std::istringstream frames(worker::run_command(argv).output);
  const std::string root = toolchain.root.string() + "/";
  for (std::string frame; std::getline(frames, frame);)
    if (frame.starts_with(root + "chapters/") && !frame.ends_with('?'))
      return frame.substr(root.size(), frame.find(" (") - root.size());
  return "";
}

/// The refusals of one source, one line per remedy: "uses asm, which is not allowed in an answer: the book's headers
/// have …". A line names the two shortest refusals, since the others usually follow from them. Its location is that of
/// the first.
std::vector<Refusal> explain(std::vector<Refusal> refused, const std::function<std::string(const Refusal&)>& location) {
  std::map<std::string_view, std::vector<Refusal>> lines;
  for (Refusal& one : refused) lines[remedy_for(one.what)].push_back(std::move(one));
  std::vector<Refusal> explained;
  for (auto& [instead, all] : lines) {
    std::ranges::stable_sort(all, {}, [](const Refusal& one) { return one.what.size(); });
    const std::string first = as_written(all[0].what),
                      second = as_written(all[std::min<std::size_t>(1, all.size() - 1)].what);
    explained.push_back({fmt::format("{}{}, which is not allowed in an answer: {}", first,
                                     second != first ? " and " + second : "", instead),
                         location(all[0])});
  }
  return explained;
}

/// Whether a file's text, comments included, contains a name that is not allowed. This quick check decides whether the
/// preprocessor has to run. Of other source files it may include those of the job, which are checked themselves.
bool is_suspicious(const fs::path& source, const worker::WorkerJob& job) {
  std::string text = book::read_file(source);
  for (const fs::path& other : job.sources) {
    const std::string include = fmt::format("#include \"{}\"", other.filename().string());
    if (const std::size_t at = text.find(include); at != text.npos) text.erase(at, include.size());
  }
  const auto has = [&](const char* what) { return text.find(what) != text.npos; };
  return !refused_names(text).empty() || has(".cu\"") || has(".cpp\"") || has("new (") || has("const __shared__");
}

/// The jobs of a plan that hold the reader's own code.
std::vector<worker::WorkerJob> readers_jobs(const Plan& plan) {
  std::vector<worker::WorkerJob> jobs;
  for (const auto& [name, job] : plan.jobs) {
    const bool requested =
        name == plan.whole || std::ranges::any_of(plan.exercises, [&, &job_name = name](const auto& e) {
          return e.second.worker == job_name;
        });
    if (requested && !name.starts_with("solutions/")) jobs.push_back(job);
  }
  return jobs;
}

/// The same job, built so that each object file has line information and the preprocessed text beside it.
worker::WorkerBuilt build_with_preprocessed(const Workspace& workspace, worker::WorkerJob job) {
  job.name += ".names";
  job.flags.assign(kChecked.begin(), kChecked.end());
  return worker::build_workers(workspace.toolchain, {job}).at(job.name);
}

/// The names in the book's own version of this file.
NameCounts books_names_of(const Workspace& workspace, const Plan& plan, Backend backend, const fs::path& source) {
  const worker::WorkerJob job = whole_job(workspace, *plan.chapter, solutions_tree(workspace, *plan.chapter), backend);
  const worker::WorkerBuilt book = build_with_preprocessed(workspace, job);
  for (const auto& [file, object] : book.objects)
    if (file.filename() == source.filename()) return refused_names(preprocessed(object));
  return {};
}

}  // namespace

std::string preprocessed(const fs::path& object) {
  const fs::path text = fs::path(object).replace_extension(".ii");
  return fs::exists(text) ? book::read_file(text) : "";
}

Inspected inspect(const fs::path& object, const ObjectRules& rules) {
  Inspected inspected{refused_names(preprocessed(object)), refused_in_object(object, rules)};
  // The book's own stages construct their tables in place, before main.
  const std::string unobserved = rules.kernels && rules.books.empty() ? simt::uninstrumented(object) : "";
  if (!unobserved.empty()) inspected.refused.push_back({unobserved});
  return inspected;
}

Inspected inspect(const std::vector<std::string>& command, const fs::path& object, const ObjectRules& rules,
                  const std::string& books, const std::vector<std::string>& taken) {
  std::vector<std::string> argv = command;
  argv.insert(argv.end(), {object.string(), rules.cuda ? "cuda" : rules.kernels ? "kernels" : "host", books});
  argv.insert(argv.end(), taken.begin(), taken.end());
  const worker::CommandResult result = worker::run_command(argv);
  const auto document = nlohmann::json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  Inspected inspected{{}, {{"takes too much memory or time to check"}}};
  if (result.exit_code == 0 && !document.is_discarded()) document.get_to(inspected);
  inspected.seconds = result.seconds;
  return inspected;
}

std::string not_allowed(const worker::Toolchain& toolchain, const worker::WorkerJob& job,
                        const worker::WorkerBuilt& built,
                        const std::function<Inspected(const fs::path& source, const ObjectRules&)>& inspected,
                        const std::function<const NameCounts&(const fs::path&)>& books_names) {
  using Line = std::pair<std::string, std::string>;     // the text and its location
  std::map<Line, std::vector<std::string>> sources_of;  // several sources may include one header
  std::vector<std::string> host_objects;
  for (const auto& [source, object] : built.objects)
    if (source.extension() == ".cpp") host_objects.push_back(object.string());
  for (const std::string& library : job.libraries)
    if (library.ends_with(kHostObject)) host_objects.push_back(library);
  for (const fs::path& source : job.sources) {
    const fs::path& object = built.objects.at(source);
    const bool kernels = source.extension() == ".cu";
    ObjectRules rules{.kernels = kernels, .cuda = kernels && job.backend == Backend::cuda};
    if (kernels && is_answer(source)) rules.host_objects = host_objects;
    const Inspected own = inspected(source, rules);
    std::vector<Refusal> refused = more_than(own.names, books_names(source));
    refused.insert(refused.end(), own.refused.begin(), own.refused.end());
    const auto location = [&](const Refusal& one) { return location_of(toolchain, object, one); };
    for (const Refusal& line : explain(std::move(refused), location))
      sources_of[{line.what, line.location}].push_back(source.filename().string());
  }
  std::string text;
  for (const auto& [line, sources] : sources_of)
    text += fmt::format("{}: your compiled code {}\n",
                        line.second.empty() ? fmt::format("{}", fmt::join(sources, ", ")) : line.second, line.first);
  return text;
}

std::vector<std::string> not_gradable(const Workspace& workspace, const Plan& plan, const Built& built) {
  std::vector<std::string> lines;
  // A sanitizer adds symbols to every object file, so the rules cannot be checked.
  if (!workspace.toolchain.sanitize.empty() || plan.request.backend == Backend::cuda) return lines;
  for (const worker::WorkerJob& job : readers_jobs(plan)) {
    const auto found = built.find(job.name);
    if (found == built.end() || !found->second.ok || !job.flags.empty()) continue;
    worker::WorkerBuilt own = found->second;
    std::map<fs::path, NameCounts> books;
    const std::set<std::string> taken = names_taken(workspace.toolchain.backends.at(job.backend).objects);
    const auto refused = [&] {
      return not_allowed(
          workspace.toolchain, job, own,
          [&](const fs::path& source, const ObjectRules& rules) {
            if (!is_answer(source)) return Inspected{};
            ObjectRules all{rules.kernels, rules.cuda, taken};
            all.taken.merge(names_taken(rules.host_objects));
            return inspect(own.objects.at(source), all);
          },
          [&](const fs::path& source) -> const NameCounts& { return books[source]; });
    };
    if (std::ranges::any_of(job.sources, [&](const fs::path& s) { return is_answer(s) && is_suspicious(s, job); }) ||
        !refused().empty()) {
      own = build_with_preprocessed(workspace, job);
      if (!own.ok) continue;
      for (const fs::path& source : job.sources) {
        if (!is_answer(source)) continue;
        books[source] = books_names_of(workspace, plan, job.backend, source);
        // A name that only headers use is not the reader's own. The book's file may not include the same headers.
        for (const auto& [name, mine] : refused_names(preprocessed(own.objects.at(source))))
          if (mine.location.empty()) books[source][name] = mine;
      }
    }
    std::istringstream said(refused());
    for (std::string line; std::getline(said, line);)
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

}  // namespace workbook::judge
