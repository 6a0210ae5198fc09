// `./workbook run`, with a text and with files, and its messages for stages that refuse or are wrong.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "common/attention/tolerance.hpp"
#include "common/judge/compare.hpp"
#include "tests/cli/npy_files.hpp"
#include "tests/cli/traced_book.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

/// Checks that a stage ran with a right result.
void expect_right(const json& stage) {
  INFO(stage.dump(2));
  CHECK(stage["supported"] == true);
  CHECK(stage["result"] == "ok");
  CHECK(stage["message"].is_null());
  CHECK(stage["max_error"] <= stage["bound"]);
  CHECK(stage["rms_error"] <= stage["rms_bound"]);
  CHECK(stage["bound"] < 1e-3);
}

std::vector<std::int64_t> sizes_of(const Tensor<float>& tensor) {
  return {tensor.sizes.begin(), tensor.sizes.end()};
}

}  // namespace

TEST_CASE("every stage is right on the built-in text, causal or not") {
  const WorkbookCopy book;
  for (const bool causal : {false, true}) {
    std::vector<std::string> arguments{"run", "--json", "--seq", "256", "--backend", "cpu"};
    if (causal) arguments.push_back("--causal");
    const Ran ran = book.run(arguments);
    CHECK(ran.exit_code == 0);
    const json document = ran.document();
    CHECK(document["input"]["source"] == "book");
    CHECK(document["input"]["causal"] == causal);
    CHECK(document["input"]["Nq"] == 256);
    CHECK(document["input"]["scale"] == 0.125);
    REQUIRE(document["stages"].size() == 2);
    for (const json& stage : document["stages"]) {
      expect_right(stage);
      CHECK(stage["source"] == "solutions");
      CHECK(stage["backend"] == "cpu");
    }
    CHECK(document["stages"][0]["previous_difference"].is_null());
    CHECK(document["stages"][1]["previous_difference"] < 1e-4);
  }
  for (const bool every_stage : {false, true}) {
    std::vector<std::string> words{"run", "--seq", "256", "--causal", "--backend", "cpu"};
    if (every_stage) words.push_back("--all");
    const Ran shown = book.run(words);
    CHECK(shown.exit_code == 0);
    CHECK(contains(shown.out, "Nq=256, Nk=256, d=64, causal, scale 0.125"));
    CHECK(contains(shown.out, every_stage ? "01_naive_attention" : " 1 Naive attention "));
    CHECK(contains(shown.out, every_stage ? "02_online_softmax" : " 2 Online softmax "));
    CHECK(contains(shown.out, "rms err") == every_stage);
    CHECK(occurrences(shown.out, " ok\n") == 2);
  }
  // Q, K, V and O of 4 heads, (256, 64) in fp32, and 256 LSEs of each: 1.004 MiB
  CHECK(contains(book.run({"run", "--seq", "256", "--backend", "cpu"}).out, "1.0 MiB  ok\n"));
}

TEST_CASE("the built-in text does not change when a page is edited") {
  const WorkbookCopy book;
  const auto errors = [&] {
    const json document = book.run({"run", "--json", "--seq", "256", "--backend", "cpu"}).document();
    std::vector<double> found;
    for (const json& stage : document["stages"]) found.push_back(stage["max_error"]);
    return found;
  };
  const std::vector<double> before = errors();
  CHECK(before.size() == 2);
  book.edit("README.md", "# FlashAttention Workbook", "# A workbook on FlashAttention");
  CHECK(errors() == before);
}

