// Checks of a measurement's gradients if heads share K and V and each query head has an ALiBi slope.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <vector>

#include "common/attention/element.hpp"
#include "common/attention/inputs.hpp"
#include "common/attention/oracle.hpp"
#include "common/attention/tensors.hpp"
#include "common/bench/check.hpp"
#include "common/worker/calls.hpp"

using namespace workbook;

namespace {

/// Adds the last elements of a tensor to a reply, as many as the check of this shape needs.
void give_back(worker::Reply& reply, const CallTensor& tensor, const Shape& shape, const std::vector<float>& values) {
  const auto count = std::size_t(rows_to_check(tensor, true, shape, 16) * tensor.columns(shape));
  const std::vector<float> last(values.end() - std::ptrdiff_t(count), values.end());
  const auto put = [&](const auto& numbers) {
    auto& bytes = reply.outputs[tensor.name];
    bytes.resize(numbers.size() * sizeof numbers[0]);
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
  };
  if (tensor.kind == CallTensor::of_rows) return put(last);
  put(to_codes(last, float16));
}

}  // namespace

TEST_CASE("gradients of heads that share K and V are checked with the slopes of their own heads of Q") {
  bench::Point point;
  point.shape = {{{1, 8, 2, 48, 64, 64}, 0.125f, Mask::causal}, "backward"};
  for (const bool alibi : {false, true}) {
    point.shape.mask.alibi = alibi;
    Problem problem = make_input("normal", {point.shape.shape, point.shape.mask, 0, 1});
    problem.scale = point.shape.scale;
    Tensor<float> dO(problem.Q.sizes);
    dO.values = normal_values(dO.values.size(), 2);
    const worker::BackwardProblem given = worker::backward_problem(problem, dO, float16);
    const Gradients right = backward_oracle(given.problem, given.dO, given.saved);
    const auto floats = [](const auto& tensor) {
      return std::vector<float>(tensor.values.begin(), tensor.values.end());
    };
    const std::vector<float> tensors[] = {floats(given.problem.Q), floats(given.problem.K), floats(given.problem.V),
                                          floats(given.saved.O),   floats(given.dO),        floats(given.saved.lse),
                                          floats(right.dQ),        floats(right.dK),        floats(right.dV)};
    worker::Reply reply;
    for (std::size_t i = 0; i < backward_tensors.size(); ++i)
      give_back(reply, backward_tensors[i], point.shape.shape, tensors[i]);
    CHECK(bench::what_is_wrong(reply, point).empty());
    point.shape.mask.alibi = !alibi;
    CHECK(!bench::what_is_wrong(reply, point).empty());
  }
}
