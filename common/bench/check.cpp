#include "common/bench/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <vector>

#include "common/attention/element.hpp"
#include "common/attention/oracle.hpp"
#include "common/attention/tensors.hpp"
#include "common/attention/tolerance.hpp"
#include "common/judge/compare.hpp"
#include "common/worker/calls.hpp"

namespace workbook::bench {
namespace {

constexpr std::int64_t kCheckedRows = 16;

/// Decodes rows into a tensor (1, 1, rows, columns).
Tensor<float> tensor(const worker::Reply& reply, const std::string& name, Element element, std::int64_t columns) {
  Tensor<float> tensor;
  tensor.values = worker::floats(reply, name, element);
  tensor.sizes = {1, 1, std::int64_t(tensor.values.size()) / columns, columns};
  return tensor;
}
Tensor<double> doubled(const Tensor<float>& from) {
  Tensor<double> to(from.sizes);
  std::copy(from.values.begin(), from.values.end(), to.values.begin());
  return to;
}
template <class T>
Tensor<T> last_rows(const Tensor<T>& from, std::int64_t rows) {
  Tensor<T> to({1, 1, rows, from.sizes[3]});
  std::copy(from.values.end() - std::ptrdiff_t(to.values.size()), from.values.end(), to.values.begin());
  return to;
}

/// The number of last keys that the last queries can attend to: all N, or those of the last packed sequence, document
/// or request of a cache, which is a separate problem. The rest of the mask, restricted to these keys, is aligned to
/// the last query and key.
std::int64_t last_keys(const Shape& shape) {
  if (!shape.mask.cache.empty()) return shape.mask.cache.back();
  return shape.mask.lengths.empty() ? shape.N() : shape.mask.lengths.back();
}
Mask mask_of_last(const Shape& shape, std::int64_t keys) {
  Mask mask = shape.mask;
  mask.lengths.clear();
  mask.cache.clear();
  mask.page_size = 0;
  if (mask.kind == Mask::prefix) mask.left = std::max<std::int64_t>(0, mask.left - (shape.N() - keys));
  return mask;
}

/// Checks the last rows of O and the LSE; returns what is wrong, or an empty text.
std::string check_forward(const worker::Reply& reply, const Point& p) {
  Problem problem;
  const auto last_of = [&](const char* name, std::int64_t rows) {
    return last_rows(tensor(reply, name, p.element, p.shape.d()), rows);
  };
  const std::int64_t keys = last_keys(p.shape), rows = std::min(kCheckedRows, std::min(p.shape.Nq(), keys));
  problem.Q = last_of("Q", rows), problem.K = last_of("K", keys), problem.V = last_of("V", keys);
  problem.shape = {1, 1, 1, rows, keys, p.shape.d()};
  problem.scale = p.shape.scale;
  problem.mask = mask_of_last(p.shape, keys);
  problem = rounded_to(std::move(problem), p.element);  // no effect, except for a stage that rounds its inputs
  const Forward oracle = forward_oracle(problem);
  judge::Layout layout;
  layout.tensor = "O";
  const Precision precision = precision_of(p.element);
  const auto O = judge::compare(last_of("O", rows), oracle.O, output_bounds(oracle, problem, precision), layout);
  if (!O.close) return "the last rows of O are wrong:\n" + O.text;
  const std::vector<float> all_lse = reply.output<float>("lse");
  Tensor<float> got({1, 1, rows, 1});
  std::copy(all_lse.end() - rows, all_lse.end(), got.values.begin());
  layout.tensor = "lse";
  layout.axes[3] = "";
  const auto lse = judge::compare(got, oracle.lse, lse_bounds(oracle, problem, precision), layout);
  return lse.close ? "" : "the last entries of the LSE are wrong:\n" + lse.text;
}

/// ‖got − expected‖ / ‖expected‖.
double relative_error(const Tensor<float>& got, const Tensor<double>& expected) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    off += std::pow(double(got.values[i]) - expected.values[i], 2);
    size += std::pow(expected.values[i], 2);
  }
  return std::sqrt(off / size);
}

