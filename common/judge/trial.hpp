// What a test has tried, and what was right of it and what was not: the facts that conclusions are drawn from
// (narrow.hpp). One codec to JSON and back.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace workbook::judge {

/// Where along one axis of a tensor the elements lie that are off: between first and last, and there, if `period` is
/// not 0, only at low to high of every `period`. Empty of elements: nothing is off.
struct AxisFinding {
  std::string axis;  ///< "row", "column"
  std::int64_t size = 0, first = 0, last = 0;
  bool dense = false;  ///< every index from first to last has one
  std::int64_t period = 0, low = 0, high = 0;

  bool everywhere() const { return period == 0 && first == 0 && last == size - 1; }
  bool tail() const { return period == 0 && dense && first > 0 && last == size - 1 && first < last; }
  std::string plural() const { return axis == "batch" ? "batches" : axis == "query" ? "queries" : axis + "s"; }
  /// "columns 8 to 15 of every 16", "rows 16 to 31 of each warp"
  std::string repetition(std::int64_t rows_per_warp) const;
  friend bool operator==(const AxisFinding&, const AxisFinding&) = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AxisFinding, axis, size, first, last, dense, period, low, high)

/// One tensor of an answer, compared with what is expected.
struct TensorFinding {
  std::string tensor;  ///< "O", "lse", "m"
  bool right = true;
  std::int64_t elements = 0, off = 0;  ///< none off and not right: each is within its bound, together they are not
  std::int64_t nan = 0;                ///< of those that are off: computed as NaN
  std::int64_t unwritten = 0;          ///< of those that are off: still what outputs hold before the call
  std::int64_t rows_per_warp = 0;      ///< 0: not known
  /// What is off is what it should be but for a factor: "row", one for each row; "columns 0 to 3 of every 8", one for
  /// these columns of a row, one for the next four. Empty where that is not so.
  std::string scaled_together;
  std::string elsewhere;           ///< what is off and right in another place; see elsewhere.hpp
  std::vector<AxisFinding> where;  ///< its axes that have a name and more than one index; empty where nothing is off

  /// The axis of this name; null if there is none.
  const AxisFinding* along(const std::string& axis) const;
  friend bool operator==(const TensorFinding&, const TensorFinding&) = default;
};
// Records of earlier gradings lack what came later.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TensorFinding, tensor, right, elements, off, nan, unwritten,
                                                rows_per_warp, scaled_together, elsewhere, where)

/// One call of the code under test.
struct Trial {
  std::map<std::string, double> numbers;  ///< of the call: "Nq", "d", "mask", "Br", …
  std::vector<TensorFinding> tensors;     ///< in the order in which they were compared
  bool reported = false;                  ///< the simulator found mistakes in a kernel
  /// Where O and the LSE are wrong: whether O times exp(lse) is right, so that l alone is not. Nothing where it cannot
  /// be told, as from infinities.
  std::optional<bool> only_l_is_wrong;

  /// Something was found out about it.
  bool judged() const { return reported || !tensors.empty(); }
  bool wrong() const;
  friend bool operator==(const Trial&, const Trial&) = default;
};

nlohmann::json to_json(const Trial& trial);
Trial trial_from_json(const nlohmann::json& json);

/// A number for JSON: non-finite ones as "nan", "inf", "-inf", absent as null; and back.
nlohmann::json number_json(std::optional<double> value);
double number_from_json(const nlohmann::json& json);

}  // namespace workbook::judge
