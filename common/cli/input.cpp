#include "common/cli/input.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <vector>

#include "common/attention/element.hpp"
#include "common/attention/error.hpp"
#include "common/attention/mask_text.hpp"
#include "common/attention/npy.hpp"
#include "common/attention/text.hpp"
#include "common/book/files.hpp"
#include "common/worker/backend.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

void require_finite(const std::string& name, const Tensor<float>& tensor) {
  const auto bad = std::find_if(tensor.values.begin(), tensor.values.end(), [](float x) { return !std::isfinite(x); });
  if (bad == tensor.values.end()) return;
  std::int64_t at = bad - tensor.values.begin();
  std::int64_t index[4];
  for (int axis = 3; axis >= 0; --axis) {
    index[axis] = at % tensor.sizes[std::size_t(axis)];
    at /= tensor.sizes[std::size_t(axis)];
  }
  fail_input(
      "{}: the element at (batch {}, head {}, row {}, column {}) is {}; allowed: finite numbers only, since one NaN "
      "or infinity spreads to every row that reads it, and no result could be checked",
      name, index[0], index[1], index[2], index[3], *bad);
}

/// Reads the file of --q, --k or --v. Error messages begin with the flag.
Tensor<float> read_input(const std::string& flag, const std::string& path, bool rank_1 = false) {
  Tensor<float> tensor;
  try {
    tensor = read_npy(path, rank_1);
  } catch (const InputError& error) {
    fail_input("{} {}", flag, error.what());
  }
  require_finite(flag + " " + path, tensor);
  return tensor;
}

Problem problem_from_files(const ProblemOptions& options) {
  Problem problem;
  problem.Q = read_input("--q", options.q);
  problem.K = read_input("--k", options.k);
  problem.V = read_input("--v", options.v);
  const auto sizes = [](const Tensor<float>& t) {
    return fmt::format("({}, {}, {}, {})", t.sizes[0], t.sizes[1], t.sizes[2], t.sizes[3]);
  };
  const auto& q = problem.Q.sizes;
  const auto& k = problem.K.sizes;
  if (k != problem.V.sizes) {
    fail_input("--v {}: shape {} does not fit K's {}; allowed: the same shape", options.v, sizes(problem.V),
               sizes(problem.K));
  }
  const auto same = [&](const char* what, std::size_t axis) {
    if (q[axis] == k[axis]) return;
    fail_input("--k {}: {} {} does not fit Q's {}; allowed: the same (K is {}, Q is {})", options.k, what, k[axis],
               q[axis], sizes(problem.K), sizes(problem.Q));
  };
  same("batch", 0);
  if (q[1] % k[1] != 0) {
    fail_input("--k {}: head count {} does not fit Q's {}; allowed: a divisor of Q's head count (K is {}, Q is {})",
               options.k, k[1], q[1], sizes(problem.K), sizes(problem.Q));
  }
  same("head_dim", 3);
  problem.shape = {q[0], q[1], k[1], q[2], k[2], q[3]};
  check(problem.shape, true);
  problem.mask = options.mask;
  problem.scale = options.scale_given ? float(options.scale) : default_scale(problem.shape.d);
  return problem;
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= number; ++i)
    if (number % i == 0) found.push_back(i);
  return found;
}

Problem problem_from_text(const Session& session, const ProblemOptions& options) {
  constexpr std::int64_t widest = 4096;  // the three projections are (H·d)² numbers each
  if (options.heads > widest / options.head_dim) {
    fail_input(
        "--heads {}: a text is embedded in H·d numbers, of which at most {} are supported; allowed with --head-dim {}: "
        "1 to {}",
        options.heads, widest, options.head_dim, widest / options.head_dim);
  }
  const auto longest = std::int64_t(std::sqrt(0x1p60 / double(options.heads))) - 1;  // for check(): H·N² scores
  if (options.seq > longest)
    fail_input("--seq {}: with --heads {} allowed: 1 to {}", options.seq, options.heads, longest);
  const std::string text = text_bytes(session, options.text, std::size_t(options.seq));
  if (std::int64_t(text.size()) < options.seq) {
    fail_input("--seq {}: {} has only {} bytes; allowed: at most that number, or another file with --text", options.seq,
               options.text.empty() ? "the book's own text" : options.text, text.size());
  }
  const std::int64_t queries = options.queries == 0 ? options.seq : options.queries;
  if (queries > options.seq)
    fail_input("--queries {}: the queries are the last rows of the sequence; allowed with --seq {}: 1 to {}", queries,
               options.seq, options.seq);
  const std::int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  if (options.heads % kv_heads != 0)
    fail_input("--kv-heads {}: it must divide the number of query heads; allowed with --heads {}: {}", kv_heads,
               options.heads, fmt::join(divisors(options.heads), ", "));
  const Shape shape{1, options.heads, kv_heads, queries, options.seq, options.head_dim};
  check(shape);
  // Rounded to fp16, so that every stage gets the same values.
  return rounded_to(embed_text(text, shape, options.mask,
                               options.scale_given ? float(options.scale) : default_scale(shape.d), options.seed),
                    float16);
}

}  // namespace

