#include "common/judge/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "common/book/files.hpp"
#include "common/judge/verdict.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using book::Exercise;

/// The regions by exercise. Without solutions/ (in a release) they are those of the tree itself.
std::map<std::string, RegionInTree> regions_of(const Workspace& workspace, const Chapter& chapter, const Tree& tree) {
  std::map<std::string, RegionInTree> found;
  std::optional<RegionInTree> damaged;
  for (const std::string& file : chapter.files) {
    const fs::path solution_path = workspace.book.solution(chapter, file);
    const fs::path reader_path = tree.written() / file;
    RegionInTree region_in;
    region_in.file = file;
    if (fs::exists(reader_path)) {
      region_in.reader = book::parse_reader(workspace.shown(reader_path), book::read_file(reader_path));
    } else {
      region_in.error = workspace.shown(reader_path) + " is missing";
    }
    region_in.solution = fs::exists(solution_path)
                             ? book::parse_marked(workspace.shown(solution_path), book::read_file(solution_path))
                             : region_in.reader;
    for (const book::Region& region : region_in.solution.regions) found[region.id] = region_in;
    if (!damaged && !region_in.reader.damages.empty()) damaged = region_in;
  }
  for (const Exercise& exercise : chapter.exercises)
    if (damaged) found.try_emplace(exercise.id, *damaged);  // in a release, a damaged file shows none of its regions
  return found;
}

/// A message that says which of an exercise's marker lines are missing in a reader's file.
std::string lost_markers(const book::MarkedFile& file, const std::string& id) {
  const std::string begin = "// BEGIN " + id, end = "// END " + id;
  const auto line_of = [&](const std::string& marker) {
    const auto found = std::find_if(file.lines.begin(), file.lines.end(), [&](const std::string& line) {
      const std::size_t from = line.find_first_not_of(" \t");
      return from != std::string::npos && line.substr(from, line.find_last_not_of(" \t") - from + 1) == marker;
    });
    return found == file.lines.end() ? 0 : int(found - file.lines.begin()) + 1;
  };
  const int begins = line_of(begin), ends = line_of(end);
  if (begins == 0 && ends == 0) return fmt::format("{}: the lines {} and {} are missing", file.name, begin, end);
  if (ends == 0) return fmt::format("{}:{}: the line {} that ends this region is missing", file.name, begins, end);
  if (begins == 0) return fmt::format("{}:{}: the line {} that begins this region is missing", file.name, ends, begin);
  return fmt::format("{}:{}: the markers of exercise {} occur twice or enclose the marker of another region", file.name,
                     begins, id);
}

/// Whether the tree differs from the solution in this region alone. Then the whole chapter is the graft.
bool is_solution_but(const Workspace& workspace, const Chapter& chapter, const Tree& tree, const RegionInTree& in,
                     const book::Region& region) {
  return std::all_of(chapter.files.begin(), chapter.files.end(), [&](const std::string& file) {
    const std::string text = book::read_file(tree.folder / file);
    return file == in.file ? text == book::replace_body(in.solution, region.id, region.body)
                           : text == book::read_file(workspace.book.solution(chapter, file));
  });
}

/// The solution with stubs instead of these regions. Other lines keep their numbers.
std::string with_stubs(book::MarkedFile file, const std::set<std::string>& ids) {
  for (const std::string& id : ids) {
    const book::Region* region = file.find(id);
    if (region == nullptr) continue;
    std::vector<std::string> body = book::stub_body(*region);
    body.resize(std::max(body.size(), region->body.size()));
    file = book::parse_marked(file.name, book::replace_body(file, id, body));
  }
  return book::join_lines(file.lines);
}

/// Writes the solution with the tree's region of this exercise to a separate folder. Adds the original names of the
/// copied files to the plan.
Tree write_graft(const Workspace& workspace, Plan& plan, const RegionInTree& in, const std::string& id) {
  const Chapter& chapter = *plan.chapter;
  Tree grafted{"grafts/" + plan.tree.name + "/" + id,
               workspace.toolchain.build_folder / "grafts" / plan.tree.name / id / chapter.name(),
               plan.tree.first_element_only,
               {},
               plan.tree.flags};
  const auto stubs = plan.request.stubs.find(id);
  for (const std::string& file : chapter.files) {
    const fs::path copied = workspace.book.solution(chapter, file), own = plan.tree.written() / file;
    std::string text = book::read_file(copied);
    if (stubs != plan.request.stubs.end()) text = with_stubs(book::parse_marked(file, text), stubs->second);
    if (file == in.file) {
      const book::MarkedFile solution = book::parse_marked(in.solution.name, text);
      text = book::with_bodies(solution, in.reader, {id}, plan.request.token);
    }
    book::write_if_changed(grafted.folder / file, text);
    const bool same = fs::is_regular_file(own) && book::read_file(own) == text;
    plan.known_as[workspace.shown(grafted.folder / file)] = workspace.shown(same ? own : copied);
  }
  return grafted;
}

