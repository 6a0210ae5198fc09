// Bad input: exit code 2, a message that names the argument, its value and what is allowed, nothing on stdout, and no
// file written.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "common/worker/command.hpp"
#include "tests/cli/npy_files.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

using Words = std::vector<std::string>;

struct Case {
  Words arguments;
  Words said;  ///< required parts of the message: argument, value, what is allowed
};

void expect_refused(const WorkbookCopy& book, const Case& wrong) {
  expect_refused(book, wrong.arguments, wrong.said);
}

/// `run --json` with an output file that must not be created.
Case run_with(Words arguments, Words said) {
  Words all{"run", "--json", "--out", scratch("o.npy").string(), "--lse", scratch("lse.npy").string()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return {all, std::move(said)};
}

}  // namespace

TEST_CASE("files whose content does not match their type are refused") {
  const WorkbookCopy book;
  const std::string q = good_npy("q.npy", normal_tensor({1, 2, 8, 32}, 1));
  const std::string k = good_npy("k.npy", normal_tensor({1, 2, 12, 32}, 2));
  const std::string v = good_npy("v.npy", normal_tensor({1, 2, 12, 32}, 3));
  const std::size_t bytes = 2 * 8 * 32 * 4;
  const std::string shape = "(1, 2, 8, 32)";

  // Q is invalid; K and V are valid.
  struct BadFile {
    std::string path;
    Words said;
  };
  std::vector<BadFile> bad{
      {scratch("missing.npy").string(), {"no such file"}},
      {scratch("").parent_path().string(), {"is a folder"}},
      {raw_npy("truncated.npy", "<f4", false, shape, bytes - 1), {shape, "2048 bytes", "2047"}},
      {raw_npy("too_long.npy", "<f4", false, shape, bytes + 1), {shape, "2048 bytes", "2049"}},
      {raw_npy("magic.npy", "<f4", false, shape, bytes, "\x93NUMPX"), {"does not start with the .npy magic"}},
      {raw_npy("fortran.npy", "<f4", true, shape, bytes), {"Fortran order", "C order"}},
      {raw_npy("big_endian.npy", ">f4", false, shape, bytes), {"'>f4'", "allowed", "little-endian"}},
      {raw_npy("integers.npy", "<i4", false, shape, bytes), {"'<i4'", "allowed", "float16"}},
      {raw_npy("rank_2.npy", "<f4", false, "(16, 32)", bytes), {"2 dimensions", "(16, 32)", "allowed"}},
      {raw_npy("rank_0.npy", "<f4", false, "()", 4), {"0 dimensions", "shape ()", "allowed: "}},
      {raw_npy("no_rows.npy", "<f4", false, "(1, 2, 0, 32)", 0), {"a size is 0", "at least 1"}},
      {raw_npy("overflow.npy", "<f4", false, "(4294967296, 4294967296, 4294967296, 64)", bytes),
       {"too large", "at most"}},
      {raw_npy("huge.npy", "<f4", false, "(9223372036854775807, 1, 1, 1)", bytes), {"too large", "at most"}},
      {raw_npy("no_number.npy", "<f4", false, "(99999999999999999999, 1, 1, 1)", bytes), {"9223372036854775807"}},
  };
  book::write_file(scratch("short.npy"), "\x93NUM");
  bad.push_back({scratch("short.npy").string(), {"ends within the magic number"}});
  book::write_file(scratch("header.npy"), std::string("\x93NUMPY\x01\x00\xff\x7f{'descr'", 18));
  bad.push_back({scratch("header.npy").string(), {"32767 bytes", "only 8 follow"}});
  for (const BadFile& file : bad) {
    Words said = file.said;
    said.push_back("--q " + file.path);
    expect_refused(book, run_with({"--q", file.path, "--k", k, "--v", v}, said));
    said.back() = "--v " + file.path;
    expect_refused(book, run_with({"--q", q, "--k", k, "--v", file.path}, said));
  }
}

