// The calls that a test has made and which of their outputs were right: the facts for conclusions (localize.hpp). One
// codec converts them to JSON and back.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace workbook::judge {

/// The positions of the wrong elements along one axis of a tensor: from `first` to `last`. If `period` is not 0, only
/// low to high of every `period` in that range.
struct AxisFinding {
  std::string axis;  ///< "row", "column"
  std::int64_t size = 0, first = 0, last = 0;
  bool dense = false;  ///< every index from first to last has a wrong element
  std::int64_t period = 0, low = 0, high = 0;

  bool everywhere() const { return period == 0 && first == 0 && last == size - 1; }
  bool tail() const { return period == 0 && dense && first > 0 && last == size - 1 && first < last; }
  std::string plural() const { return axis == "batch" ? "batches" : axis == "query" ? "queries" : axis + "s"; }
  /// "columns 8 to 15 of every 16", "rows 16 to 31 of each warp"
  std::string repetition(std::int64_t rows_per_warp) const;
  friend bool operator==(const AxisFinding&, const AxisFinding&) = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AxisFinding, axis, size, first, last, dense, period, low, high)

/// The comparison of one tensor of an answer with the expected values.
struct TensorFinding {
  std::string tensor;  ///< "O", "lse", "m"
  bool right = true;
  std::int64_t elements = 0, off = 0;  ///< if `off` is 0 and `right` is false, only the rms error exceeds its bound
  std::int64_t nan = 0;                ///< wrong elements that were computed as NaN
  std::int64_t unwritten = 0;          ///< wrong elements that still hold the initial value of outputs
  std::int64_t rows_per_warp = 0;      ///< 0: unknown
  /// The wrong elements are right except for a factor. "row": one factor per row. "columns 0 to 3 of every 8": one for
  /// these columns of a row and one for the next four. Empty if that does not hold.
  std::string scaled_together;
  std::string elsewhere;           ///< wrong elements with the values of another position; see elsewhere.hpp
  std::vector<AxisFinding> where;  ///< axes with a name and more than one index; empty if no element is wrong

  /// The axis of this name; null if there is none.
  const AxisFinding* along(const std::string& axis) const;
  friend bool operator==(const TensorFinding&, const TensorFinding&) = default;
};
// Records of earlier gradings lack fields that were added later.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TensorFinding, tensor, right, elements, off, nan, unwritten,
                                                rows_per_warp, scaled_together, elsewhere, where)

/// One call of the code under test.
struct Observation {
  std::map<std::string, double> numbers;  ///< parameters of the call: "Nq", "d", "mask", "Br", …
  std::vector<TensorFinding> tensors;     ///< in the order of comparison
  bool reported = false;                  ///< the simulator has reported mistakes in a kernel
  /// If O and the LSE are wrong: whether O times exp(lse) is right, so that only l is wrong. Empty if this is unknown,
  /// for example with infinities.
  std::optional<bool> only_l_is_wrong;

  /// Whether the call has a report or a comparison.
  bool judged() const { return reported || !tensors.empty(); }
  bool wrong() const;
  friend bool operator==(const Observation&, const Observation&) = default;
};

nlohmann::json to_json(const Observation& observation);
Observation observation_from_json(const nlohmann::json& json);

/// Converts a number to JSON and back: non-finite ones as "nan", "inf", "-inf", a missing one as null.
nlohmann::json number_json(std::optional<double> value);
double number_from_json(const nlohmann::json& json);

}  // namespace workbook::judge
