// A chapter is one thing: one more chapter is files under chapters/, solutions/ and tests/, and nothing else. A copy of
// the book gets a last chapter, chapter 4's kernel under another name with other tiles and one exercise, and every verb
// works with it, started by the launcher as a reader starts it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/attention/inputs.hpp"
#include "common/attention/npy.hpp"
#include "common/book/files.hpp"
#include "common/book/manifest.hpp"
#include "common/book/markers.hpp"
#include "common/book/text.hpp"
#include "common/worker/command.hpp"

using namespace workbook;
using book::replaced;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path source = WORKBOOK_SOURCE, binary = WORKBOOK_BINARY;
const fs::path copy = binary / "a book with one more chapter";
/// One more than the book has.
int next_number() {
  int last = 0;
  for (const auto& entry : fs::directory_iterator(source / "chapters"))
    if (entry.is_directory()) last = std::max(last, std::stoi(entry.path().filename().string()));
  return last + 1;
}
const int number = next_number();
const std::string digits = fmt::format("{:02}", number), chapter = digits + "_split_again";

/// Everything but what a build or a reader made, and the tests of the book's own parts, which would be built too.
void copy_book() {
  fs::create_directories(copy);
  for (const char* folder : {"chapters", "solutions", "tests", "common", "cmake", "notes"}) {
    fs::remove_all(copy / folder);
    fs::copy(source / folder, copy / folder, fs::copy_options::recursive);
  }
  for (const auto& entry : fs::directory_iterator(copy / "tests")) {
    const std::string folder = entry.path().filename().string();
    const bool of_a_chapter = folder.size() > 2 && folder[2] == '_';
    if (entry.is_directory() && !of_a_chapter && folder != "support") fs::remove_all(entry.path());
  }
  for (const char* file : {"CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", "workbook", ".clang-format"})
    fs::copy_file(source / file, copy / file, fs::copy_options::overwrite_existing);
  fs::remove_all(copy / ".workbook");
}

/// A file of chapter 4, as it is in the new chapter: with exercise 4.8 alone, and tiles of its own.
std::string adapted(const std::string& text) {
  std::string result;
  for (const std::string& line : book::parse_reader("", text).lines) {
    static const std::regex other_marker(R"( *// (BEGIN|END) 4\.[1-79])");
    if (!std::regex_match(line, other_marker)) result += line + "\n";
  }
  result = replaced(result, "(4.8)", fmt::format("({}.1)", number));
  result = replaced(result, " 4.8\n", fmt::format(" {}.1\n", number));
  result = replaced(result, "TODO(4.", "Phase (4.");
  result = replaced(result, "ch04", "ch" + digits);
  result = replaced(result, "{{128, 64, 4}, {128, 32, 4}, {64, 64, 2}, {32, 32, 1}}", "{{64, 32, 2}, {32, 64, 1}}");
  return replaced(result, "q_split", "split_again");
}

const std::string stage_text = R"(// The stage of this chapter.
#include "common/cuda/stage.hpp"
#include "layout.hpp"
#include "split_again.hpp"

namespace chDD {
namespace {

using workbook::cuda::ExtraMemory, workbook::cuda::ForwardStage, workbook::cuda::Stage;

const Stage stage = ForwardStage<half>{
    .head_dims = {32, 64, 128},
    .tiles = built,
    .shared_bytes = split_again_bytes,
    .rows_per_warp = 32,
    .serves = {.masks = {workbook::Mask::none}},
    .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) { split_again(call, tiles); },
};

}  // namespace
}  // namespace chDD
)";

const std::string tests_text = R"(#include <catch2/catch_test_macros.hpp>

#include "tests/support/forward_stage.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("tails are part of it", "[NN.1][kernel]") {
  const Input given = input("normal", {1, 2, 2, 70, 45, 64}, 1);
  expect_attention(given.problem, given.name);
}

TEST_CASE("split again agrees with the oracle", "[whole][kernel]") {
  for (const std::int64_t d : {32, 64, 128}) {
    const Input given = input("normal", {1, 1, 1, 100, 130, d}, 2);
    expect_attention(given.problem, given.name);
    expect_attention(given.problem, given.name, {{"Br", 32}, {"Bc", 64}});
  }
}
)";

const std::string manifest_text = R"(number = NN
slug = "split_again"
title = "Split again"
summary = "One more chapter."
element = "float16"
pass = "forward"
masks = ["none"]
backends = ["sim", "cuda"]
files = ["split_again.hpp", "layout.hpp", "phases.hpp", "split_again.cu", "stage.cu"]
whole_tests = ["split again agrees with the oracle"]