TEST_CASE("tensors that do not fit each other are refused") {
  const WorkbookCopy book;
  const auto file = [](const std::string& name, std::array<std::int64_t, 4> sizes) {
    return good_npy(name, normal_tensor(sizes, 1));
  };
  const std::string q = file("q.npy", {2, 2, 8, 32}), k = file("k.npy", {2, 2, 12, 32}),
                    v = file("v.npy", {2, 2, 12, 32});
  const std::string other_d = file("d.npy", {2, 2, 12, 64}), other_B = file("b.npy", {1, 2, 12, 32});
  const std::string other_H = file("h.npy", {2, 3, 12, 32}), other_N = file("n.npy", {2, 2, 13, 32});
  const auto refused = [&](const std::string& k, const std::string& v, const Words& said) {
    expect_refused(book, run_with({"--q", q, "--k", k, "--v", v}, said));
  };
  refused(other_d, other_d, {"--k " + other_d, "head_dim 64", "32", "allowed: the same"});
  refused(other_B, other_B, {"--k " + other_B, "batch 1", "2", "allowed: the same"});
  refused(other_H, other_H, {"--k " + other_H, "head count 3", "2", "allowed: a divisor of Q's head count"});
  refused(k, other_N, {"--v " + other_N, "(2, 2, 13, 32)", "(2, 2, 12, 32)", "allowed: the same shape"});
  refused(k, other_d, {"--v " + other_d, "(2, 2, 12, 64)", "(2, 2, 12, 32)", "allowed: the same shape"});
  CHECK(book.run({"run", "--json", "--q", q, "--k", k, "--v", v}).exit_code == 0);  // these fit
}

TEST_CASE("NaN and infinities in an input are refused, with the element") {
  const WorkbookCopy book;
  const std::string good = good_npy("good.npy", normal_tensor({1, 2, 8, 32}, 1));
  for (const auto& [value, text] : {std::pair{std::numeric_limits<float>::quiet_NaN(), "is nan"},
                                    {std::numeric_limits<float>::infinity(), "is inf"},
                                    {-std::numeric_limits<float>::infinity(), "is -inf"}}) {
    Tensor<float> tensor = normal_tensor({1, 2, 8, 32}, 1);
    tensor(0, 1, 5, 17) = value;
    const std::string bad = good_npy("bad.npy", tensor);
    for (const std::string flag : {"--q", "--k", "--v"}) {
      Words arguments;
      for (const std::string each : {"--q", "--k", "--v"}) {
        arguments.push_back(each);
        arguments.push_back(each == flag ? bad : good);
      }
      expect_refused(book, run_with(arguments, {flag + " " + bad, "(batch 0, head 1, row 5, column 17)", text,
                                                "allowed: finite"}));
    }
  }
}

TEST_CASE("inputs whose scores may overflow are refused") {
  const WorkbookCopy book;
  Tensor<float> tensor = normal_tensor({1, 2, 8, 32}, 1);
  const std::string k = good_npy("k.npy", tensor);
  tensor(0, 1, 5, 17) = 1e37F;
  const std::string q = good_npy("q.npy", tensor);
  expect_refused(book, run_with({"--q", q, "--k", k, "--v", k, "--stage", "1"},
                                {"--q " + q + ", --k " + k + ": d·max|Q|·max|K| is ", "allowed: up to 3.4e38"}));
}

