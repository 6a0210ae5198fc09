#include "common/pictures/pictures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/attention/inputs.hpp"
#include "common/book/files.hpp"
#include "common/pictures/kinds.hpp"
#include "common/worker/build.hpp"
#include "common/worker/command.hpp"
#include "common/worker/worker.hpp"

namespace workbook::pictures {
namespace fs = std::filesystem;
namespace {

constexpr Kind kKinds[] = {
    {"memory", false, memory_facts},       {"roofline", false, roofline_facts},   {"banks", false, banks_facts},
    {"fragments", false, fragments_facts}, {"swizzle", false, swizzle_facts},     {"tiles", true, tiles_facts},
    {"timeline", true, timeline_facts},    {"owners", true, owners_facts},        {"waits", true, waits_facts},
    {"traffic", true, traffic_facts},      {"softmax", false, softmax_facts},     {"formats", false, formats_facts},
    {"ranges", false, ranges_facts},       {"algorithm", false, algorithm_facts}, {"blocks", true, blocks_facts},
    {"diagram", false, diagram_facts},     {"plot", false, plot_facts},           {"packing", true, packing_facts},
    {"dropout", false, dropout_facts},     {"ranks", false, ranks_facts},
};

const Kind& kind_of(Parameters& parameters) {
  const std::string wanted = parameters.text("kind");
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (kind.name == wanted) return kind;
    names.emplace_back(kind.name);
  }
  parameters.fail(fmt::format("unknown kind \"{}\"; allowed: {}", wanted, fmt::join(names, ", ")));
}

/// The picture's facts, {"kind", "title", …}; null and `why_not` if they cannot be computed here.
Facts facts_of(const judge::Workspace& workspace, const fs::path& folder, Parameters& parameters,
               std::string& why_not) {
  const std::string title = parameters.text("title");
  const Kind& kind = kind_of(parameters);
  if (kind.counts && !workspace.toolchain.counts) {
    why_not = "it shows counters of the simulator: " + workspace.toolchain.simulator;
    return {};
  }
  const auto chapter = std::ranges::find(workspace.book.chapters, folder.filename().string(), &book::Chapter::name);
  const Request request{workspace, chapter == workspace.book.chapters.end() ? nullptr : &*chapter, parameters};
  Facts facts{{"kind", kind.name}, {"title", title}};
  facts.update(kind.facts(request));
  parameters.finish();
  return facts;
}

/// Builds everything that the pictures of these folders run, in one build. A picture reports its own compile errors.
void build_workers(const judge::Workspace& workspace, const std::set<fs::path>& folders) {
  if (!workspace.toolchain.can_build(Backend::sim)) return;
  std::vector<worker::WorkerJob> jobs;
  for (const book::Chapter& chapter : workspace.book.chapters) {
    if (chapter.runs_on(Backend::sim) && folders.contains(workspace.book.root / "chapters" / chapter.name()))
      jobs.push_back(whole_job(workspace, chapter, solutions_tree(workspace, chapter), Backend::sim));
  }
  worker::build_targets(workspace.toolchain, workspace.toolchain.backends.at(Backend::sim).targets);
  worker::build_workers(workspace.toolchain, jobs);
}

}  // namespace

std::string facts_text(const Facts& facts) {
  std::string text;
  for (const auto& [key, value] : facts.items())
    text += fmt::format("{} \"{}\": {}", text.empty() ? "{\n" : ",\n", key, value.dump());
  return text + "\n}\n";
}

std::vector<std::string> draw(const judge::Workspace& workspace, const Facts& facts) {
  const fs::path in = workspace.toolchain.build_folder / "pictures_facts.json",
                 out = workspace.toolchain.build_folder / "pictures_drawn.json";
  book::write_file(in, facts.dump());
  fs::remove(out);
  const worker::CommandResult result = worker::run_command(
      {"node", (workspace.book.root / "notes/site/figures/render.mjs").string(), in.string(), out.string()});
  if (result.exit_code != 0) throw std::runtime_error("node cannot draw the pictures:\n" + result.output);
  return nlohmann::json::parse(book::read_file(out)).get<std::vector<std::string>>();
}

std::string why_not_drawn() {
  if (!worker::find_program("node").empty()) return "";
  return "pictures are drawn by Node, which is not installed; on Debian and Ubuntu: apt install nodejs";
}