TEST_CASE("one stage can be run alone; chapter 2 takes 16.5 KiB whatever N is") {
  const WorkbookCopy book;
  for (const char* which : {"2", "02", "online_softmax", "02_online_softmax"}) {
    const json document = book.run({"run", "--json", "--seq", "128", "--stage", which}).document();
    REQUIRE(document["stages"].size() == 1);
    CHECK(document["stages"][0]["chapter"] == "02_online_softmax");
  }
  const Ran ran = book.run({"run", "--json", "--stage", "2", "--seq", "2048", "--heads", "2"});
  CHECK(ran.exit_code == 0);
  const json document = ran.document(), stage = document["stages"][0];
  expect_right(stage);
  if (stage["extra_bytes"].is_null()) SKIP("a sanitizer build does not count memory");
  CHECK(stage["extra_bytes"] == 16.5 * 1024);
  CHECK(contains(book.run({"run", "--stage", "2", "--seq", "512"}).out, "16.5 KiB"));
}

TEST_CASE("a stage that is run alone prints its chapter's tables") {
  const WorkbookCopy book = book_with("12_fp8");
  const Ran ran = book.run({"run", "--stage", "12", "--backend", "sim", "--seq", "64", "--heads", "1"});
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.out, "one column of both 8 times as large               0.3211    0.4056    0.0726"));
  CHECK(contains(ran.out, "131072       0.1250       1.1250"));
}

TEST_CASE("a stage whose memory would not suffice refuses beforehand, with exit code 3") {
  const WorkbookCopy book;
  const std::vector<std::string> arguments{"run", "--seq",    "4096", "--heads",   "1",  "--stage",
                                           "1",   "--memory", "64M",  "--backend", "cpu"};
  const Ran ran = book.run(arguments);
  if (ran.exit_code == 0) SKIP("a sanitizer build has no memory limit");
  CHECK(ran.exit_code == 3);
  CHECK(contains(ran.out, "refused"));
  CHECK(contains(ran.out, "S and P would take 0.1 GiB"));
  CHECK(contains(ran.out, "chapter 2 computes the same in memory that does not grow with N"));

  // Since another stage ran, the run succeeds.
  const Ran both = book.run({"run", "--json", "--seq", "4096", "--heads", "1", "--memory", "64M", "--backend", "cpu"});
  CHECK(both.exit_code == 0);
  const json document = both.document();
  CHECK(document["stages"][0]["result"] == "refused");
  CHECK(document["stages"][0]["max_error"].is_null());
  expect_right(document["stages"][1]);
}

TEST_CASE("Q, K, V from files give O and LSE within the bounds") {
  const WorkbookCopy book;
  for (const int rank : {4, 3}) {
    const std::int64_t B = rank == 4 ? 2 : 1;
    Problem problem;
    problem.shape = {B, 3, 3, 21, 34, 40};  // any head_dim, ragged tiles, Nq and Nk differ
    problem.Q = normal_tensor({B, 3, 21, 40}, 1);
    problem.K = normal_tensor({B, 3, 34, 40}, 2);
    problem.V = normal_tensor({B, 3, 34, 40}, 3);
    problem.mask = true;
    problem.scale = 0.25f;
    const Ran ran = book.run({"run", "--json", "--causal", "--scale", "0.25", "--q", good_npy("q.npy", problem.Q, rank),
                              "--k", good_npy("k.npy", problem.K, rank), "--v", good_npy("v.npy", problem.V, rank),
                              "--out", scratch("o.npy").string(), "--lse", scratch("lse.npy").string()});
    INFO(ran.err);
    CHECK(ran.exit_code == 0);
    const json document = ran.document();
    CHECK(document["input"]["source"] == "npy");
    CHECK(document["input"]["seed"].is_null());
    CHECK(document["input"]["B"] == B);
    CHECK(document["input"]["Nk"] == 34);
    for (const json& stage : document["stages"]) expect_right(stage);

    const Forward oracle = forward_oracle(problem);
    const Tensor<float> O = read_npy(scratch("o.npy"));
    REQUIRE(sizes_of(O) == std::vector<std::int64_t>{B, 3, 21, 40});
    judge::Layout layout;
    const auto compared = judge::compare(O, oracle.O, output_bounds(oracle, problem, float32_precision()), layout);
    INFO(compared.text);
    CHECK(compared.close);

    Tensor<float> lse = read_npy(scratch("lse.npy"));  // (B, H, N), which would be read as (H, N, d)
    REQUIRE(sizes_of(lse) == std::vector<std::int64_t>{1, B, 3, 21});
    lse.sizes = {B, 3, 21, 1};
    CHECK(judge::compare(lse, oracle.lse, lse_bounds(oracle, problem, float32_precision()), layout).close);
  }
}

