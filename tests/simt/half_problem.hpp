// Attention problems in fp16 for the test kernels, and the comparison of results with the oracle.
#pragma once

#include <string>
#include <utility>

#include "common/attention/element.hpp"
#include "common/attention/inputs.hpp"
#include "common/attention/oracle.hpp"
#include "common/attention/tolerance.hpp"
#include "common/judge/compare.hpp"
#include "tests/simt/host_call.hpp"

namespace zoo {

/// The problem with Q, K and V rounded to fp16, so that the oracle and the kernel see the same numbers.
struct HalfProblem {
  workbook::Problem problem;
  HostCall call;

  HalfProblem(const std::string& kind, const workbook::Shape& shape, bool causal = false) {
    workbook::EncodedProblem in_fp16 = encoded(workbook::make_input(kind, {shape, causal, 0, 3}), workbook::float16);
    auto& [Q, K, V] = in_fp16.codes;
    problem = std::move(in_fp16.problem);
    call = {shape, problem.scale, causal, std::move(Q), std::move(K), std::move(V)};
  }

  /// Describes errors in O and the LSE; empty if there are none.
  std::string wrong(const HostResult& result) const {
    const workbook::Shape& s = problem.shape;
    const workbook::Forward oracle = forward_oracle(problem);
    workbook::Tensor<float> O({s.B, s.H, s.Nq, s.d}), lse({s.B, s.H, s.Nq, 1});
    O.values = workbook::from_codes(result.O, workbook::float16);
    lse.values = result.lse;
    const workbook::judge::Layout O_layout{.tensor = "O"},
        lse_layout{.tensor = "lse", .axes = {"batch", "head", "row", ""}};
    return compare(O, oracle.O, output_bounds(oracle, problem, workbook::float16_precision()), O_layout).text +
           compare(lse, oracle.lse, lse_bounds(oracle, problem, workbook::float16_precision()), lse_layout).text;
  }
};

}  // namespace zoo
