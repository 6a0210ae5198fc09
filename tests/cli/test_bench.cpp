// `./workbook bench` on a machine without a GPU, and its messages for missing tools and bad input. Measurements on a
// GPU are in notes/results.md; tests/bench tests tables and figures.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "common/book/files.hpp"
#include "common/worker/command.hpp"
#include "tests/bench/made_up.hpp"
#include "tests/cli/schema.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

bool has_gpu() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
}

/// One small shape of chapter 2, which runs on the CPU only.
std::vector<std::string> small_bench(std::vector<std::string> more) {
  std::vector<std::string> arguments{"bench",
                                     "2",
                                     "--only",
                                     "--n",
                                     "16,32",
                                     "--head-dim",
                                     "32",
                                     "--causal",
                                     "no",
                                     "--out",
                                     scratch("results").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void expect_refused(const Ran& ran, int exit_code, const std::vector<std::string>& said) {
  INFO("stdout: " << ran.out << "\nstderr: " << ran.err);
  CHECK(ran.exit_code == exit_code);
  CHECK(ran.out.empty());
  for (const std::string& part : said) {
    INFO("must say: " << part);
    CHECK(contains(ran.err, part));
  }
}

/// A results.json of a fictitious GPU.
std::string made_up_file() {
  const std::string file = scratch("made_up.json").string();
  book::write_file(file, bench::to_json(bench::made_up_results()).dump());
  return file;
}

/// Hides all programs, as on a machine without Node. (The command needs none to show earlier results.)
test::RunOptions without_programs() {
  std::filesystem::create_directories(scratch("empty"));
  test::RunOptions options;
  options.environment["PATH"] = scratch("empty").string();
  return options;
}

}  // namespace

TEST_CASE("bench without a GPU times the CPU's chapters, lists what needs a GPU, and succeeds") {
  if (has_gpu()) SKIP("this machine has a GPU");
  const WorkbookCopy book;
  const Ran ran = book.run(small_bench({}));
  INFO(ran.err);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.out, "02_online_softmax"));
  CHECK(contains(ran.out, "times on a GPU, the device's limits, and shares of them: this machine has no GPU"));
  CHECK(contains(ran.out, "no plots: they need GPU times"));

  const json results = json::parse(book::read_file(scratch("results") / "results.json"));
  REQUIRE(results["points"].size() == 2);
  for (const json& point : results["points"]) {
    CHECK(point["name"] == "02_online_softmax");
    CHECK(point["backend"] == "cpu");
    CHECK(point["result"] == "ok");
    CHECK(point["seconds"] > 0.0);
    CHECK(point["share_of_peak"].is_null());
  }
  CHECK(results["points"][1]["N"] == 32);
  CHECK(results["roofs"]["product_flops"].is_null());
  CHECK(contains(book::read_file(scratch("results") / "results.csv"), "\n\"02_online_softmax\",\"stage\""));
}

TEST_CASE("bench --group and --queries: heads that share K and V, and fewer queries than keys") {
  if (has_gpu()) SKIP("this machine has a GPU");
  const WorkbookCopy book;
  const json point = book.run(small_bench({"--group", "4", "--queries", "8", "--json"})).document()["points"].at(1);
  INFO(point.dump());
  CHECK(point["result"] == "ok");
  CHECK((point["H"] == 4 && point["Hkv"] == 1 && point["Nq"] == 8 && point["N"] == 32));
}

TEST_CASE("bench --json follows notes/json.md, from a run and from a file") {
  const WorkbookCopy book;
  const json shown = book.run({"bench", "--json", "--from", made_up_file()}).document();
  CHECK(shown == bench::to_json(bench::made_up_results()));
  expect_schema(book, "bench", {shown, book.run(small_bench({"--json"})).document()});
}

