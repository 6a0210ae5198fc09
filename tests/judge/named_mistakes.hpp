// Common code for tests of tables of known mistakes: a case, and a check that each mistake that it exposes is named.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/judge/diagnosis.hpp"

namespace workbook::judge {

/// A deterministic number in [-1, 1] for element i.
inline double noise(std::size_t i) {
  return double((i * 2654435761U + 12345) % 2001) / 1000 - 1;
}

inline Tensor<float> to_float(const Tensor<double>& tensor) {
  Tensor<float> result(tensor.sizes);
  std::transform(tensor.values.begin(), tensor.values.end(), result.values.begin(), [](double x) { return float(x); });
  return result;
}

/// The same mistakes, each computed once.
inline std::vector<Mistake> remembered(std::vector<Mistake> mistakes) {
  for (Mistake& mistake : mistakes) {
    const auto output = std::make_shared<const Tensor<double>>(mistake.output());
    mistake.output = [output] { return *output; };
  }
  return mistakes;
}

/// The expected output, its bounds, and the known mistakes.
struct Case {
  std::string name;
  Tensor<double> expected;
  Bounds bounds;
  std::vector<Mistake> mistakes;

  std::optional<Diagnosis> diagnose(const Tensor<float>& got) const {
    return judge::diagnose(got, expected, bounds, mistakes);
  }
  std::string id(const Tensor<float>& got) const {
    const auto diagnosis = diagnose(got);
    return diagnosis ? diagnosis->id : "none";
  }
  bool exposes(const Tensor<double>& output) const {
    double squares = 0;
    for (std::size_t i = 0; i < output.values.size(); ++i) {
      const double x = output.values[i], y = expected.values[i];
      if (std::isfinite(x) != std::isfinite(y) || std::isnan(x) != std::isnan(y)) return true;
      if (!std::isfinite(x)) {
        if (x != y) return true;
        continue;
      }
      if (std::abs(x - y) > bounds.element.values[i]) return true;
      squares += (x - y) * (x - y);
    }
    return std::sqrt(squares / double(output.values.size())) > bounds.rms;
  }
};

inline Tensor<double> to_double(const Tensor<float>& tensor) {
  Tensor<double> result(tensor.sizes);
  std::copy(tensor.values.begin(), tensor.values.end(), result.values.begin());
  return result;
}

/// Every mistake that a case exposes must be named, first or among those that give the same numbers. Returns the ids
/// that were named first.
inline std::set<std::string> check_case(Case test_case) {
  test_case.mistakes = remembered(std::move(test_case.mistakes));
  std::set<std::string> named;
  for (const Mistake& mistake : test_case.mistakes) {
    // The reader's own rounding errors.
    Tensor<float> got = to_float(mistake.output());
    for (std::size_t i = 0; i < got.values.size(); ++i)
      if (std::abs(got.values[i]) < 1e30F) got.values[i] *= float(1 + 2e-7 * noise(i));
    const auto diagnosis = test_case.diagnose(got);
    INFO(test_case.name << ", mistake " << mistake.id << ": " << mistake.sentence);
    if (!test_case.exposes(to_double(got))) {
      CHECK_FALSE(diagnosis);
      continue;
    }
    CHECK(diagnosis);
    if (!diagnosis) continue;
    INFO("named " << diagnosis->id);
    CHECK((diagnosis->id == mistake.id || std::ranges::count(diagnosis->also, mistake.id) == 1));
    named.insert(diagnosis->id);
  }
  return named;
}

/// Each id of the table must be named first by some case, except those that always share their numbers with another.
inline void check_all_named(const std::vector<Case>& cases, const std::set<std::string>& always_shared) {
  std::set<std::string> ids, named;
  for (const Case& test_case : cases) {
    for (const Mistake& mistake : test_case.mistakes) ids.insert(mistake.id);
    named.merge(check_case(test_case));
  }
  for (const std::string& id : ids) {
    INFO(id);
    CHECK(named.contains(id) != always_shared.contains(id));
  }
}

}  // namespace workbook::judge