TEST_CASE("heads of Q may share heads of K and V where a stage serves it, and others say which do") {
  const WorkbookCopy book = book_with("03_tiled_wmma");
  Problem problem;
  problem.shape = {2, 6, 2, 9, 14, 32};
  problem.scale = 0.25f;
  problem.mask = Mask::causal;
  problem.Q = normal_tensor({2, 6, 9, 32}, 1);
  problem.K = normal_tensor({2, 2, 14, 32}, 2);
  problem.V = normal_tensor({2, 2, 14, 32}, 3);
  const std::string q = good_npy("q.npy", problem.Q, 4), k = good_npy("k.npy", problem.K, 4),
                    v = good_npy("v.npy", problem.V, 4), out = scratch("o.npy").string();
  const auto run = [&](const char* stage, const char* backend, const char* mask) {
    return book.run({"run", "--json", "--mask", mask, "--scale", "0.25", "--q", q, "--k", k, "--v", v, "--out", out,
                     "--stage", stage, "--backend", backend});
  };
  for (const char* stage : {"1", "2"}) {
    const Ran ran = run(stage, "cpu", "causal");
    INFO(ran.err);
    CHECK(ran.exit_code == 0);
    CHECK(ran.document()["input"]["Hkv"] == 2);
    CHECK(ran.document()["input"]["mask"] == "causal");
    expect_right(ran.document()["stages"][0]);
    // The definition, computed directly.
    const Tensor<float> O = read_npy(out);
    double largest = 0;
    for (std::int64_t row = 0; row < 2 * 6 * 9; ++row) {
      const std::int64_t b = row / 54, h = row / 9 % 6, i = row % 9;
      double sum = 0;
      std::vector<double> o(32);
      for (std::int64_t j = 0; j <= i + 5; ++j) {
        double S = 0;
        for (std::int64_t c = 0; c < 32; ++c) S += double(problem.Q(b, h, i, c)) * problem.K(b, h / 3, j, c);
        const double p = std::exp(0.25 * S);
        sum += p;
        for (std::int64_t c = 0; c < 32; ++c) o[std::size_t(c)] += p * problem.V(b, h / 3, j, c);
      }
      for (std::int64_t c = 0; c < 32; ++c)
        largest = std::max(largest, std::abs(o[std::size_t(c)] / sum - double(O(b, h, i, c))));
    }
    CHECK(largest < 2e-6);
  }
  const Ran of_text =
      book.run({"run", "--json", "--seq", "64", "--queries", "3", "--kv-heads", "2", "--causal", "--stage", "2"});
  CHECK(of_text.exit_code == 0);
  const json input = of_text.document()["input"];
  CHECK(input["H"] == 4);
  CHECK(input["Hkv"] == 2);
  CHECK(input["Nq"] == 3);
  CHECK(input["Nk"] == 64);
  expect_right(of_text.document()["stages"][0]);
  expect_refused(book, {"run", "--seq", "64", "--stage", "3", "--pass", "backward"},
                 {"--pass backward", "allowed: forward"});
  const Ran of_files = run("3", "sim", "none"),
            of_heads =
                book.run({"run", "--json", "--seq", "64", "--kv-heads", "2", "--stage", "3", "--backend", "sim"});
  const std::string with_6 = "--k " + k + " with 6 heads of Q: allowed: 6",
                    with_4 = "--kv-heads 2 with 4 heads of Q: allowed: 4";
  for (const auto& [refused, said] : {std::pair{&of_files, with_6}, {&of_heads, with_4}}) {
    CHECK(refused->exit_code == 3);
    const json stage = refused->document()["stages"][0];
    CHECK(stage["supported"] == false);
    CHECK(stage["result"] == "does not do Hkv < H");
    CHECK(stage["message"] ==
          said + " heads of K and V, or a stage that supports it: chapter 1 on cpu, chapter 2 on cpu");
  }
}