Allowed a_mask() {
  return [](const std::string& text) {
    try {
      mask_from(text);
      return std::string();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
}

void declare_element(Options& options, std::string& element) {
  options
      .option("--element", element,
              "Use only stages for this element type of Q, K, V and O (default: each chapter's own)")
      .allow(one_of({element_names.begin(), element_names.end()}, "float32, float16, bfloat16 or float8"));
}

void declare_gpu(Options& options, std::string& gpu) {
  std::vector<std::string> names;
  for (const simt::GpuClass& each : simt::kGpuClasses) names.emplace_back(each.name);
  options.option("--gpu", gpu, "Simulate this GPU's limits (default: h100)")
      .allow(one_of(names, fmt::format("{}", fmt::join(names, ", "))));
}

void simulate(const std::string& gpu) {
  if (!gpu.empty()) worker::simulate_gpu(gpu);
}

void simulate(const std::string& gpu, std::string& backend) {
  if (gpu.empty()) return;
  if (backend == name(Backend::cpu))
    fail_input(
        "--gpu {}: a GPU's limits do not apply to the CPU; allowed with --backend sim or cuda, or without --backend",
        gpu);
  simulate(gpu);
  if (backend.empty() && worker::gpu_present()) backend = name(Backend::sim);
}

std::string text_bytes(const Session& session, const std::string& file, std::size_t most) {
  try {
    return book::read_file(file.empty() ? session.book.root / "common" / "attention" / "text.txt" : fs::path(file),
                           most);
  } catch (const std::runtime_error& error) {
    fail_input("--text {}: {}", file, error.what());
  }
}

namespace {

/// InputError for Q and K with a score, or a part of its sum, that may overflow.
void require_finite_scores(const Problem& problem, const ProblemOptions& options) {
  const auto largest = [](const Tensor<float>& tensor) {
    double most = 0;
    for (const float x : tensor.values) most = std::max(most, std::abs(double(x)));
    return most;
  };
  const bool scaled = problem.scale > 1;
  const double score =
      double(problem.shape.d) * largest(problem.Q) * largest(problem.K) * std::max(1.0F, problem.scale);
  if (score <= std::numeric_limits<float>::max()) return;
  const std::string files = options.q.empty() ? "" : fmt::format("--q {}, --k {}", options.q, options.k);
  const std::string scale = options.scale_given ? fmt::format("--scale {:g}", options.scale) : "";
  fail_input("{}{}{}: d·max|Q|·max|K|{} is {:.2g}; allowed: up to 3.4e38, so that no score overflows in fp32", files,
             files.empty() || scale.empty() ? "" : ", ", scale, scaled ? "·scale" : "", score);
}

/// Adds the sinks, one per head, to the mask, and checks the problem.
void complete_mask(Problem& problem, const ProblemOptions& options) {
  const std::int64_t H = problem.shape.H;
  if (!options.sink.empty()) {
    const auto& sink = problem.mask.sink = read_input("--sink", options.sink, true).values;
    if (std::int64_t(sink.size()) != H)
      fail_input("--sink {}: the file has {} numbers; allowed: one for each of the {} heads", options.sink, sink.size(),
                 H);
  }
  check(problem, /*any_d=*/true);
}

}  // namespace

Problem make_problem(const Session& session, const ProblemOptions& options) {
  const int files = !options.q.empty() + !options.k.empty() + !options.v.empty();
  if (files != 0 && files != 3)
    fail_input("--q, --k and --v: {} of the three given; allowed: all three or none", files);
  if (files == 3 && (!options.text.empty() || options.shape_given)) {
    fail_input(
        "--q, --k, --v determine the shape; not allowed with them: --text, --seq, --queries, --heads, --kv-heads, "
        "--head-dim");
  }
  Problem problem = files == 3 ? problem_from_files(options) : problem_from_text(session, options);
  complete_mask(problem, options);
  require_finite_scores(problem, options);
  return problem;
}

void require_writable(const char* flag, const std::string& path) {
  if (path.empty()) return;
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder))
    fail_input("{} {}: the folder {} does not exist; allowed: a file in an existing folder", flag, path,
               folder.string());
  if (fs::is_directory(path)) fail_input("{} {}: that is a folder; allowed: a file name", flag, path);
  if (fs::exists(path) && !fs::is_regular_file(path)) {
    fail_input("{} {}: that is not a regular file and would be replaced by one; allowed: a file name", flag, path);
  }
  if (::access(folder.c_str(), W_OK) != 0)
    fail_input("{} {}: the folder {} is not writable", flag, path, folder.string());
}