TEST_CASE("flags of run that make no sense are refused") {
  const WorkbookCopy book;
  const std::string file = good_npy("q.npy", normal_tensor({1, 2, 8, 32}, 1));
  book::write_file(scratch("short.txt"), "too short");
  const std::string short_text = scratch("short.txt").string(), folder = scratch("").parent_path().string();
  const std::string nowhere = scratch("nowhere/o.npy").string();
  const std::vector<Case> cases{
      run_with({"--q", file}, {"--q, --k and --v", "1 of the three", "allowed: all three or none"}),
      run_with({"--k", file, "--v", file}, {"2 of the three", "allowed: all three or none"}),
      run_with({"--q", file, "--k", file, "--v", file, "--seq", "8"}, {"--q", "--seq", "not allowed with them"}),
      run_with({"--q", file, "--k", file, "--v", file, "--kv-heads", "2"},
               {"--q", "--kv-heads", "not allowed with them"}),
      run_with({"--q", file, "--k", file, "--v", file, "--queries", "2"},
               {"--q", "--queries", "not allowed with them"}),
      run_with({"--q", file, "--k", file, "--v", file, "--text", short_text},
               {"--q", "--text", "not allowed with them"}),
      run_with({"--seq", "0"}, {"--seq", "\"0\"", "allowed: a whole number from 1"}),
      run_with({"--seq", "-5"}, {"--seq", "\"-5\"", "allowed: a whole number from 1"}),
      run_with({"--seq", "010"}, {"--seq", "\"010\"", "allowed: a whole number from 1"}),
      run_with({"--seq", "abc"}, {"--seq", "\"abc\"", "allowed: a whole number from 1"}),
      run_with({"--seq", "1e99"}, {"--seq", "\"1e99\"", "allowed: a whole number from 1"}),
      run_with({"--seq", "12.5"}, {"--seq", "\"12.5\"", "allowed: a whole number from 1"}),
      run_with({"--seq", "99999999999999999999"}, {"--seq", "\"99999999999999999999\"", "to 9223372036854775807"}),
      run_with({"--seq", ""}, {"--seq", "\"\"", "allowed: a whole number from 1"}),
      run_with({"--seq"}, {"--seq", "see ./workbook run --help"}),
      run_with({"--seq", "100000000"}, {"--seq 100000000", "the book's own text has", "allowed: at most that number"}),
      run_with({"--seq", "2147483648", "--heads", "1"}, {"--seq 2147483648: with --heads 1 allowed: 1 to 1073741823"}),
      run_with({"--scale", "3e38"}, {"--scale 3e+38: d·max|Q|·max|K|·scale is ", "allowed: up to 3.4e38"}),
      run_with({"--head-dim", "33"}, {"--head-dim", "\"33\"", "allowed: 32, 64 or 128"}),
      run_with({"--heads", "0"}, {"--heads", "\"0\"", "allowed: a whole number from 1"}),
      run_with({"--heads", "1099511627776"}, {"--heads 1099511627776", "allowed with --head-dim 64: 1 to 64"}),
      run_with({"--kv-heads", "0"}, {"--kv-heads", "\"0\"", "allowed: a whole number from 1"}),
      run_with({"--kv-heads", "3"}, {"--kv-heads 3", "allowed with --heads 4: 1, 2, 4"}),
      run_with({"--heads", "6", "--kv-heads", "12"}, {"--kv-heads 12", "allowed with --heads 6: 1, 2, 3, 6"}),
      run_with({"--queries", "0"}, {"--queries", "\"0\"", "allowed: a whole number from 1"}),
      run_with({"--seq", "64", "--queries", "65"}, {"--queries 65", "allowed with --seq 64: 1 to 64"}),
      run_with({"--scale", "nan"}, {"--scale", "\"nan\"", "allowed: a positive number"}),
      run_with({"--scale", "0"}, {"--scale", "\"0\"", "allowed: a positive number"}),
      run_with({"--scale", "-1"}, {"--scale", "\"-1\"", "allowed: a positive number"}),
      run_with({"--scale", "1e300"}, {"--scale", "\"1e300\"", "allowed: a positive number that a float can hold"}),
      run_with({"--softcap", "inf"}, {"--softcap", "\"inf\"", "allowed: a number from 0.001 to 1000"}),
      run_with({"--softcap", "1000000"}, {"--softcap", "\"1000000\"", "allowed: a number from 0.001 to 1000"}),
      run_with({"--mask", "causal+softcap=inf"}, {"softcap = inf", "allowed: a number from 0.001 to 1000"}),
      run_with({"--mask", "causal+softcap=5e-324"}, {"softcap = 5e-324: allowed: a number from 0.001 to 1000"}),
      run_with({"--mask", "strided=4,9223372036854775807"},
               {"strided = 4,9223372036854775807", "allowed: whole numbers from 1 to 2147483647"}),
      run_with({"--mask", "causal+softcap=5+softcap=6"}, {"softcap is given twice", "allowed: once"}),
      run_with({"--mask", "causal+softcap=5", "--softcap", "9"}, {"--softcap 9", "here or in --mask"}),
      run_with({"--mask", "none+lengths=4,5", "--lengths", "3,6"},
               {"--mask none+lengths=4,5", "which has its own lengths", "allowed: another --mask"}),
      run_with({"--heads", "6", "--alibi"}, {"H (heads) = 6 with alibi", "allowed: powers of two"}),
      run_with({"--lengths", "8", "8"}, {"8: unexpected argument", "allowed: values of --lengths separated by commas"}),
      run_with({"--lengths", "8,-8,16"}, {"--lengths", "\"-8\"", "allowed: a whole number from 0 to 2147483647"}),
      run_with({"--lengths", "2147483648"}, {"\"2147483648\"", "allowed: a whole number from 0 to 2147483647"}),
      run_with({"--lengths", "2147483647,1"}, {"lengths = 2147483647,1", "from 0 to 2147483647, as is the sum"}),
      run_with({"--seed", "-1"}, {"--seed", "\"-1\"", "allowed: a whole number from 0"}),
      run_with({"--stage", "99"}, {"--stage 99", "there are: 01_naive_attention, 02_online_softmax"}),
      run_with({"--stage", ""}, {"--stage", "\"\"", "allowed: a chapter"}),
      run_with({"--element", "fp16"}, {"--element", "\"fp16\"", "allowed: float32, float16, bfloat16 or float8"}),
      run_with({"--element", "bfloat16"}, {"--element bfloat16", "none of these stages supports it"}),
      run_with({"--gpu", "k80"}, {"--gpu", "\"k80\"", "allowed: t4, rtx3060"}),
      run_with({"--gpu", "t4", "--backend", "cpu"}, {"--gpu t4", "allowed with --backend sim or cuda"}),
      run_with({"--memory", "0"}, {"--memory 0", "allowed: a positive number"}),
      run_with({"--memory", "12Q"}, {"--memory 12Q", "allowed: a positive number"}),
      run_with({"--memory", "-1G"}, {"--memory -1G", "allowed: a positive number"}),
      run_with({"--memory", "1K"}, {"--memory 1K", "allowed: at least 16M"}),
      run_with({"--text", scratch("missing.txt").string()},
               {"--text " + scratch("missing.txt").string(), "No such file"}),
      run_with({"--text", folder}, {"--text " + folder, "Is a directory"}),
      run_with({"--text", short_text}, {short_text, "has only 9 bytes", "allowed: at most that number"}),
      {{"run", "--json", "--out", nowhere},
       {"--out " + nowhere, "does not exist", "allowed: a file in an existing folder"}},
      {{"run", "--json", "--lse", folder}, {"--lse " + folder, "that is a folder", "allowed: a file name"}},
      {{"run", "--json", "--out", "/dev/null"}, {"--out /dev/null", "not a regular file", "allowed: a file name"}},
      {{"run", "--json", "--out", ""}, {"--out", "\"\"", "allowed: a file name"}},
      {{"run", "--json", "--out", scratch("o.npy").string(), "--lse", scratch("./o.npy").string()},
       {"--lse", "the same file as --out", "allowed: another file"}},
      run_with({"--nonsense"}, {"--nonsense", "see ./workbook run --help"}),
      run_with({"extra"}, {"extra", "see ./workbook run --help"}),
  };
  for (const Case& wrong : cases) expect_refused(book, wrong);
}