TEST_CASE("a mask of every part, with sinks from a file, packed sequences and heads that share K and V") {
  const WorkbookCopy book = book_with("15_which_pairs");
  const std::string sinks = raw_npy("sinks.npy", "<f4", false, "(4,)", 16);
  const std::vector<std::string> call{"run",    "--json",       "--stage",   "15", "--kv-heads", "2",
                                      "--mask", "window=256,0", "--softcap", "50", "--alibi",    "--sink"};
  const auto with = [&](const std::string& sink, const std::string& lengths) {
    std::vector<std::string> arguments = call;
    arguments.insert(arguments.end(), {sink, "--lengths", lengths, "--backend", "sim"});
    return arguments;
  };
  const Ran ran = book.run(with(sinks, "100,37"));
  INFO(ran.err);
  CHECK(ran.exit_code == 0);
  const json document = ran.document();
  CHECK(document["input"]["mask"] == "window=256,0+softcap=50+alibi+sink+lengths=100,37");
  CHECK(document["input"]["Nq"] == 137);  // without --seq, the sum of the lengths
  CHECK(document["input"]["Hkv"] == 2);
  REQUIRE(document["stages"].size() == 2);
  for (const json& stage : document["stages"]) {
    INFO(stage.dump(2));
    CHECK(stage["result"] == "ok");
    CHECK(stage["max_error"] <= stage["bound"]);
  }
  expect_refused(book, with(raw_npy("three.npy", "<f4", false, "(3,)", 12), "100,37"),
                 {"--sink", "3 numbers", "allowed: one for each of the 4 heads"});
  expect_refused(book, with(raw_npy("four.npy", "<f4", false, "(4, 1, 1)", 16), "100,37"),
                 {"--sink", "has 3 dimensions", "allowed: 1"});
  const Ran both_passes = book.run({"run", "--stage", "15", "--mask", "prefix=8", "--backend", "sim"});
  CHECK(both_passes.exit_code == 3);
  CHECK(occurrences(both_passes.out, "the mask prefix=8:") == 1);
}

TEST_CASE("the same from another folder, with relative paths") {
  const WorkbookCopy book;
  good_npy("q.npy", normal_tensor({1, 1, 8, 32}, 1));
  good_npy("kv.npy", normal_tensor({1, 1, 8, 32}, 2));
  const std::vector<std::string> files{"run",    "--json", "--q",    "q.npy", "--k",
                                       "kv.npy", "--v",    "kv.npy", "--out", "o.npy"};
  RunOptions there;
  there.folder = scratch("").parent_path();
  CHECK(book.run(files, there).exit_code == 0);
  CHECK(std::filesystem::exists(scratch("o.npy")));

  json documents[2];
  RunOptions elsewhere;
  elsewhere.folder = "/";
  for (int i = 0; i < 2; ++i) {
    documents[i] = book.run({"run", "--json", "--seq", "128"}, i == 0 ? RunOptions{} : elsewhere).document();
    for (json& stage : documents[i]["stages"]) stage.erase("seconds");
  }
  CHECK(documents[0] == documents[1]);
}

TEST_CASE("the seed makes the input, and the same seed the same input") {
  const WorkbookCopy book;
  std::map<std::string, std::string> written;
  for (const char* seed : {"1", "1", "2"}) {
    const std::string out = scratch("o.npy").string();
    CHECK(book.run({"run", "--seq", "64", "--heads", "1", "--stage", "2", "--seed", seed, "--out", out}).exit_code ==
          0);
    const std::string text = book::read_file(out);
    if (written.contains(seed)) CHECK(written[seed] == text);
    written[seed] = text;
  }
  CHECK(written["1"] != written["2"]);
}

