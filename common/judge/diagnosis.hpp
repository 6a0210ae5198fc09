// Naming the mistake: a wrong output is compared with what known mistakes would have given for the same inputs.
//
// It knows no mistake: chapters declare theirs (mistakes.hpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/tolerance.hpp"

namespace workbook::judge {

/// A known mistake, and the output that it gives (computed only when a test has failed).
struct Mistake {
  std::string id;        ///< "no-scale"; mutants name it. Two entries of a table may share it: two ways to make it
  std::string sentence;  ///< "the scores are not multiplied by the scale 1/√d"
  std::function<Tensor<double>()> output;
  double cost = 0;         ///< multiply-adds that output() takes, roughly
  bool may_spare = false;  ///< this output, where others show it: it is made in one of several kernels
};

struct Diagnosis {
  std::string id, sentence;       ///< the sentence goes on with ", or …" where `also` is not empty
  double difference = 0;          ///< largest difference between the output and the mistake's
  bool in_numbers = true;         ///< a number that is off agrees; else NaN alone shows it
  std::vector<std::string> also;  ///< ids of other mistakes that give these same numbers for this input
};

/// The mistake whose output agrees with `got` within a small multiple of the bounds, NaN and infinities in the same
/// places, and is itself clearly different from `expected`; the closest if several agree, and the first in the table
/// of those that agree equally. Empty if none does, or if `got` is within the bounds: then the message says so
/// honestly. Mistakes are tried in order until 2^32 multiply-adds are spent, about a second; one that would exceed that
/// is passed over.
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
/// The mistake in the first of them that is wrong and holds numbers, if the others are what that mistake makes of them;
/// of several that are, the first in the table. From a tensor that is nothing but NaN nothing is concluded, since many
/// mistakes end so; unless all others are right, and of the known mistakes only one does that.
std::optional<Diagnosis> diagnose(const std::vector<Answered>& answer);

}  // namespace workbook::judge