/// Checks the last rows of dQ, dK and dV, given the O and the LSE that they were computed from.
std::string check_backward(const worker::Reply& reply, const Point& p) {
  const std::int64_t d = p.shape.d(), group = p.shape.H() / p.shape.Hkv(), N = last_keys(p.shape);
  const std::int64_t Nq = p.shape.mask.lengths.empty() ? p.shape.Nq() : N;
  const auto of_group = [&](auto tensor) {  // (1, G, Nq, columns)
    tensor = last_rows(tensor, group * Nq);
    tensor.sizes = {1, group, Nq, tensor.sizes[3]};
    return tensor;
  };
  const Tensor<float> Q = of_group(tensor(reply, "Q", p.element, d)),
                      K = last_rows(tensor(reply, "K", p.element, d), N),
                      V = last_rows(tensor(reply, "V", p.element, d), N);
  const Tensor<double> O = of_group(doubled(tensor(reply, "O", p.element, d))),
                       dO = of_group(doubled(tensor(reply, "dO", p.element, d)));
  Tensor<double> lse({1, group, Nq, 1});
  const std::vector<float> lse_values = reply.output<float>("lse");
  std::copy(lse_values.end() - std::ptrdiff_t(lse.values.size()), lse_values.end(), lse.values.begin());
  const std::int64_t queries_rows = std::min(kCheckedRows, Nq), keys_rows = std::min(kCheckedRows, N);
  const Tensor<float> dQ = last_rows(tensor(reply, "dQ", p.element, d), queries_rows),
                      dK = last_rows(tensor(reply, "dK", p.element, d), keys_rows),
                      dV = last_rows(tensor(reply, "dV", p.element, d), keys_rows);
  const float scale = p.shape.scale;
  // dQ of a head's last queries needs all keys. dK and dV of the last keys need all queries of the heads that share
  // these keys. Masks are aligned to the last query and the last key, so both are separate attention problems.
  const Problem queries{
      {{1, 1, 1, queries_rows, N, d}, scale, mask_of_last(p.shape, N)}, last_rows(Q, queries_rows), K, V};
  // ALiBi slopes depend on H. With ALiBi, the heads before the group are therefore included, with a dO of 0.
  const std::int64_t heads = p.shape.mask.alibi && group > 1 ? p.shape.H() : group;
  const auto after_other_heads = [&]<class T>(const Tensor<T>& last) {
    Tensor<T> all({1, heads, Nq, last.sizes[3]});
    std::copy(last.values.begin(), last.values.end(), all.values.end() - std::ptrdiff_t(last.values.size()));
    return all;
  };
  const Problem keys{{{1, heads, 1, Nq, keys_rows, d}, scale, mask_of_last(p.shape, keys_rows)},
                     after_other_heads(Q),
                     last_rows(K, keys_rows),
                     last_rows(V, keys_rows)};
  const Gradients of_queries = backward_oracle(queries, last_rows(dO, queries_rows),
                                               Saved{last_rows(O, queries_rows), last_rows(lse, queries_rows)});
  const Gradients of_keys =
      backward_oracle(keys, after_other_heads(dO), Saved{after_other_heads(O), after_other_heads(lse)});
  // P, dS and the result are rounded to the element, and tensor cores truncate sums: each by at most one unit roundoff,
  // relative to terms of independent sign.
  const double allowed = 4 * precision_of(p.element).output;
  const std::vector<std::tuple<const char*, Tensor<float>, const Tensor<double>*>> all{
      {"dQ", dQ, &of_queries.dQ}, {"dK", dK, &of_keys.dK}, {"dV", dV, &of_keys.dV}};
  for (const auto& [name, got, expected] : all) {
    const double error = relative_error(got, *expected);
    if (!(error <= allowed)) {
      return fmt::format("the last rows of {} are wrong: relative error {:.2g}, allowed {:.2g}", name, error, allowed);
    }
  }
  return "";
}

}  // namespace

void add_checked_outputs(worker::Call& call, const Shape& s) {
  call.number("rows", double(kCheckedRows));
  const bool backward = s.pass == "backward";
  const workbook::Shape shape = s.shape;
  for (const CallTensor& tensor : tensors_of(backward)) {
    const auto count = std::size_t(rows_to_check(tensor, backward, shape, kCheckedRows) * tensor.columns(shape));
    if (tensor.kind == CallTensor::of_rows)
      call.output<float>(tensor.name, count);
    else
      call.output<std::uint16_t>(tensor.name, count);
  }
}

std::string what_is_wrong(const worker::Reply& reply, const Point& p) {
  return p.shape.pass == "backward" ? check_backward(reply, p) : check_forward(reply, p);
}

}  // namespace workbook::bench