std::vector<Picture> draw(const judge::Workspace& workspace, const std::vector<std::string>& folders) {
  std::set<fs::path> wanted;
  for (const auto& entry : fs::directory_iterator(workspace.book.root / "chapters")) {
    const bool requested = folders.empty() || std::ranges::count(folders, entry.path().filename().string()) > 0;
    if (requested && fs::exists(entry.path() / "pictures.toml")) wanted.insert(entry.path());
  }
  build_workers(workspace, wanted);
  std::vector<Picture> pictures, drawn;
  Facts all = Facts::array();
  for (const fs::path& folder : wanted) {
    const fs::path list = folder / "pictures.toml";
    for (Parameters& parameters : read_tables(list, workspace.shown(list), "picture")) {
      const fs::path file = folder / "pictures" / parameters.text("file");
      workspace.progress("computing the facts of " + workspace.shown(file));
      std::string why_not;
      Facts facts = facts_of(workspace, folder, parameters, why_not);
      pictures.push_back({file.string() + ".json", facts.is_null() ? "" : facts_text(facts), why_not});
      drawn.push_back({file.string() + ".svg", "", why_not.empty() ? why_not_drawn() : why_not});
      if (drawn.back().why_not.empty()) all.push_back(std::move(facts));
    }
  }
  const std::vector<std::string> texts = all.empty() ? std::vector<std::string>{} : draw(workspace, all);
  auto text = texts.begin();
  for (Picture& picture : drawn) {
    if (picture.why_not.empty()) picture.text = *text++;
    pictures.push_back(std::move(picture));
  }
  std::ranges::sort(pictures, {}, &Picture::file);
  workspace.progress("");
  return pictures;
}

const char* name(State state) {
  // In the order of State.
  static constexpr const char* names[] = {"current", "missing", "differs", "unused", "unknown"};
  return names[std::size_t(state)];
}

std::vector<Compared> compare(const std::vector<Picture>& pictures) {
  std::vector<Compared> compared;
  std::set<fs::path> files, folders;
  for (const Picture& picture : pictures) {
    files.insert(picture.file);
    folders.insert(picture.file.parent_path());
    State state = State::current;
    if (!fs::exists(picture.file)) {
      state = State::missing;
    } else if (!picture.why_not.empty()) {
      state = State::unknown;
    } else if (book::read_file(picture.file) != picture.text) {
      state = State::differs;
    }
    compared.push_back({picture.file, state, picture.why_not});
  }
  for (const fs::path& folder : folders) {
    if (!fs::is_directory(folder)) continue;
    std::set<fs::path> there;
    for (const auto& entry : fs::directory_iterator(folder)) there.insert(entry.path());
    for (const fs::path& file : there) {
      if (!files.contains(file)) compared.push_back({file, State::unused, ""});
    }
  }
  return compared;
}

judge::Trace traced(const Request& request, const book::Chapter& chapter, std::int64_t Nq, std::int64_t Nk,
                    std::int64_t d, const Mask& mask, judge::TraceRequest trace) {
  InputOptions options;
  options.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = Nq, .Nk = Nk, .d = d};
  if (request.parameters.has("heads")) options.shape.H = request.parameters.count("heads");
  options.mask = mask;
  if (request.parameters.has("variant"))
    trace.numbers[request.parameters.text("variant")] = request.parameters.number("value");
  const judge::Traced run = run_traced(request.workspace, chapter, solutions_tree(request.workspace, chapter),
                                       make_input("normal", options), trace);
  if (!run.clean())
    throw std::runtime_error(
        fmt::format("the kernels of {} do not run: {}: {}", chapter.name(), run.result, run.message.substr(0, 2000)));
  return run.trace;
}

worker::StageDescription described(const Request& request) {
  const judge::Workspace& workspace = request.workspace;
  if (request.chapter == nullptr) request.parameters.fail("the folder has no chapter.toml");
  const book::Chapter& chapter = *request.chapter;
  const Backend backend = chapter.runs_on(Backend::sim) ? Backend::sim : Backend::cpu;
  worker::build_targets(workspace.toolchain, workspace.toolchain.backends.at(backend).targets);
  const worker::WorkerJob job = whole_job(workspace, chapter, solutions_tree(workspace, chapter), backend);
  const worker::WorkerBuilt built = worker::build_workers(workspace.toolchain, {job}).at(job.name);
  if (!built.ok)
    throw std::runtime_error(fmt::format("{} does not compile:\n{}", chapter.name(), built.log.substr(0, 2000)));
  worker::Worker worker(built.executable, {});
  const auto all = worker::describe([&](const worker::Call& call) { return worker.call(call); });
  const worker::StageDescription* stage = all.find(chapter.pass, chapter.element_on(backend));
  if (stage == nullptr) throw std::runtime_error(fmt::format("{} has no stage with a description", chapter.name()));
  return *stage;
}

}  // namespace workbook::pictures