[[exercise]]
id = "NN.1"
slug = "new_maximum"
title = "m stays behind"
points = 2
lines = 1
hints = ["As in 4.8.", "Look at 4.8."]
tests = ["tails are part of it"]
)";

/// All that a chapter is made of.
void write_chapter() {
  const std::string of_number = fmt::format("{}", number);
  const fs::path old = source / "solutions" / "04_q_split", solution = copy / "solutions" / chapter;
  for (const char* file : {"layout.hpp", "phases.hpp"})
    book::write_file(solution / file, adapted(book::read_file(old / file)));
  book::write_file(solution / "split_again.hpp", adapted(book::read_file(old / "q_split.hpp")));
  book::write_file(solution / "split_again.cu", adapted(book::read_file(old / "q_split.cu")));
  book::write_file(solution / "stage.cu", replaced(stage_text, "DD", digits));
  book::write_file(copy / "chapters" / chapter / "chapter.toml", replaced(manifest_text, "NN", of_number));
  book::write_file(copy / "chapters" / chapter / "README.md", "# Split again\n\nExercise " + of_number + ".1.\n");
  book::write_file(copy / "tests" / chapter / "test_split_again.cpp", replaced(tests_text, "NN", of_number));
}

struct Ran {
  int exit_code = 0;
  std::string out;
  json document() const {
    INFO(out);
    REQUIRE(json::accept(out));
    return json::parse(out);
  }
};

/// ./workbook with these arguments; only stdout is taken.
Ran workbook_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"/bin/sh", "-c", "exec ./workbook --yes \"$@\" 2>stderr.txt", "sh"});
  worker::CommandOptions options;
  options.folder = copy;
  options.environment["CXX"] =
      json::parse(book::read_file(binary / "toolchain.json")).at("compiler").get<std::string>();
  options.time = 1500;
  const worker::CommandResult result = worker::run_command(arguments, options);
  UNSCOPED_INFO(book::read_file(copy / "stderr.txt"));
  return {result.exit_code, result.output};
}

/// The reader's file with the exercise solved.
void solve() {
  const fs::path stub = copy / "chapters" / chapter / "split_again.cu",
                 solution = copy / "solutions" / chapter / "split_again.cu";
  const std::string id = fmt::format("{}.1", number);
  const book::MarkedFile answer = book::parse_marked("solution", book::read_file(solution));
  const book::MarkedFile open = book::parse_reader("stub", book::read_file(stub));
  book::write_file(stub, book::replace_body(open, id, answer.find(id)->body));
}

/// Replaces a text that stands in the copy's file once.
void edit(const std::string& file, const std::string& from, const std::string& to) {
  const std::string text = book::read_file(copy / file);
  INFO(file << ": " << from);
  REQUIRE(text.find(from) != std::string::npos);
  REQUIRE(text.find(from) == text.rfind(from));
  book::write_file(copy / file, replaced(text, from, to));
}

/// The files of common/ that differ from the book's.
std::set<std::string> changed_in_common() {
  std::set<std::string> changed;
  for (const auto& entry : fs::recursive_directory_iterator(copy / "common")) {
    if (!entry.is_regular_file()) continue;
    const fs::path file = entry.path().lexically_relative(copy);
    if (!fs::exists(source / file) || book::read_file(source / file) != book::read_file(entry.path()))
      changed.insert(file.generic_string());
  }
  return changed;
}