TEST_CASE("the reader's stage is timed with --chapters; an open exercise gives no time") {
  if (has_gpu()) SKIP("this machine has a GPU");
  const WorkbookCopy book;
  const Ran open = book.run(small_bench({"--chapters", "--json"}));
  CHECK(open.exit_code == 1);
  const json document = open.document();
  CHECK(document["points"][0]["result"] == "todo");
  CHECK(document["points"][0]["source"] == "chapters");
  CHECK(document["points"][0]["seconds"].is_null());
  CHECK(contains(document["points"][0]["message"], "./workbook test 2"));
  book.solve("2.3");
  CHECK(book.run(small_bench({"--chapters"})).exit_code == 0);
}

TEST_CASE("bench refuses stages, folders and files that are not there, before it measures") {
  const WorkbookCopy book;
  expect_refused(book.run({"bench", "99"}), 2, {"bench 99", "1", "2"});
  expect_refused(book.run({"bench", "flash"}), 2, {"bench flash"});
  expect_refused(book.run({"bench", "2", "--n", "0"}), 2, {"--n", "\"0\" is not allowed", "1 to 1048576"});
  expect_refused(book.run({"bench", "2", "--n", "1.5"}), 2, {"--n", "\"1.5\" is not allowed", "1 to 1048576"});
  expect_refused(book.run({"bench", "--n", "64", "99"}), 2, {"bench 99: there is no chapter \"99\""});
  expect_refused(book.run({"bench", "2", "--head-dim", "48"}), 2, {"--head-dim", "48", "32, 64 or 128"});
  expect_refused(book.run({"bench", "2", "--group", "3"}), 2, {"--group", "3", "1, 2, 4, 8 or 16"});
  expect_refused(book.run({"bench", "2", "--heads", "6", "--group", "4"}), 2, {"--heads 6", "multiple of --group"});
  expect_refused(book.run({"bench", "2", "--queries", "0"}), 2, {"--queries", "\"0\" is not allowed"});
  expect_refused(book.run({"bench", "--decoding", "--n", "64"}), 2, {"--decoding", "without --n"});
  expect_refused(book.run({"bench", "2", "--element", "float16,fp8"}), 2, {"--element", "fp8", "float16 or bfloat16"});
  expect_refused(book.run({"bench", "2", "--set", "deterministic"}), 2, {"--set deterministic", "NAME=NUMBER"});
  expect_refused(book.run({"bench", "2", "--pass", "sideways"}), 2,
                 {"--pass", "sideways", "forward, backward or both"});

  const std::string missing = scratch("missing/folder").string(), file = scratch("a_file").string();
  book::write_file(file, "");
  expect_refused(book.run({"bench", "2", "--out", missing}), 2, {"--out " + missing, "does not exist"});
  expect_refused(book.run({"bench", "2", "--out", file}), 2, {"--out " + file, "is not a folder"});
  expect_refused(book.run({"bench", "2", "--out", "/proc/results"}), 2, {"--out /proc/results", "is not writable"});
  CHECK_FALSE(std::filesystem::exists(scratch("missing")));

  expect_refused(book.run({"bench", "--from", missing}), 2, {"--from " + missing});
  expect_refused(book.run({"bench", "--from", file}), 2, {"--from " + file, "not JSON", "results.json"});
  book::write_file(file, "{}");
  expect_refused(book.run({"bench", "--from", file}), 2, {"--from " + file, "not a result file of ./workbook bench"});
}

TEST_CASE("without Node the results are shown without plots; nothing is published") {
  const WorkbookCopy book;
  const std::string page = book.read("notes/results.md");
  const Ran ran = book.run({"bench", "--from", made_up_file()}, without_programs());
  INFO(ran.err);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.out, "04_q_split"));
  CHECK(contains(ran.out, "no plots: pictures are drawn by Node"));
  expect_refused(book.run({"bench", "--from", made_up_file(), "--publish"}, without_programs()), 3,
                 {"--publish: the page needs plots, and pictures are drawn by Node"});
  CHECK(book.read("notes/results.md") == page);
}