TEST_CASE("a pipe or a device is neither read nor replaced, by any option that names a file") {
  const WorkbookCopy book;
  const std::filesystem::path path = scratch("pipe");
  const std::string pipe = path.string();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const std::vector<Case> cases{
      {{"run", "--lse", pipe}, {"--lse " + pipe, "not a regular file", "allowed: a file name"}},
      {{"run", "--q", pipe, "--k", pipe, "--v", pipe}, {"--q " + pipe, "not a regular file", "allowed: an .npy file"}},
      {{"run", "--sink", pipe}, {"--sink " + pipe, "not a regular file", "allowed: an .npy file"}},
      {{"test", "1.1", "--junit", pipe}, {"--junit " + pipe, "not a regular file", "allowed: a file name"}},
      {{"test", "1.1", "--summary", pipe}, {"--summary " + pipe, "not a regular file", "allowed: a file name"}},
      {{"trace", "1", "--html", pipe}, {"--html " + pipe, "not a regular file", "allowed: a file name"}},
      {{"grade", "--results", pipe, pipe}, {"--results " + pipe, "not a regular file", "allowed: a file name"}},
      {{"release", "--exercises", "1.1", "--force", "--out", pipe}, {pipe, "neither a folder nor a file", "allowed: "}},
      {{"train", "--resume", pipe}, {"--resume " + pipe, "not a regular file", "allowed: a checkpoint"}},
      {{"generate", "--from", pipe}, {"--from " + pipe, "not a regular file", "allowed: a checkpoint"}},
      {{"bench", "--from", pipe}, {"--from " + pipe, "not a regular file", "allowed: a results.json"}},
  };
  for (const Case& wrong : cases) expect_refused(book, wrong);
  CHECK(std::filesystem::is_fifo(path));
}

