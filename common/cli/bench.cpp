// bench: times each stage, on the GPU if there is one, next to the device's limits and, on request, PyTorch.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "common/attention/error.hpp"
#include "common/attention/mask_text.hpp"
#include "common/bench/figures.hpp"
#include "common/bench/measure.hpp"
#include "common/bench/results.hpp"
#include "common/bench/tables.hpp"
#include "common/book/files.hpp"
#include "common/cli/verbs.hpp"
#include "common/pictures/pictures.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using bench::Point;
using bench::Results;
using nlohmann::json;

/// Returns a writable folder, created if only its last component is missing. Called before anything is measured.
fs::path writable_folder(const fs::path& folder) {
  const fs::path parent = fs::absolute(folder).lexically_normal().parent_path();
  std::error_code error;
  if (fs::exists(folder) && !fs::is_directory(folder)) {
    fail_input("--out {}: that is not a folder; allowed: a folder for the results", folder.string());
  }
  if (!fs::is_directory(folder) && !fs::is_directory(parent)) {
    fail_input("--out {}: the folder {} does not exist; allowed: a folder, or a new folder in an existing one",
               folder.string(), parent.string());
  }
  fs::create_directory(folder, error);
  if (!fs::is_directory(folder) || ::access(folder.c_str(), W_OK | X_OK) != 0) {
    fail_input("--out {}: the folder is not writable", folder.string());
  }
  return folder;
}

Results read_results(const std::string& path) {
  std::string text;
  try {
    text = book::read_file(path);
  } catch (const std::runtime_error& error) {
    fail_input("--from {}: {}; allowed: a results.json that ./workbook bench wrote", path, error.what());
  }
  const json document = json::parse(text, nullptr, false);
  try {
    if (document.is_discarded()) throw bench::ResultsError("not JSON");
    return bench::from_json(document);
  } catch (const bench::ResultsError& error) {
    fail_input("--from {}: {}; allowed: a results.json that ./workbook bench wrote", path, error.what());
  }
}

/// Writes each figure to `folder`: its data, NAME.json, and the drawing, NAME.svg.
void draw_figures(const Session& session, const std::vector<bench::Figure>& figures, const fs::path& folder) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::array();
  for (const bench::Figure& figure : figures) facts.push_back(bench::facts(figure));
  const std::vector<std::string> drawn = pictures::draw(session, facts);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    book::write_file(folder / (figures[i].name + ".json"), pictures::facts_text(facts[i]));
    book::write_file(folder / (figures[i].name + ".svg"), drawn[i]);
  }
}

/// Writes the tables to notes/results.md and the figures to notes/figures/.
void publish_page(const Session& session, const Results& results, const std::vector<bench::Figure>& figures) {
  const fs::path page = session.book.root / "notes" / "results.md", folder = session.book.root / "notes" / "figures";
  const std::string text = bench::publish(book::read_file(page), session.shown(page),
                                          bench::page_sections(results, session.book.chapters, figures, "figures"));
  fs::create_directories(folder);
  draw_figures(session, figures, folder);
  book::write_file(page, text);
}

/// Makes the paths absolute, so that the loader searches nowhere else.
std::vector<std::string> library_files(const BenchOptions& options) {
  if (!options.libraries.empty() && !options.peers)
    fail_input("--library: a library is timed as a peer; allowed: together with --peers");
  std::vector<std::string> files;
  for (const std::string& library : options.libraries) {
    if (!fs::is_regular_file(library)) fail_input("--library {}: no such file", library);
    files.push_back(fs::absolute(library).lexically_normal().string());
  }
  return files;
}

/// Parses the options' words. InputError for a request that no stage can serve.
BenchOptions looked_at(BenchOptions given) {
  given.libraries = library_files(given);
  for (const std::string& word : given.element_words) given.elements.push_back(element_named(word).value());
  given.numbers = numbers_set(given.set);
  if (given.causal != "both") given.masks = {given.causal == "yes"};
  if (!given.mask.empty()) given.masks = {mask_of(given.mask).value()};
  if (given.decoding) {
    if (!given.lengths.empty() || given.batch != 0 || given.heads != 0 || given.group != 1 || given.queries != 0)
      fail_input("--decoding: the shapes are fixed; allowed: without --n, --batch, --heads, --group and --queries");
    given.queries = 1, given.pass = "forward";
  }
  if (given.heads % given.group != 0)
    fail_input("--heads {}: the heads form groups of {}; allowed: a multiple of --group", given.heads, given.group);
  if (given.masks.size() == 1 && given.masks[0].dropped > 0) {
    fail_input(
        "--mask {}: bench checks the last rows as a separate problem, in which dropout would drop other pairs; "
        "allowed: masks without dropout",
        given.mask);
  }
  for (const Mask& packed : given.masks) {
    if (packed.lengths.empty()) continue;
    const std::int64_t N = std::accumulate(packed.lengths.begin(), packed.lengths.end(), std::int64_t(0));
    if (!given.lengths.empty() && given.lengths != std::vector{N})
      fail_input("--n {}: the sequences of --mask have {} rows in total; allowed: {}, or no --n",
                 fmt::join(given.lengths, ","), N, N);
    given.lengths = {N};
  }
  return given;
}

}  // namespace

