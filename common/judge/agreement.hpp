// Compares an answer with the book's and with a wrong solution's, all three for the same call: are the wrong values
// those of the wrong solution? An answer is what a call returned: its output arrays and its counters, or the
// simulator's reports instead.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/simt/report.hpp"

namespace workbook::judge {

/// An output array as numbers.
struct Output {
  std::vector<double> values;
  double precision = 0;  ///< relative size of differences that rounding may cause; 0: integers
};
struct Answer {
  std::map<std::string, Output> outputs;
  std::map<std::string, double> counters;
  std::vector<simt::Report> reports = {};
};

/// What one call says about a wrong solution.
struct Agreement {
  enum Verdict {
    contradicts,  ///< the values are not those of the wrong solution
    neutral,      ///< the call does not show the wrong solution's mistake
    agrees        ///< the values are wrong, and those of the wrong solution
  } verdict = neutral;
  bool of_counters = false;     ///< all values are right, and the counters are those of the wrong solution
  bool of_reports = false;      ///< the reports are those of the wrong solution
  std::size_t wrong = 0;        ///< elements, or counters, in which the wrong solution differs from the book's
  std::size_t wrong_reals = 0;  ///< those of them that are not NaN
  double largest = 0;           ///< largest difference between the answer and the wrong solution's
  double rms = 0;               ///< that difference in the root mean square, relative to the wrong solution's own error
};

/// `got` is the answer under test. Without reports, the three have the same output arrays of the same sizes
/// (std::logic_error).
///
/// The values agree if NaN, infinities and unwritten elements are the same, if every element is close to the wrong
/// solution's within a small multiple of the precision, and if the whole array is ten times closer to the wrong
/// solution than the wrong solution is to the book's. The last condition separates mistakes that hardly exceed what
/// rounding explains from answers that are only slightly wrong.
///
/// Reports agree if they are the same but for source lines, advice and their order.
Agreement agreement(const Answer& got, const Answer& books, const Answer& wrong);

/// What the calls of one test say about a wrong solution that none of them contradicts.
struct Evidence {
  int version = 0;  ///< of the program of wrong solutions
  std::size_t wrong = 0, wrong_reals = 0;
  double largest = 0, rms = 0;
  bool of_counters = true;  ///< all evidence is
  bool of_reports = false;  ///< some evidence is

  void add(const Agreement& call);
  void add(const Evidence& other);
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Evidence, version, wrong, wrong_reals, largest, rms, of_counters, of_reports)

}  // namespace workbook::judge