TEST_CASE("a folder that is not writable is refused beforehand") {
  if (::geteuid() == 0) SKIP("root may write everywhere");
  const WorkbookCopy book;
  const std::filesystem::path folder = scratch("read only");
  std::filesystem::create_directories(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const std::string out = (folder / "o.npy").string();
  expect_refused(book, {{"run", "--json", "--out", out}, {"--out " + out, "is not writable"}});
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
}

TEST_CASE("unknown verbs, chapters, exercises, gates and tests are refused, with the known ones") {
  const WorkbookCopy book;
  const std::string exercises = "there are: 1.1, 1.2, 1.3, 2.1, 2.2, 2.3";
  const std::string chapters = "there are: 01_naive_attention, 02_online_softmax";
  const std::vector<Case> cases{
      {{"nonsense"}, {"nonsense", "allowed: status, run, test, hint, reset, watch, trace, doctor, solution, "}},
      {{"nonsense", "1", "--json"}, {"nonsense: unknown verb"}},
      {{"--nonsense"}, {"--nonsense", "see ./workbook --help"}},
      {{"status", "1", "--json"}, {"1: unexpected argument", "./workbook status --help"}},
      {{"test", "99", "--json"}, {"\"99\"", chapters}},
      {{"test", "", "--json"}, {"\"\"", chapters}},
      {{"test", "1.9", "--json"}, {"\"1.9\"", exercises}},
      {{"test", "x.y", "--json"}, {"\"x.y\"", exercises}},
      {{"test", "1", "2.7", "--json"}, {"\"2.7\"", exercises}},
      {{"test", "1", "--only", "no such test", "--json"},
       {"--only \"no such test\"", "allowed: \"scores are scaled once\""}},
      {{"test", "--only", "no such test", "--json"}, {"--only \"no such test\"", "\"an empty state changes nothing\""}},
      {{"test", "1.2", "--only", "scores are scaled once"}, {"--only", "allowed: \"each row of P sums to one\""}},
      {{"test", "1", "--debug"}, {"--debug", "allowed: test 2.1 --debug, or --debug --only"}},
      {{"test", "1.1", "--debug", "--backend", "cuda"}, {"--backend cuda", "allowed: cpu or sim"}},
      {{"test", "1", "--time-limit", "0"}, {"--time-limit", "\"0\"", "allowed: seconds, from 0.1"}},
      {{"test", "1", "--time-limit", "nan"}, {"--time-limit", "\"nan\"", "allowed: seconds, from 0.1"}},
      {{"test", "2", "--previous", "mine"}, {"--previous", "\"mine\"", "allowed: solutions or chapters"}},
      {{"hint", "7.7", "--json"}, {"\"7.7\"", exercises}},
      {{"hint", "--json"}, {"exercise", "see ./workbook hint --help"}},
      {{"hint", "1.1", "1.2", "--json"}, {"1.2: unexpected argument"}},
      {{"reset", "x", "--json"}, {"\"x\"", exercises}},
      {{"reset", "1", "--json"}, {"\"1\"", exercises}},
      {{"solution", "7.7"}, {"\"7.7\"", exercises}},
      {{"watch", "99"}, {"\"99\"", chapters}},
      {{"watch", "1", "--poll", "0"}, {"--poll", "\"0\"", "allowed: seconds, from 0.05"}},
      {{"check", "--gate", "nonsense", "--json"}, {"--gate nonsense", "allowed: ", "mutants", "stubs"}},
  };
  for (const Case& wrong : cases) expect_refused(book, wrong);
  CHECK_FALSE(book.exists(".workbook"));
}

TEST_CASE("a book, a build folder or a file that cannot be used is named, with exit code 2 or 3") {
  const WorkbookCopy book;
  const Ran no_book = book.run({"status"}, {.environment = {{"WORKBOOK_ROOT", "/nowhere"}}, .folder = {}});
  CHECK(no_book.exit_code == 2);
  CHECK(no_book.err.find("/nowhere") != std::string::npos);
  const std::string loop = scratch("loop").string();
  std::filesystem::create_symlink("loop", loop);
  const Ran endless = book.run({"run", "--out", loop});
  CHECK(endless.exit_code == 3);
  CHECK(endless.err == "workbook: " + loop + ": Too many levels of symbolic links\n");
  const Ran no_build = book.run({"status"}, {.environment = {{"WORKBOOK_BUILD", "/nowhere"}}, .folder = {}});
  CHECK(no_build.exit_code == 3);
  CHECK(no_build.err.find("/nowhere/toolchain.json is missing or damaged") != std::string::npos);
}

TEST_CASE("output that cannot be written is an error, and a closed stderr does not change the exit code") {
  worker::CommandOptions options;
  options.environment = {{"WORKBOOK_ROOT", WORKBOOK_SOURCE}, {"WORKBOOK_BUILD", WORKBOOK_BINARY}};
  const auto ends_with = [&](const std::string& command) {
    return worker::run_command({"sh", "-c", command, WORKBOOK_BINARY "/bin/workbook_cli"}, options);
  };
  const std::string limited = "ulimit -f 0; \"$0\" status --json >'" + scratch("limited").string() + "'";
  for (const char* command : {"\"$0\" status --json >/dev/full", "\"$0\" status >/dev/full", "\"$0\" --help >/dev/full",
                              "\"$0\" status >&-", limited.c_str()}) {
    const auto ran = ends_with(command);
    INFO(command << "\n" << ran.output);
    CHECK(ran.exit_code == 3);
    CHECK(ran.output.find("standard output: cannot write") != std::string::npos);
  }
  for (const char* stderr_is : {"2>&-", "2>/dev/full"}) {
    for (const char* arguments : {"run --seq 0", "unknown", "run --seq 64 --lengths 9223372036854775807,1"}) {
      const std::string command = std::string("\"$0\" ") + arguments + " " + stderr_is;
      INFO(command);
      CHECK(ends_with(command).exit_code == 2);
    }
  }
}
