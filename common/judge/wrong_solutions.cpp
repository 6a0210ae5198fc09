#include "common/judge/wrong_solutions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string_view>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/small_edits.hpp"
#include "common/book/stubs.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// The tree of an exercise's wrong solutions, and which versions they are.
struct Written {
  Tree tree;
  std::vector<WrongVersion> versions;
};

Written write_wrong_solutions(const Workspace& workspace, const book::Chapter& chapter, Backend backend,
                              const std::string& exercise) {
  std::map<int, book::Files> texts;
  Written written;
  for (const book::Mutant& mutant : book::load_mutants(workspace.book, chapter)) {
    if (exercise_of(mutant) != exercise) continue;
    const int number = int(texts.size()) + 1;
    texts[number] = book::apply(workspace.book, chapter, mutant);
    written.versions.push_back({number, mutant.id, mutant.sentence});
  }
  const Versions versions = write_versions(workspace, chapter, backend, kWrong + exercise, texts);
  std::erase_if(written.versions, [&](const auto& version) { return versions.apart.contains(version.number); });
  written.tree = versions.tree;
  return written;
}

bool has_quick_kernels(const Workspace& workspace, Backend backend) {
  const auto rules = workspace.toolchain.backends.find(backend);
  return backend == Backend::sim && rules != workspace.toolchain.backends.end() && !rules->second.quick_flags().empty();
}

Backend not_on_a_gpu(Backend backend) {
  return backend == Backend::cuda ? Backend::sim : backend;
}

constexpr const char* kEdit = "edit-";  ///< the name of an edit's file in a compiler's message, before its number

/// The numbers of the edits that a compiler's log names.
std::set<int> named_in(const std::string& log) {
  std::set<int> numbers;
  const std::size_t size = std::string(kEdit).size();
  for (std::size_t at = log.find(kEdit); at != std::string::npos; at = log.find(kEdit, at + size))
    numbers.insert(std::atoi(log.c_str() + at + size));
  return numbers;
}

/// How often the lines have this line, whatever the indents.
std::ptrdiff_t occurrences(const std::vector<std::string>& lines, std::string_view line) {
  const auto bare = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
  };
  return std::ranges::count_if(lines, [&](const std::string& each) { return bare(each) == bare(line); });
}

/// The edits of one exercise, and which of them are known not to compile.
class SmallEdits {
 public:
  SmallEdits(const Workspace& workspace, const book::Chapter& chapter, Backend backend, const std::string& exercise)
      : workspace_(workspace), chapter_(chapter), backend_(backend), name_(kWrong + exercise + ".edits") {
    const std::vector<book::MarkedFile> files = book::read_solution(workspace.book, chapter);
    for (std::size_t i = 0; i < files.size(); ++i)
      if (const book::Region* region = files[i].find(exercise)) read(files[i], chapter.files[i], *region);
    record_ = workspace.toolchain.build_folder / name_ / "refused.json";
    const json known = fs::exists(record_) ? json::parse(book::read_file(record_), nullptr, false) : json();
    if (known.is_object() && known.value("of", "") == hash_) known.at("refused").get_to(refused_);
  }

  /// Without the edits of lines that the reader's region has as they are: those are not the reader's mistake, even if
  /// they give the same values.
  WrongSolutions build(const book::Region* reader) {
    if (reader != nullptr)
      std::erase_if(versions_, [&](const WrongVersion& version) {
        const std::string& line = edited_.at(version.number);
        return occurrences(reader->body, line) >= occurrences(books_body_, line);
      });
    if (versions_.empty()) return {};
    constexpr int most_times = 5;
    for (int time = 0; time < most_times && refused_.size() < texts_.size(); ++time) {
      std::map<int, book::Files> kept = texts_;
      std::erase_if(kept, [&](const auto& entry) { return refused_.contains(entry.first); });
      Versions versions = write_versions(workspace_, chapter_, backend_, name_, kept, kEdit);
      versions.tree.flags.emplace_back("-w");  // so that the log names no edits but those that do not compile
      const worker::WorkerJob job = whole_job(workspace_, chapter_, versions.tree, backend_);
      const worker::WorkerBuilt built = worker::build_workers(workspace_.toolchain, {job}).at(job.name);
      if (built.ok) {
        WrongSolutions found{built.executable, versions_};
        std::erase_if(found.versions, [&](const WrongVersion& version) {
          return refused_.contains(version.number) || versions.apart.contains(version.number);
        });
        return found;
      }
      const std::set<int> more = named_in(built.log);
      if (more.empty()) break;
      refused_.insert(more.begin(), more.end());
      book::write_file(record_, json{{"of", hash_}, {"refused", refused_}}.dump());
    }
    return {};
  }

