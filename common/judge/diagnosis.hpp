// Diagnoses a mistake: compares a wrong output with the outputs that known mistakes give for the same inputs.
//
// Chapters declare their mistakes (mistakes.hpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/tolerance.hpp"

namespace workbook::judge {

/// A known mistake and its output, which is computed only after a test has failed.
struct Mistake {
  std::string id;        ///< "no-scale"; mutants refer to it. Variants of one mistake may share it
  std::string sentence;  ///< "the scores are not multiplied by the scale 1/√d"
  std::function<Tensor<double>()> output;
  double cost = 0;         ///< approximate number of multiply-adds of output()
  bool may_spare = false;  ///< may leave this tensor right: it is made in one of several kernels
};

struct Diagnosis {
  std::string id, sentence;       ///< the sentence continues with ", or …" where `also` is not empty
  double difference = 0;          ///< largest difference between the output and the mistake's
  bool in_numbers = true;         ///< a wrong number agrees; otherwise only NaN does
  std::vector<std::string> also;  ///< ids of other mistakes that give the same values for this input
};

/// The mistake whose output agrees with `got` within a small multiple of the bounds, has NaN and infinities in the same
/// elements, and clearly differs from `expected`. If several agree, the closest one; if they agree equally well, the
/// first in the table. Empty if none agrees or if `got` is within the bounds. Mistakes are tried in order within a
/// budget of 2^32 multiply-adds, about one second. A mistake that would exceed the budget is skipped.
std::optional<Diagnosis> diagnose(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                                  const std::vector<Mistake>& mistakes);

/// One tensor of an answer that has several.
struct Answered {
  const Tensor<float>* got;
  const Tensor<double>* expected;
  const Bounds* bounds;
  const std::vector<Mistake>* mistakes;
  bool right;  ///< within the bounds
};
/// The mistake in the first wrong tensor that contains numbers, if the other tensors are consistent with it. If several
/// mistakes fit, the first in the table. A tensor of NaN alone allows no conclusion, since many mistakes produce it.
/// The exception: all other tensors are right, and exactly one known mistake gives that result.
std::optional<Diagnosis> diagnose(const std::vector<Answered>& answer);

}  // namespace workbook::judge