TEST_CASE("without Python, or without PyTorch in it, the peers are skipped with a note") {
  if (has_gpu()) SKIP("this machine has a GPU");
  const WorkbookCopy book;
  book.write("common/bench/peers.py", book::read_file(std::string(WORKBOOK_SOURCE) + "/common/bench/peers.py"));
  test::RunOptions options;
  options.environment["WORKBOOK_PYTHON"] = "/nowhere/python3";
  Ran ran = book.run(small_bench({"--peers"}), options);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.out, "--peers: /nowhere/python3 was not found"));

  if (worker::find_program("python3").empty()) SKIP("python3 is not installed");
  book::write_file(scratch("packages/torch.py"), "raise ImportError('No module named torch')\n");
  options.environment["WORKBOOK_PYTHON"] = "python3";
  options.environment["PYTHONPATH"] = scratch("packages").string();
  options.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  ran = book.run(small_bench({"--peers"}), options);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.out, "--peers: PyTorch was not found"));
}

TEST_CASE("--publish fills the page's markers from a run on a GPU, and refuses any other") {
  if (worker::find_program("node").empty()) SKIP("Node is not installed");
  const WorkbookCopy book;
  const std::string page = book.read("notes/results.md");
  if (!has_gpu()) {
    expect_refused(book.run(small_bench({"--publish"})), 2, {"--publish", "no GPU times"});
    CHECK(book.read("notes/results.md") == page);
  }
  const Ran ran = book.run({"bench", "--from", made_up_file(), "--publish"});
  INFO(ran.err);
  CHECK(ran.exit_code == 0);
  CHECK(contains(book.read("notes/results.md"), "| GPU | Imagined GPU |"));
  CHECK(contains(book.read("notes/results.md"), "(figures/speed_forward.svg)"));
  CHECK(book.exists("notes/figures/speed_forward.svg"));
  CHECK(contains(book.read("notes/figures/speed_forward.svg"), "04_q_split"));
  CHECK(contains(book.read("notes/figures/speed_forward.svg"), "sequence length N"));
  CHECK(contains(book.read("notes/figures/speed_forward.json"), "\"kind\": \"plot\""));

  book.edit("notes/results.md", "<!-- END goals -->", "");
  expect_refused(book.run({"bench", "--from", made_up_file(), "--publish"}), 3, {"notes/results.md", "END goals"});
}

TEST_CASE("bench --library requires --peers and an existing file") {
  const WorkbookCopy book;
  expect_refused(book.run(small_bench({"--library", "none.so"})), 2, {"--library: a library is timed as a peer"});
  expect_refused(book.run(small_bench({"--peers", "--library", "none.so"})), 2, {"--library none.so: no such file"});
}

TEST_CASE("bench --flash-attention-3 requires a checkout with its submodule, nvcc and a Hopper GPU") {
  const WorkbookCopy book;
  const std::filesystem::path checkout = scratch("flash-attention");
  const auto run = [&] { return book.run(small_bench({"--flash-attention-3", checkout.string()})); };
  const std::string option = "--flash-attention-3 " + checkout.string();
  expect_refused(run(), 2, {option + ": the file hopper/flash.h does not exist", "a checkout of github.com/Dao-AILab"});
  book::write_file(checkout / "hopper/flash.h", "");
  expect_refused(run(), 2, {option, "cutlass.h does not exist", "submodule update --init csrc/cutlass"});
  book::write_file(checkout / "csrc/cutlass/include/cutlass/cutlass.h", "");
  if (has_gpu()) SKIP("this machine has a GPU");
  const Ran ran = run();
  INFO(ran.out << ran.err);
  CHECK((ran.exit_code == 3 ? contains(ran.err, option + ": it is compiled by nvcc")
                            : contains(ran.out, "--flash-attention-3: its kernels need a GPU of compute capability")));
  expect_refused(book.run({"bench", "--from", made_up_file(), "--flash-attention-3", checkout.string()}), 2,
                 {"--from", "--flash-attention-3"});
}