/// A mask: a key is seen where j is even.
void add_mask() {
  const std::string file = "common/attention/mask.hpp";
  edit(file, "prefix, strided };", "prefix, strided, even };");
  edit(file, "      case causal:\n", R"(      case even:
        for (std::int64_t key = 0; key < shape.Nk; key += 2) take(KeyRange{key, key + 1});
        return;
      case causal:
)");
  edit(file, "{\"causal\", Mask::causal}};", "{\"causal\", Mask::causal}, {\"even\", Mask::even}};");
}
/// A number of the problem: scores are squashed, S = squash·tanh(S / squash), before the mask.
void add_number() {
  edit("common/attention/setting.hpp", "  bool causal() const",
       "  float squash = 0;  ///< 0: none\n  bool causal() const");
  edit("common/attention/setting.hpp", "  take(\"mask\", setting.mask.kind);",
       "  take(\"mask\", setting.mask.kind), take(\"squash\", setting.squash);");
  const std::string oracle = "common/attention/oracle.cpp";
  edit(oracle, "/// P_i = softmax", R"(double capped(double S, double cap) {
  return cap == 0 ? S : cap * std::tanh(S / cap);
}

/// P_i = softmax)");
  edit(oracle, "P.push_back(problem.mask.changed(problem.shape, row, j, scale * dot(&Q[row * d], &K[key], d)));",
       "P.push_back(capped(scale * dot(&Q[row * d], &K[key], d), problem.squash));");
  edit("common/cli/input.hpp", "  double scale = 0;", "  double squash = 0;\n  double scale = 0;");
  edit("common/cli/input.cpp", "  problem.mask = options.mask;\n",
       "  problem.mask = options.mask;\n  problem.squash = float(options.squash);\n");
  edit("common/cli/input.cpp", "  const Option scale = ",
       "  options.option(\"--squash\", given.squash, \"Cap\").allow(number(0, 1e6, \"a number\"));\n  const Option "
       "scale = ");
}
/// Chapter 1 serves both, on the CPU.
void serve_both() {
  const std::string folder = "solutions/01_naive_attention/";
  edit(folder + "naive_attention.cpp", "S(n), call.scale, call.causal());", R"(S(n), call.scale, call.causal());
  for (std::size_t at = 0; at < S_values.size(); ++at) {
    float& s = S_values[at];
    if (call.squash > 0 && std::isfinite(s)) s = call.squash * std::tanh(s / call.squash);
    if (call.mask == workbook::Mask::even && std::int64_t(at) % Nk % 2 != 0) s = -INFINITY;
  })");
  edit(folder + "stage.cpp", "{.shared_heads = true}",
       "{.masks = {workbook::Mask::none, workbook::Mask::causal, workbook::Mask::even}, .shared_heads = true}");
  edit("chapters/01_naive_attention/chapter.toml", "masks = [\"none\", \"causal\"]",
       "masks = [\"none\", \"causal\", \"even\"]");
}

/// O by the definition, in float64.
double largest_error(const Tensor<float>& O, const Problem& p, bool even, double softcap) {
  const auto [B, H, Hkv, Nq, Nk, d] = p.shape;
  double largest = 0;
  for (std::int64_t row = 0; row < B * H * Nq; ++row) {
    const std::int64_t first_key = row / Nq / (H / Hkv) * Nk;
    std::vector<double> o(static_cast<std::size_t>(d));
    double l = 0;
    for (std::int64_t j = 0; j < Nk; j += even ? 2 : 1) {
      double S = 0;
      for (std::int64_t c = 0; c < d; ++c)
        S += double(p.Q.values[std::size_t(row * d + c)]) * p.K.values[std::size_t((first_key + j) * d + c)];
      S *= p.scale;
      const double P = std::exp(softcap == 0 ? S : softcap * std::tanh(S / softcap));
      l += P;
      for (std::int64_t c = 0; c < d; ++c) o[std::size_t(c)] += P * p.V.values[std::size_t((first_key + j) * d + c)];
    }
    for (std::int64_t c = 0; c < d; ++c)
      largest = std::max(largest, std::abs(o[std::size_t(c)] / l - double(O.values[std::size_t(row * d + c)])));
  }
  return largest;
}

}  // namespace

TEST_CASE("a new mask and a new field of the problem touch at most five files of common/, and run has them") {
  copy_book();
  add_mask();
  CHECK(changed_in_common().size() <= 5);
  CHECK(changed_in_common() == std::set<std::string>{"common/attention/mask.hpp"});
  add_number();
  CHECK(changed_in_common().size() <= 5);
  serve_both();

  const Problem problem = make_input("normal", {{1, 4, 2, 30, 45, 32}});
  std::vector<std::string> files;
  for (const auto& [flag, tensor] : {std::pair{"q", &problem.Q}, {"k", &problem.K}, {"v", &problem.V}}) {
    const std::string file = (copy / (std::string(flag) + ".npy")).string();
    write_npy(file, *tensor);
    files.insert(files.end(), {std::string("--") + flag, file});
  }
  const std::string out = (copy / "o.npy").string();
  const auto run = [&](const char* stage, const char* mask, const char* softcap) {
    std::vector<std::string> arguments{"run",    "--json", "--stage",  stage,   "--backend", "cpu",
                                       "--mask", mask,     "--squash", softcap, "--out",     out};
    arguments.insert(arguments.end(), files.begin(), files.end());
    return workbook_run(arguments);
  };
  for (const char* mask : {"none", "even"}) {
    for (const char* softcap : {"0", "1.5"}) {
      const Ran ran = run("1", mask, softcap);
      INFO(mask << ", softcap " << softcap << ": " << ran.out);
      CHECK(ran.exit_code == 0);
      CHECK(ran.document().at("input").at("mask") == mask);
      CHECK(ran.document().at("stages").at(0).at("result") == "ok");  // as the copy's oracle has it
      CHECK(largest_error(read_npy(out), problem, std::string(mask) == "even", std::stod(softcap)) < 2e-6);
      CHECK(largest_error(read_npy(out), problem, std::string(mask) != "even", std::stod(softcap)) > 1e-2);
    }
  }
  // A stage that does not serve the mask says which does.
  const json refused = run("2", "even", "0").document().at("stages").at(0);
  CHECK(refused.at("result") == "does not do even");
  // (Its kernels do not serve heads that share K and V.)
  CHECK(refused.at("message") == "the mask even: allowed: a stage that supports it: chapter 1 on cpu");
}