PlannedExercise plan_exercise(const Workspace& workspace, Plan& plan, const std::string& id, bool graft) {
  PlannedExercise planned;
  const auto found = plan.regions.find(id);
  if (found == plan.regions.end()) {
    planned.broken = fmt::format("exercise {} has no region in the book's files", id);
    return planned;
  }
  const RegionInTree& in = found->second;
  const book::Region* region = in.error.empty() ? in.reader.find(id) : nullptr;
  if (const book::Damage* damage = in.error.empty() ? in.reader.damage_of(id) : nullptr) {
    planned.broken = in.reader.message(*damage);
    return planned;
  }
  if (region == nullptr) {
    planned.broken = in.error.empty() ? lost_markers(in.reader, id) : in.error;
    planned.broken += fmt::format("\n  restore the marker lines, or reset the file: ./workbook reset --file {}", id);
    return planned;
  }
  const Backend backend = plan.request.backend;
  const auto runs_on = [&](const Tree& tree) {
    worker::WorkerJob job = whole_job(workspace, *plan.chapter, tree, backend);
    planned.worker = job.name;
    plan.jobs.try_emplace(job.name, std::move(job));
  };
  if (book::is_open(*region)) {
    planned.open = true;
  } else if (!graft || is_solution_but(workspace, *plan.chapter, plan.tree, in, *region)) {
    planned.worker = plan.whole;
  } else if (region->body == in.solution.find(id)->body) {
    runs_on(solutions_tree(workspace, *plan.chapter));
  } else {
    runs_on(write_graft(workspace, plan, in, id));
  }
  return planned;
}

/// Plans the stage to compare with: that of the last earlier chapter with the same pass, if possible on the same
/// backend, from solutions/ or chapters/.
void plan_previous(const Workspace& workspace, Plan& plan) {
  const Chapter* previous = nullptr;
  for (const Chapter& other : workspace.book.chapters) {
    if (other.number < plan.chapter->number && other.pass == plan.chapter->pass) previous = &other;
  }
  if (previous == nullptr) return;
  const Backend backend =
      previous->runs_on(plan.request.backend) ? plan.request.backend : first_backend(workspace, *previous);
  if (!workspace.toolchain.can_build(backend)) return;
  const bool own = plan.request.previous_readers || !workspace.book.has_solutions(*previous);
  worker::WorkerJob job = whole_job(
      workspace, *previous, own ? readers_tree(workspace, *previous) : solutions_tree(workspace, *previous), backend);
  plan.previous = job.name;
  plan.previous_element = previous->element_on(backend);
  plan.jobs.try_emplace(job.name, std::move(job));
}

/// Replaces each exercise's job with a copy that is built for a debugger.
void plan_for_debugger(Plan& plan) {
  for (auto& [id, exercise] : plan.exercises) {
    if (exercise.worker.empty()) continue;
    worker::WorkerJob job = plan.jobs.at(exercise.worker);
    job.flags = {"-O0", "-g"};
    job.name += ".debug";
    exercise.worker = job.name;
    plan.jobs.try_emplace(job.name, std::move(job));
  }
}

}  // namespace

Plan make_plan(const Workspace& workspace, const Chapter& chapter, const Tree& tree, const PlanRequest& request) {
  Plan plan;
  plan.chapter = &chapter;
  plan.tree = tree;
  plan.request = request;
  plan.unavailable = why_unavailable(workspace, request.backend);
  plan.regions = regions_of(workspace, chapter, tree);
  worker::WorkerJob whole = whole_job(workspace, chapter, tree, request.backend);
  plan.whole = whole.name;
  const bool graft = workspace.book.has_solutions(chapter) && tree.name != "solutions" &&
                     request.grafts.value_or(request.backend != Backend::cuda);
  for (const Exercise& exercise : chapter.exercises) {
    if (!request.exercise.empty() && request.exercise != exercise.id) continue;
    plan.exercises[exercise.id] = plan_exercise(workspace, plan, exercise.id, graft);
  }
  const auto requested = plan.exercises.find(request.exercise);
  const bool alone =
      requested != plan.exercises.end() && requested->second.worker != plan.whole && !requested->second.worker.empty();
  if (alone)
    plan.stand_in = std::move(whole);
  else
    plan.jobs.try_emplace(plan.whole, std::move(whole));
  if (request.debug) plan_for_debugger(plan);
  plan_previous(workspace, plan);
  return plan;
}

Built build_plans(const Workspace& workspace, const std::vector<Plan>& plans, const Build& build) {
  using Jobs = std::map<std::string, worker::WorkerJob>;
  const auto build_all = [&](const Jobs& jobs) {
    std::vector<worker::WorkerJob> all;
    for (const auto& [name, job] : jobs) all.push_back(job);
    return build ? build(all) : worker::build_workers(workspace.toolchain, all);
  };
  Jobs jobs, stand_ins;
  for (const Plan& plan : plans) {
    if (plan.unavailable.empty()) jobs.insert(plan.jobs.begin(), plan.jobs.end());
  }
  Built built = build_all(jobs);
  const auto has_failed = [&](const std::string& job) { return built.contains(job) && !built.at(job).ok; };
  for (const Plan& plan : plans) {
    const auto stands_in = [&](const auto& exercise) { return has_failed(exercise.second.worker); };
    if (plan.stand_in && plan.request.whole_stands_in && std::ranges::any_of(plan.exercises, stands_in))
      stand_ins.try_emplace(plan.stand_in->name, *plan.stand_in);
  }
  if (!stand_ins.empty()) built.merge(build_all(stand_ins));
  return built;
}

}  // namespace workbook::judge