 private:
  void read(const book::MarkedFile& file, const std::string& name, const book::Region& region) {
    books_body_ = region.body;
    book::Files files = solution_texts(workspace_, chapter_);
    for (const book::SmallEdit& edit : book::small_edits(region)) {
      std::vector<std::string> body = region.body;
      body[edit.line] = edit.text;
      files[name] = book::replace_body(file, region.id, body);
      const int number = int(texts_.size()) + 1;
      texts_[number] = files;
      edited_[number] = region.body[edit.line];
      versions_.push_back({number, fmt::format("{} edit {}", region.id, number), edit.sentence});
      hash_ += edit.text + "\n";
    }
    hash_ = book::hash(hash_);
  }

  const Workspace& workspace_;
  const book::Chapter& chapter_;
  Backend backend_;
  std::string name_, hash_;
  fs::path record_;
  std::map<int, book::Files> texts_;
  std::vector<std::string> books_body_;
  std::map<int, std::string> edited_;  ///< the line that an edit changes, by its number
  std::vector<WrongVersion> versions_;
  std::set<int> refused_;
};

}  // namespace

book::Files solution_texts(const Workspace& workspace, const book::Chapter& chapter) {
  book::Files texts;
  for (const std::string& file : chapter.files) texts[file] = book::read_file(workspace.book.solution(chapter, file));
  return texts;
}

Tree quick_tree(const Workspace& workspace, const book::Chapter& chapter, Backend backend, const std::string& name) {
  Tree tree{name, workspace.toolchain.build_folder / name / chapter.name(), /*first_element_only=*/true};
  if (has_quick_kernels(workspace, backend)) tree.flags = workspace.toolchain.backends.at(backend).quick_flags();
  return tree;
}

Versions write_versions(const Workspace& workspace, const book::Chapter& chapter, Backend backend,
                        const std::string& name, const std::map<int, book::Files>& versions,
                        const std::string& naming) {
  const book::Combined combined = book::combine(solution_texts(workspace, chapter), versions, naming);
  Versions written{quick_tree(workspace, chapter, backend, name), combined.apart};
  for (const auto& [file, text] : combined.files) book::write_if_changed(written.tree.folder / file, text);
  return written;
}

void build_quick_header(const Workspace& workspace) {
  if (has_quick_kernels(workspace, Backend::sim))
    worker::build_targets(workspace.toolchain, {worker::kQuickPrecompiled});
}

std::map<std::string, WrongSolutions> build_wrong_solutions(const Workspace& workspace, const book::Chapter& chapter,
                                                            Backend tested, const std::vector<std::string>& exercises,
                                                            const Build& build) {
  static std::mutex mutex;  // submissions are graded in several threads
  const std::lock_guard lock(mutex);
  const Backend backend = not_on_a_gpu(tested);
  if (!workspace.toolchain.can_build(backend)) return {};
  std::map<std::string, Written> all;
  std::vector<worker::WorkerJob> jobs;
  for (const std::string& exercise : exercises) {
    Written written = write_wrong_solutions(workspace, chapter, backend, exercise);
    if (written.versions.empty()) continue;
    jobs.push_back(whole_job(workspace, chapter, written.tree, backend));
    all[exercise] = std::move(written);
  }
  if (backend == Backend::sim) build_quick_header(workspace);
  const Built built = build ? build(jobs) : worker::build_workers(workspace.toolchain, jobs);
  std::map<std::string, WrongSolutions> found;
  for (auto& [exercise, written] : all) {
    const worker::WorkerBuilt& program = built.at(whole_job(workspace, chapter, written.tree, backend).name);
    if (program.ok) found[exercise] = {program.executable, std::move(written.versions)};
  }
  return found;
}

std::map<std::string, WrongSolutions> build_small_edits(const Workspace& workspace, const book::Chapter& chapter,
                                                        Backend tested, const std::vector<std::string>& exercises,
                                                        const std::map<std::string, RegionInTree>& readers) {
  const Backend backend = not_on_a_gpu(tested);
  std::map<std::string, WrongSolutions> found;
  if (!workspace.toolchain.can_build(backend)) return found;
  if (backend == Backend::sim) build_quick_header(workspace);
  for (const std::string& exercise : exercises) {
    const auto place = readers.find(exercise);
    const book::Region* reader = place == readers.end() ? nullptr : place->second.reader.find(exercise);
    WrongSolutions built = SmallEdits(workspace, chapter, backend, exercise).build(reader);
    if (!built.versions.empty()) found[exercise] = std::move(built);
  }
  return found;
}

}  // namespace workbook::judge