TEST_CASE("a new chapter is files under chapters/, solutions/ and tests/, and every verb works with it") {
  copy_book();
  write_chapter();
  const std::string id = fmt::format("{}.1", number), which = fmt::format("{}", number);
  REQUIRE(workbook_run({"stubs"}).exit_code == 0);

  // run: the stage is checked against the oracle and the stage before it.
  const Ran run = workbook_run({"run", "--json", "--stage", which, "--seq", "200"});
  const json stage = run.document().at("stages").at(0);
  CHECK(run.exit_code == 0);
  CHECK(stage.at("chapter") == chapter);
  CHECK(stage.at("backend") == "sim");
  CHECK(stage.at("result") == "ok");
  CHECK(stage.at("tiles") == 4 * 4 * 7);  // 4 heads, 200 queries in tiles of 64, 200 keys in tiles of 32

  // test: open at first, then solved, compared with a chapter before it; wrong, it fails where it is wrong.
  const json open = workbook_run({"test", which, "--json"}).document().at("runs").at(0);
  CHECK(open.at("todo") == 1);
  CHECK(open.at("blocked") == 1);
  solve();
  const json solved = workbook_run({"test", which, "--json"}).document().at("runs").at(0);
  CHECK(solved.at("passed") == 2);
  const fs::path stub = copy / "chapters" / chapter / "split_again.cu";
  const std::string right = book::read_file(stub);
  book::write_file(stub, replaced(right, "? largest : m;", "? m : largest;"));
  const json wrong = workbook_run({"test", id, "--json"}).document().at("runs").at(0);
  CHECK(wrong.at("failed") == 1);
  CHECK(wrong.at("tests").at(0).at("place").at("file") == "chapters/" + chapter + "/split_again.cu");
  book::write_file(stub, right);

  // trace: the map of its own tiles.
  const json trace = workbook_run({"trace", which, "--json", "--seq", "128", "--heads", "1"}).document();
  CHECK(trace.at("result") == "ok");
  CHECK(trace.at("launches").size() == 1);

  // bench, on the simulator: counted, not timed.
  const fs::path results = copy / "bench";
  const Ran bench = workbook_run({"bench", which, "--only", "--n", "128", "--head-dim", "64", "--causal", "no",
                                  "--pass", "forward", "--out", results.string()});
  CHECK(bench.exit_code == 0);
  const json points = json::parse(book::read_file(results / "results.json")).at("points");
  bool measured = false;
  for (const json& point : points) measured = measured || (point.at("name") == chapter && point.at("result") == "ok");
  CHECK(measured);

  // train: a forward pass without the causal mask is none that a language model can use; the others do it still.
  const Ran train = workbook_run({"train", "--solutions", "--backend", "sim", "--precision", "fp16", "--steps", "2",
                                  "--context", "32", "--sequences", "1", "--out", (copy / "trained").string()});
  INFO(train.out);
  CHECK(train.exit_code == 0);

  // release, verified by itself, and grade: the untouched stub gets nothing, the answer everything.
  const fs::path release = copy / "released";
  fs::remove_all(release);
  const Ran released = workbook_run({"release", "--exercises", id, "--out", release.string()});
  INFO(released.out);
  REQUIRE(released.exit_code == 0);
  const fs::path handed_in = copy / "handed in";
  book::write_file(handed_in / "ada" / "split_again.cu", right);
  book::write_file(handed_in / "bob" / "split_again.cu",
                   book::read_file(release / "chapters" / chapter / "split_again.cu"));
  const Ran graded =
      workbook_run({"grade", "--assignment", (release / "assignment.toml").string(), "--unsafe", "--json", "--out",
                    (copy / "graded").string(), (handed_in / "ada").string(), (handed_in / "bob").string()});
  const json submissions = graded.document().at("submissions");
  REQUIRE(submissions.size() == 2);
  CHECK(submissions.at(0).at("points") == submissions.at(0).at("max_points"));
  CHECK(submissions.at(1).at("points") == 0);

  // Nothing under common/ was touched.
  CHECK(changed_in_common().empty());
}