int bench(const Session& session, const BenchOptions& given) {
  const BenchOptions options = looked_at(given);
  const std::string not_drawn = pictures::why_not_drawn();
  if (options.publish && !not_drawn.empty()) {
    throw EnvironmentError(
        fmt::format("--publish: the page needs plots, and {}; or copy results.json to another machine: ./workbook "
                    "bench --from results.json --publish",
                    not_drawn));
  }
  if (options.publish && !options.libraries.empty()) {
    fail_input(
        "--publish, --library {}: the page contains only measurements that anyone can repeat; allowed: one of the two",
        options.libraries.front());
  }
  const bool defaults = options.elements.empty() && options.numbers.empty() && options.batch == 0 &&
                        options.heads == 0 && given.queries == 0 &&
                        (options.group == 1 || !options.flash_attention_3.empty());
  if (options.publish && !defaults) {
    fail_input(
        "--publish, --element, --set, --batch, --heads, --group, --queries: the page shows each chapter with its "
        "defaults; allowed: --publish alone");
  }
  if (options.publish && !fs::exists(session.book.root / "notes" / "results.md")) {
    fail_input("--publish: the file notes/results.md, which would receive the results, does not exist");
  }
  if (options.from.empty())
    bench::wanted_chapters(session, options);  // refuses an unknown chapter before anything is written
  if (!options.flash_attention_3.empty()) bench::check_flash_attention_3(session, options.flash_attention_3);
  // Created before anything is measured. Parent folders are created only for the default.
  const fs::path default_folder = session.toolchain.build_folder / "bench";
  if (options.out.empty()) fs::create_directories(default_folder);
  const fs::path folder = writable_folder(options.out.empty() ? default_folder : fs::path(options.out));

  const Results results = options.from.empty() ? bench::measure(session, options) : read_results(options.from);
  if (options.publish && !results.on_gpu()) {
    fail_input("--publish: {} no GPU times; allowed: results of a run on a GPU",
               options.from.empty() ? "this run has" : options.from + " holds");
  }
  std::vector<bench::Figure> figures;  // over N
  if (results.own_section().empty()) figures = bench::figures(results);
  const json document = bench::to_json(results);
  std::vector<std::string> written;
  if (options.from.empty()) {
    book::write_file(folder / "results.json", document.dump(2) + "\n");
    book::write_file(folder / "results.csv", bench::to_csv(results));
    written = {session.shown(folder / "results.json"), session.shown(folder / "results.csv")};
  }
  std::string no_plots;
  if (figures.empty()) {
    no_plots = results.on_gpu() ? "no plots of this section of notes/results.md" : "no plots: they need GPU times";
  } else if (!not_drawn.empty()) {
    no_plots = fmt::format("no plots: {}. Or draw them on another machine: ./workbook bench --from {}", not_drawn,
                           session.shown(folder / "results.json"));
  } else {
    draw_figures(session, figures, folder);
    for (const bench::Figure& figure : figures) written.push_back(session.shown(folder / (figure.name + ".svg")));
  }
  if (options.publish) {
    publish_page(session, results, figures);
    written.push_back("notes/results.md");
  }

  if (session.json) {
    print_json(document);
    if (!no_plots.empty()) print_error("{}\n", no_plots);
  } else {
    fmt::print("{}", bench::terminal_table(results));
    if (!results.skipped.empty()) fmt::print("\nnot measured:\n");
    for (const std::string& what : results.skipped) fmt::print("  {}\n", what);
    if (!no_plots.empty()) fmt::print("\n{}\n", no_plots);
    fmt::print("\nwritten:\n");
    for (const std::string& file : written) fmt::print("  {}\n", file);
    fmt::print(
        "\ntime: the median; spread: half the range from the 10th to the 90th percentile. FLOPs are credited as\n"
        "4*B*H*N*N*d, unmasked pairs only, and 2.5 times that in a backward pass. of matmul: of the speed of a large\n"
        "matmul in the same run. GB/s: least traffic of the kernels over their time, and its share of a copy.\n"
        "requested: bytes that the kernels request before any cache, counted by the simulator.\n");
  }
  const bool bad = std::any_of(results.points.begin(), results.points.end(), [](const Point& p) {
    return p.kind == "stage" && !p.ok() && p.result != "out of memory" && p.result != "not timed" &&
           p.result != "unavailable" && p.result != "refused";
  });
  return bad ? kTestFailed : kDone;
}

}  // namespace workbook::cli