TEST_CASE("the reader's stages are reported as todo, wrong or right") {
  const WorkbookCopy book;
  const Ran todo = book.run({"run", "--chapters", "--seq", "64", "--json", "--out", scratch("o.npy").string()});
  CHECK(todo.exit_code == 1);
  const json open = todo.document();
  for (const json& stage : open["stages"]) {
    CHECK(stage["source"] == "chapters");
    CHECK(stage["result"] == "todo");
    CHECK(stage["max_error"].is_null());
  }
  CHECK(contains(open["stages"][0]["message"], "exercise 1.1 is still open"));
  CHECK(contains(open["stages"][0]["message"], "./workbook test 1"));
  CHECK_FALSE(std::filesystem::exists(scratch("o.npy")));
  CHECK(contains(todo.err, "nothing was written"));

  for (const char* id : {"1.1", "1.2", "1.3", "2.3"}) book.solve(id);
  const Ran right = book.run({"run", "--chapters", "--seq", "64", "--json"});
  CHECK(right.exit_code == 0);
  const json solved = right.document();
  for (const json& stage : solved["stages"]) expect_right(stage);

  book.edit(book.readers_file("2.3"), "scale * dot", "dot");
  const Ran wrong = book.run({"run", "--chapters", "--seq", "64"});
  CHECK(wrong.exit_code == 1);
  CHECK(contains(wrong.out, "OUTSIDE ITS BOUND"));
  CHECK(contains(wrong.out, "02_online_softmax: "));
  CHECK(contains(wrong.out, "elements of O are off"));
}

TEST_CASE("a bound that is larger than the output gives no verdict, and an endless text is read up to N") {
  const WorkbookCopy book;
  Tensor<float> large({1, 1, 64, 64});  // equal scores of 7·10⁹: a float resolves none of their differences
  std::ranges::fill(large.values, 3e4F);
  const std::string same = good_npy("large.npy", large), v = good_npy("v.npy", normal_tensor({1, 1, 64, 64}, 1));
  const std::vector<std::string> call{"run", "--q", same, "--k", same, "--v", v, "--stage", "2"};
  std::vector<std::string> as_json = call;
  as_json.emplace_back("--json");
  const Ran ran = book.run(as_json);
  CHECK(ran.exit_code == 1);
  const json stage = ran.document()["stages"][0];
  CHECK(stage["result"] == "cannot be judged");
  CHECK(contains(stage["message"], "a wrong O could be within this bound"));
  CHECK(contains(book.run(call).out, "cannot be judged"));
  CHECK(book.run({"run", "--seq", "64", "--stage", "2", "--text", "/dev/zero"}, {.time = 60}).exit_code == 0);
}

TEST_CASE("non-finite numbers are strings, and a stage's exception text is made valid UTF-8") {
  const WorkbookCopy book;
  for (const char* id : {"1.1", "1.2"}) book.solve(id);
  book.fill_in("1.3", "  for (float& o : O.elements()) o = NAN;\n");
  book.fill_in("2.3", "  throw std::runtime_error(\"broken text: \\xff\\xfe \\xc3(\");\n");
  const Ran ran = book.run({"run", "--chapters", "--seq", "64", "--json"});
  CHECK(ran.exit_code == 1);
  const json document = ran.document();  // accepts valid UTF-8 only
  CHECK(document["stages"][0]["result"] == "failed");
  CHECK(document["stages"][0]["max_error"] == "inf");
  CHECK(document["stages"][1]["result"] == "threw");
  CHECK(contains(document["stages"][1]["message"], "broken text: \xef\xbf\xbd"));

  const json test = book.run({"test", "2.3", "--json"}).document()["runs"][0];
  CHECK(contains(test["tests"][0]["message"], "broken text: \xef\xbf\xbd"));
}
