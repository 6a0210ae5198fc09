// `./workbook train`: its output and files, stopping and resuming with identical results, and bad input.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "common/book/files.hpp"
#include "common/worker/command.hpp"
#include "tests/cli/schema.hpp"
#include "tests/cli/small_files.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// A small model on a fixed text.
std::vector<std::string> small(const std::string& out, const std::vector<std::string>& more) {
  const fs::path text = scratch("text.txt");
  std::string bytes;
  for (int i = 0; i < 400; ++i) bytes += "verse " + std::to_string(i * i) + ": and the fox jumps over the lazy dog. ";
  book::write_file(text, bytes);
  std::vector<std::string> arguments{"train", "--json", "--text", text.string(), "--out", scratch(out).string()};
  for (const auto& [option, value] : {std::pair{"--context", "16"}, {"--sequences", "2"}}) {
    if (std::find(more.begin(), more.end(), option) != more.end()) continue;  // an option is given once
    arguments.insert(arguments.end(), {option, value});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("train runs all precisions from the same start, and writes curves and a checkpoint") {
  const WorkbookCopy book;
  const Ran ran = book.run(small("a", {"--steps", "12"}));
  CHECK(ran.exit_code == 0);
  const json document = ran.document();
  expect_schema(book, "train", {document});
  CHECK(document["finished"] == true);
  CHECK(document["tokens_of_a_step"] == 32);
  CHECK(document["tokens_of_the_mean"] == 32 * 256);
  REQUIRE(document["runs"].size() == 4);
  const double start = document["runs"][0]["losses"][0];
  for (const json& run : document["runs"]) {
    INFO(run["precision"]);
    CHECK(run["losses"].size() == 12);
    CHECK(std::abs(run["losses"][0].get<double>() - start) < 0.01 * start);
    CHECK(run["losses"][11] < run["losses"][0]);
    CHECK(run["above_fp32"].is_null() == (run["precision"] == "fp32"));
  }
  for (const char* file : {"losses.csv", "train.checkpoint"}) CHECK(fs::exists(scratch("a") / file));
  const bool node = !worker::find_program("node").empty();
  CHECK(fs::exists(scratch("a") / "losses.svg") == node);
  CHECK(contains(ran.err, "no plot: pictures are drawn by Node") == !node);
  const std::string csv = book::read_file(scratch("a") / "losses.csv");
  CHECK(occurrences(csv, "\n") == 13);
  CHECK(csv.starts_with("step,fp32 loss,fp32 scale,fp32 skipped,fp16 loss,"));

  // The same as text.
  std::vector<std::string> arguments = small("a", {"--steps", "12"});
  arguments.erase(arguments.begin() + 1);
  const Ran shown = book.run(arguments);
  CHECK(shown.exit_code == 0);
  CHECK(contains(shown.out, "fp16-scaled"));
  CHECK(contains(shown.out, "zero gradients"));
}

TEST_CASE("an overflow shows as a skipped step, a smaller scale, and its recovery") {
  const WorkbookCopy book;
  const json run = book.run(small("b", {"--precision", "fp16-scaled", "--steps", "12", "--overflow-at", "4",
                                        "--growth-interval", "5", "--initial-scale", "1024"}))
                       .document()["runs"][0];
  CHECK(run["skipped_steps"] == json::array({4}));
  CHECK(run["scales"] ==
        json::array({1024.0, 1024.0, 1024.0, 1024.0, 512.0, 512.0, 512.0, 512.0, 512.0, 1024.0, 1024.0, 1024.0}));
}

TEST_CASE("a training that is stopped goes on from its checkpoint to the same losses, bit for bit") {
  const WorkbookCopy book;
  const fs::path folder = scratch("stopped"), checkpoint = folder / "train.checkpoint";
  {
    const WorkbookCopy::Background training(
        book, small("stopped", {"--precision", "fp16-scaled", "--steps", "1000000", "--seed", "5"}));
    for (int i = 0; i < 1500 && !fs::exists(folder); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // some steps; the number does not matter
  }                                                               // SIGTERM, which stops it as Ctrl-C does
  REQUIRE(fs::exists(checkpoint));
  const auto resumed = [&](const std::string& steps) {
    return book.run({"train", "--json", "--resume", checkpoint.string(), "--steps", steps, "--out", folder.string()});
  };
  const std::size_t made = resumed("1").document()["runs"][0]["steps"];
  const std::string steps = std::to_string(made + 7);
  const Ran continued = resumed(steps);
  CHECK(continued.exit_code == 0);
  const json whole =
      book.run(small("whole", {"--precision", "fp16-scaled", "--steps", steps, "--seed", "5"})).document();
  CHECK(continued.document()["runs"][0]["losses"] == whole["runs"][0]["losses"]);
  CHECK(continued.document()["runs"][0]["validation_loss"] == whole["runs"][0]["validation_loss"]);
  CHECK(book::read_file(checkpoint) == book::read_file(scratch("whole") / "train.checkpoint"));
}

TEST_CASE("a checkpoint that cannot be written is not said to be saved") {
  const WorkbookCopy book;
  const auto arguments = small("full", {"--precision", "fp32", "--steps", "1"});
  const SmallFiles limit;
  const Ran ran = book.run(arguments);
  CHECK(ran.exit_code == 3);
  CHECK(ran.err ==
        fmt::format("workbook: cannot write {}: File too large\n", (scratch("full") / "train.checkpoint").string()));
  CHECK(fs::is_empty(scratch("full")));
}

TEST_CASE("train refuses invalid arguments, and writes nothing") {
  const WorkbookCopy book;
  const auto refused = [&](const std::vector<std::string>& more, const std::string& what) {
    expect_refused(book, small("refused", more), {what});
  };
  refused({"--steps", "0"}, "--steps");
  refused({"--precision", "fp8"}, "--precision");
  refused({"--context", "5000"}, "context = 5000");
  refused({"--context", "4000"}, "a tenth of it");
  refused({"--sequences", "99999999999"}, "sequences = 99999999999");
  refused({"--shares", "9223372036854775807"}, "shares");
  refused({"--initial-scale", "1e39"}, "--initial-scale");
  refused({"--backend", "sim"}, "allowed with --chapters or --solutions");
  refused({"--chapters"}, "this book has no chapter with the operations unscale and scaler");
  refused({"--chapters", "--solutions"}, "--chapters");
  refused({"--resume", scratch("missing").string()}, "allowed with it");
  expect_refused(book, {"train", "--resume", scratch("missing").string(), "--out", scratch("refused").string()}, {});
  expect_refused(book, {"train", "--attention", "1.5"}, {"\"1.5\"", "allowed: a whole number from 1 to 99"});
  book::write_file(scratch("empty"), "");
  const std::string empty = scratch("empty").string();
  expect_refused(book, {"train", "--text", empty}, {"--text " + empty, "has only 0 bytes", "allowed: a longer text"});
  expect_refused(book, {"train", "--resume", empty}, {"--resume " + empty, "ends too early", "allowed: a checkpoint"});
  expect_refused(book, {"generate", "--from", empty}, {"--from " + empty, "ends too early", "allowed: a checkpoint"});
}

TEST_CASE("generate continues a prompt with the model of a checkpoint") {
  const WorkbookCopy book;
  REQUIRE(book.run(small("generated", {"--steps", "3"})).exit_code == 0);
  const std::string checkpoint = (scratch("generated") / "train.checkpoint").string();
  const auto generated = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"generate", "--json", "--from", checkpoint, "--prompt", "verse"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return book.run(arguments);
  };
  const json document = generated({}).document();
  expect_schema(book, "generate", {document});
  CHECK(document["bytes"] == 16 - 5);  // up to the end of the context
  CHECK(document["precision"] == "bf16");
  CHECK(generated({"--no-cache"}).document()["text"] == document["text"]);
  CHECK(generated({"--precision", "fp32", "--bytes", "3"}).document()["bytes"] == 3);
  const Ran shown = book.run({"generate", "--from", checkpoint, "--prompt", "verse", "--temperature", "0"});
  CHECK(shown.exit_code == 0);
  CHECK(shown.out.starts_with("verse"));
  CHECK(contains(shown.out, "plain attention on the CPU, weights of the bf16 run, with a cache of K and V"));
}

TEST_CASE("generate refuses invalid arguments") {
  const WorkbookCopy book;
  expect_refused(book, {"generate"}, {"there is no trained model yet", "./workbook train --head-dim 64"});
  REQUIRE(book.run(small("short", {"--steps", "1", "--precision", "fp16"})).exit_code == 0);
  const std::string checkpoint = (scratch("short") / "train.checkpoint").string();
  expect_refused(book, {"generate", "--from", checkpoint, "--bytes", "17"}, {"17 new ones", "context, 16"});
  expect_refused(book, {"generate", "--from", checkpoint, "--bytes", "9223372036854775807"},
                 {"9223372036854775807 new ones", "context, 16"});
  expect_refused(book, {"generate", "--from", checkpoint, "--precision", "bf16"}, {"--precision bf16", "it has: fp16"});
  expect_refused(book, {"generate", "--from", checkpoint, "--prompt", ""}, {"--prompt"});
  expect_refused(book, {"generate", "--from", checkpoint, "--backend", "sim"}, {"--backend sim"});
}