std::function<void()> declare_problem(Options& options, ProblemOptions& given) {
  const Allowed a_file = not_empty("a file name");
  options.option("--text", given.text, "File whose bytes are the tokens (default: the book's own text)").allow(a_file);
  const Option seq =
      options.option("--seq", given.seq, "Sequence length N").allow(whole_number<std::int64_t>(1)).show_default();
  const Option heads = options.option("--heads", given.heads, "Number of query heads H")
                           .allow(whole_number<std::int64_t>(1))
                           .show_default();
  const Option queries =
      options.option("--queries", given.queries, "Number of queries, the last rows of the sequence (default: all)")
          .allow(whole_number<std::int64_t>(1));
  const Option kv_heads =
      options.option("--kv-heads", given.kv_heads, "Number of K/V heads, a divisor of H (default: H)")
          .allow(whole_number<std::int64_t>(1));
  const Option head_dim = options.option("--head-dim", given.head_dim, "Head dimension d: 32, 64 or 128")
                              .allow(one_of({"32", "64", "128"}, "32, 64 or 128"))
                              .show_default();
  const auto mask = std::make_shared<std::string>("none");
  constexpr const char* about_mask =
      "Mask; window=LEFT,RIGHT keeps LEFT keys before and RIGHT keys after each query's own position; cache=N,N,… has "
      "the number of keys of each request, and pages=SIZE,SEED puts them in pages of SIZE keys, in an order by SEED";
  options.option("--mask", *mask, about_mask).allow(a_mask()).show_default();
  const auto softcap = std::make_shared<double>(0);
  options.option("--softcap", *softcap, "Replace each score s by C·tanh(s/C)").allow(number(1e-3, 1e3, softcap_text));
  const auto alibi = std::make_shared<bool>(false);
  options.flag("--alibi", *alibi, "ALiBi: subtract 2^(-8(h + 1)/H) times the distance from each score of head h");
  options
      .option("--sink", given.sink,
              "Attention sinks: one logit per head, added to the softmax's denominator only; .npy, (H)")
      .allow(a_file);
  const auto lengths = std::make_shared<std::vector<std::int64_t>>();
  options.option("--lengths", *lengths, "Lengths of packed sequences, which add up to N")
      .separated_by(',')
      .allow(whole_number<std::int64_t>(0, longest_length));
  const auto causal = std::make_shared<bool>(false);
  options.flag("--causal", *causal, "Causal mask, aligned at the bottom right; same as --mask causal")
      .excludes({"--mask"});
  const Option scale = options.option("--scale", given.scale, "Scale of QKᵀ (default: 1/√d)")
                           .allow(number(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                                         "a positive number that a float can hold"));
  options.option("--seed", given.seed, "Seed for the embedding").allow(whole_number<std::uint64_t>(0)).show_default();
  options.option("--q", given.q, "Q as .npy, (B, H, Nq, d) or (H, Nq, d)").allow(a_file);
  options.option("--k", given.k, "K as .npy").allow(a_file);
  options.option("--v", given.v, "V as .npy").allow(a_file);
  return [&given, seq, queries, heads, kv_heads, head_dim, scale, mask, causal, softcap, alibi, lengths] {
    given.mask = *causal ? Mask(Mask::causal) : mask_of(*mask).value();
    if (*softcap > 0 && given.mask.softcap > 0) fail_input("--softcap {:g}: allowed: here or in --mask", *softcap);
    if (*softcap > 0) given.mask.softcap = float(*softcap);
    if (!lengths->empty() && (given.mask.kind == Mask::documents || !given.mask.lengths.empty()))
      fail_input("--lengths: not allowed with --mask {}, which has its own lengths; allowed: another --mask", *mask);
    if (!lengths->empty()) given.mask.lengths = *lengths;
    check(given.mask);  // before the sum of the lengths is used
    if (!given.mask.lengths.empty() && !seq.given()) given.seq = given.mask.rows();
    if (!given.sink.empty()) given.mask.sink = {0};  // until the file is read
    given.shape_given = seq.given() || queries.given() || heads.given() || kv_heads.given() || head_dim.given();
    given.scale_given = scale.given(), given.mask.alibi |= *alibi;
  };
}

}  // namespace workbook::cli
