#include "common/judge/localize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "common/attention/mask.hpp"

namespace workbook::judge {
namespace {

using Names = std::set<std::string>;

bool failed(const Verdict& verdict) {
  return verdict.result == Result::failed || verdict.result == Result::crashed || verdict.result == Result::timed_out;
}

bool may_be(const Verdict& verdict, const std::string& id) {
  return verdict.cause && (verdict.cause->id == id || std::ranges::count(verdict.cause->also, id) > 0);
}

// ---- Causes ---------------------------------------------------------------------------------------------------------

/// The cause of this id from the test in which the fewest other mistakes look the same. The evidence of a hidden test
/// is omitted.
Cause clearest_cause(const std::vector<const Verdict*>& failures, const std::string& id) {
  const Verdict* best = nullptr;
  for (const Verdict* verdict : failures) {
    if (!verdict->cause || verdict->cause->id != id) continue;
    const auto rank = [](const Verdict& v) { return std::pair(v.hidden, v.cause->also.size()); };
    if (best == nullptr || rank(*verdict) < rank(*best)) best = verdict;
  }
  Cause cause = *best->cause;
  if (best->hidden) cause.measure.clear();
  return cause;
}

/// Whether the cause is a known wrong solution that gives the same values.
bool is_match(const Verdict& verdict) {
  return verdict.cause && !verdict.cause->measure.empty();
}
/// Whether it is the only known wrong solution that gives them.
bool is_one_match(const Verdict& verdict) {
  return is_match(verdict) && verdict.cause->also.empty();
}
/// Whether numbers are wrong or the simulator has reported a mistake.
bool is_wrong(const Verdict& verdict) {
  return verdict.result != Result::failed || std::ranges::any_of(verdict.observations, &Observation::wrong);
}

/// Whether the simulator's report may be a consequence of another mistake that is unknown: a deadlock, or a read of an
/// element that was never written.
bool may_follow(const Verdict& verdict) {
  using enum simt::Mistake;
  constexpr simt::Mistake following[] = {deadlock, uninitialised_shared, uninitialised_global};
  return !verdict.reports.empty() && !is_match(verdict) &&
         std::ranges::count(following, verdict.reports[0].mistake) > 0;
}

/// Whether the simulator's report may be a consequence of a wrong index.
bool is_of_an_index(const Verdict& verdict) {
  using enum simt::Mistake;
  constexpr simt::Mistake of_indices[] = {outside_global, outside_shared, outside_array, padding,
                                          misaligned,     never_written,  written_twice, unordered_streams};
  return !verdict.reports.empty() && std::ranges::count(of_indices, verdict.reports[0].mistake) > 0;
}
/// Whether the cause comes from a test that checks one property directly, rather than from a report or a comparison of
/// outputs.
bool was_checked_directly(const Verdict& verdict) {
  return verdict.reports.empty() && !is_match(verdict) && !verdict.cause->of_cost;
}
/// Whether a test in which the simulator reports nothing may show the wrong index that others report.
bool shows_an_index(const Verdict& verdict) {
  return verdict.reports.empty() && !verdict.cause->of_cost && (!is_match(verdict) || is_one_match(verdict));
}

/// Whether the simulator's reports in one test include the first report of another test.
bool includes_report(const Verdict& verdict, const Verdict& other) {
  return !other.reports.empty() &&
         std::ranges::count(verdict.reports, other.reports[0].mistake, &simt::Report::mistake) > 0;
}

/// A single wrong solution that gives the reader's values says more than a property that they violate. One of several
/// that give them says less.
void drop_weaker(std::vector<Cause>& causes, const std::vector<const Verdict*>& failures) {
  const auto is = [&](const Cause& cause, bool (*holds)(const Verdict&)) {
    return std::ranges::any_of(failures, [&](const Verdict* verdict) {
      return verdict->cause && verdict->cause->id == cause.id && holds(*verdict);
    });
  };
  const auto any_is = [&](bool (*holds)(const Verdict&)) {
    return std::ranges::any_of(causes, [&](const Cause& cause) { return is(cause, holds); });
  };
  if (any_is(is_one_match)) {
    std::erase_if(causes, [&](const Cause& cause) { return is(cause, was_checked_directly); });
  } else if (any_is(was_checked_directly)) {
    std::erase_if(causes, [&](const Cause& cause) { return is(cause, is_match) && !cause.of_cost; });
  }
}

/// The cause that explains most failures, then the one that explains most of the remaining ones, and so on. Counters
/// are ignored where an answer is wrong, since they may be wrong for the same reason. Possible consequences of a known
/// cause are not listed beside it. A wrong index that a test shows takes precedence over the invalid access that the
/// index causes, and a single matching wrong solution over direct checks.
std::vector<Cause> ranked_causes(const std::vector<const Verdict*>& failures) {
  std::vector<Cause> causes;
  std::vector<const Verdict*> left = failures;
  const bool wrong = std::ranges::any_of(failures, [](const Verdict* verdict) { return is_wrong(*verdict); });
  std::erase_if(left, [&](const Verdict* verdict) { return !verdict->cause || (wrong && verdict->cause->of_cost); });
  if (!std::ranges::all_of(left, [](const Verdict* verdict) { return may_follow(*verdict); }))
    std::erase_if(left, [](const Verdict* verdict) { return may_follow(*verdict); });
  while (!left.empty()) {
    const auto explains = [&](const Verdict* named) {
      const auto count = std::ranges::count_if(left, [&](const Verdict* v) { return may_be(*v, named->cause->id); });
      return std::pair(count, !named->reports.empty());  // a report is stronger evidence than numbers
    };
    const Verdict* named = *std::ranges::max_element(left, {}, explains);
    if (is_of_an_index(*named)) {
      const auto direct = std::ranges::find_if(left, [](const Verdict* verdict) { return shows_an_index(*verdict); });
      if (direct != left.end()) named = *direct;
    }
    const std::string id = named->cause->id;
    causes.push_back(clearest_cause(failures, id));
    // If the simulator reports both in one test, the second follows from the first. Numbers computed after a reported
    // mistake may match any known mistake.
    const bool was_reported = !named->reports.empty();
    std::erase_if(left, [&](const Verdict* verdict) {
      return may_be(*verdict, id) || includes_report(*verdict, *named) || includes_report(*named, *verdict) ||
             (was_reported && is_match(*verdict)) || (is_one_match(*named) && is_of_an_index(*verdict));
    });
  }
  drop_weaker(causes, failures);
  return causes;
}

/// A wrong counter. It is no cause where numbers are wrong, but a fact where nothing else is known.
std::optional<std::string> counted(const std::vector<const Verdict*>& failures) {
  for (const Verdict* verdict : failures) {
    if (!verdict->hidden && verdict->cause && verdict->cause->of_cost)
      return "the counters are wrong too, possibly for the same reason: " + verdict->cause->sentence;
  }
  return {};
}

// ---- What is right and what is wrong --------------------------------------------------------------------------------

std::string called(const std::string& tensor) {
  return tensor == "lse" ? "the LSE" : tensor;
}
std::string called(const Names& tensors) {
  std::string text;
  for (auto each = tensors.begin(); each != tensors.end(); ++each) {
    if (each != tensors.begin()) text += std::next(each) == tensors.end() ? " and " : ", ";
    text += called(*each);
  }
  return text + (tensors.size() == 1 ? " is" : " are");
}
const char* pronoun(const Names& tensors) {
  return tensors.size() == 1 ? "it is" : "they are";
}

/// The conclusion where some tensors are right and others wrong. The first matching line applies.
struct Consequence {
  Names right, wrong;  ///< all of `right` are right; every wrong tensor is among `wrong`
  const char* text;
};
const Consequence consequences[] = {
    {{"lse"}, {"O"}, "m and l are right; check what affects O alone, from the PV matmul to the store"},
    {{"lse"}, {"P"}, "m and l are right; check what P is divided by, and when"},
    {{"O"}, {"lse"}, "m and l are right for O; check the line that computes the LSE from them"},
    {{"P"}, {"lse"}, "m and l are right for P; check the line that computes the LSE from them"},
    {{"m", "l"}, {"O"}, "check every statement that changes O"},
    {{"m"}, {"l"}, "check the factor that rescales l, and the sum that is added to it"},
    {{"m"}, {"l", "O"}, "check the factors that rescale l and O"},
    {{"dQ", "dK"}, {"dV"}, "P is right; check what affects dV alone"},
    {{"dV", "dK"}, {"dQ"}, "check what affects dQ alone"},
    {{"dV", "dQ"}, {"dK"}, "check what affects dK alone"},
    {{"dV"}, {"dQ", "dK"}, "P is right; check dP, D and dS"},
};

std::optional<std::string> right_and_wrong(const std::vector<const Observation*>& wrong_observations) {
  Names right, wrong;
  for (const Observation* observation : wrong_observations)
    for (const TensorFinding& tensor : observation->tensors) (tensor.right ? right : wrong).insert(tensor.tensor);
  for (const std::string& tensor : wrong) right.erase(tensor);
  if (wrong.empty()) return {};
  const auto l_is = [&](bool alone) {
    return std::ranges::any_of(wrong_observations,
                               [&](const Observation* observation) { return observation->only_l_is_wrong == alone; });
  };
  const bool l_alone = wrong.contains("O") && wrong.contains("lse") && l_is(true) && !l_is(false);
  if (l_alone) return "O and the LSE are wrong, but O times l is right: only l is wrong, not m, P or the PV matmul";
  if (right.empty() || wrong_observations.size() < 2) return {};  // one call may be right by coincidence
  std::string text = fmt::format("{} right, {} wrong", called(right), called(wrong));
  for (const Consequence& each : consequences) {
    if (std::ranges::includes(right, each.right) && std::ranges::includes(each.wrong, wrong))
      return text + ": " + each.text;
  }
  return text;
}

/// Whether every wrong element still holds the initial value of outputs. Then no computed value was observed, and only
/// the simulator's reports and tests that compare no tensors are evidence of a cause.
bool nothing_written(const std::vector<const Observation*>& wrong_observations) {
  std::int64_t off = 0, unwritten = 0;
  for (const Observation* observation : wrong_observations)
    for (const TensorFinding& tensor : observation->tensors) off += tensor.off, unwritten += tensor.unwritten;
  return off > 0 && unwritten == off;
}

std::optional<std::string> not_a_number(const std::vector<const Observation*>& wrong_observations) {
  std::int64_t off = 0, nan = 0, unwritten = 0, elements = 0;
  Names tensors;
  for (const Observation* observation : wrong_observations) {
    for (const TensorFinding& tensor : observation->tensors) {
      off += tensor.off, nan += tensor.nan, unwritten += tensor.unwritten;
      if (!tensor.right) tensors.insert(tensor.tensor), elements += tensor.elements;
    }
  }
  if (off == 0 || nan + unwritten < off) return {};
  if (unwritten == off)
    return fmt::format("{} wrong only where your code writes nothing, or only accumulates into the initial value",
                       called(tensors));
  if (nan < off) return {};
  if (nan == elements && (tensors.contains("O") || tensors.contains("lse")))  // a backward pass has no m and no l
    return fmt::format(
        "{} NaN everywhere in these calls, from a computation: −∞ − (−∞), 0 · ∞, ∞ / ∞ or 0 / 0. If other inputs give "
        "NaN too, check the state before the first tile, where m is −∞ and l is 0. If m stays −∞, S − m is ∞. "
        "exp(m_old − m_new) must be 0 there; exp(m_new − m_old) is ∞, and ∞ · 0 is NaN, as −∞ − (−∞) is",
        called(tensors));
  return fmt::format("{} wrong only where {} NaN, from a computation: −∞ − (−∞), 0 · ∞, ∞ / ∞ or 0 / 0",
                     called(tensors), pronoun(tensors));
}

/// Tensors that are right except for factors, each of which applies to a row or to some columns of a row.
std::vector<std::string> scaled_rows(const std::vector<const Observation*>& wrong_observations) {
  std::map<std::string, Names> found;  // by tensor
  for (const Observation* observation : wrong_observations)
    for (const TensorFinding& tensor : observation->tensors)
      if (!tensor.right) found[tensor.tensor].insert(tensor.scaled_together);
  std::vector<std::string> facts;
  for (auto& [tensor, together] : found) {
    if (together.contains("")) continue;
    if (together.size() > 1) together.erase("row");  // a row whose columns share one factor is a special case
    if (together == Names{"row"})
      facts.push_back(fmt::format(
          "each row of {} is right except for a factor: check what rows are multiplied or divided by", called(tensor)));
    else
      facts.push_back(
          fmt::format("{} is right except for factors, and {} of a row have a different factor than the columns after "
                      "them: every element of a row must be multiplied and divided by the same numbers",
                      called(tensor), *together.begin()));
  }
  return facts;
}

/// Values of a tensor that are right but stored at a wrong position. Reported if at least half of the calls show it.
std::vector<std::string> misplaced_values(const std::vector<const Observation*>& wrong_observations) {
  std::map<std::string, std::vector<std::string>> found;
  for (const Observation* observation : wrong_observations)
    for (const TensorFinding& tensor : observation->tensors)
      if (!tensor.right) found[tensor.tensor].push_back(tensor.elsewhere);
  std::vector<std::string> facts;
  for (const auto& [tensor, texts] : found) {
    const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
    if (first != texts.end() && 2 * std::ranges::count(texts, std::string()) <= std::ssize(texts))
      facts.push_back(fmt::format("values of {} are right but stored at the wrong position: {}", tensor, *first));
  }
  return facts;
}

// ---- Which calls are wrong ------------------------------------------------------------------------------------------

using Numbers = std::map<std::string, double>;

/// A property of calls. Empty where it does not apply to a call.
struct Condition {
  std::string text;  ///< "if Nk is not a multiple of Bc"
  std::function<std::optional<bool>(const Numbers&)> holds;
  std::vector<std::string> names;  ///< the numbers of the call on which it depends
  bool of_launch = false;          ///< depends only on tile sizes and launch configuration
};

Condition condition(const std::string& text, const std::string& a, const std::string& b,
                    bool (*holds)(double a, double b)) {
  return {text,
          [=](const Numbers& numbers) -> std::optional<bool> {
            const auto x = numbers.find(a), y = numbers.find(b);
            if (x == numbers.end() || y == numbers.end()) return {};
            return holds(x->second, y->second);
          },
          {a, b}};
}

bool more(double whole, double part) {
  return part > 0 && whole > part;
}
bool not_a_multiple(double whole, double part) {
  return part > 0 && std::int64_t(whole) % std::int64_t(part) != 0;
}

std::vector<Condition> conditions_on_sizes() {
  std::vector<Condition> conditions{
      condition("from the second K/V tile on (Nk > Bc)", "Nk", "Bc", more),
      condition("from the second block of scores on (n > block)", "n", "block", more),
      condition("if Nk is not a multiple of Bc", "Nk", "Bc", not_a_multiple),
      condition("if the last block of scores is short", "n", "block", not_a_multiple),
      condition("if there is more than one Q tile (Nq > Br)", "Nq", "Br", more),
      condition("if Nq is not a multiple of Br", "Nq", "Br", not_a_multiple),
      condition("without a mask", "mask", "mask", [](double mask, double) { return mask == double(Mask::none); }),
      condition("if Nq > Nk", "Nq", "Nk", more),
      condition("if Nq < Nk", "Nk", "Nq", more),
      condition("if Nq and Nk differ", "Nq", "Nk", [](double a, double b) { return a != b; }),
      condition("if the number of rows differs from the number of columns (with rows = columns it is right)", "rows",
                "columns", [](double a, double b) { return a != b; }),
      condition("with more than one head", "B", "H", [](double B, double H) { return B * H > 1; }),
  };
  for (const NamedMask& each : all_masks()) {
    if (each.mask == Mask::none) continue;
    const auto has_it = [=](const Numbers& numbers) -> std::optional<bool> {
      const auto found = numbers.find("mask");
      return found == numbers.end() ? std::nullopt : std::optional(found->second == double(each.mask.kind));
    };
    conditions.push_back({fmt::format("with the {} mask", each.name), has_it, {"mask"}});
  }
  return conditions;
}

/// The numbers of a call that are its tile sizes and launch configuration. The others describe the problem itself.
const char* const launch_numbers[] = {"warps", "team", "Br", "Bc", "block", "float_gradients", "atomic"};

/// The numbers of a call without those on which a condition depends.
Numbers without(Numbers numbers, const Condition& condition) {
  for (const std::string& name : condition.names) numbers.erase(name);
  if (numbers.contains("Hkv")) numbers.erase("Hkv");  // it depends on H
  return numbers;
}

/// "with d = 32 or 64": a number of the call has one of the values that wrong calls have.
std::vector<Condition> conditions_on_values(const std::vector<const Observation*>& wrong) {
  std::vector<Condition> conditions;
  std::vector<const char*> names{"d"};
  names.insert(names.end(), std::begin(launch_numbers), std::end(launch_numbers));
  for (const char* name : names) {
    std::set<double> values;
    for (const Observation* observation : wrong) {
      if (const auto found = observation->numbers.find(name); found != observation->numbers.end())
        values.insert(found->second);
    }
    if (values.empty() || values.size() > 2) continue;
    conditions.push_back({fmt::format("with {} = {}", name, fmt::join(values, " or ")),
                          [=](const Numbers& numbers) -> std::optional<bool> {
                            const auto found = numbers.find(name);
                            if (found == numbers.end()) return {};
                            return values.contains(found->second);
                          },
                          {},
                          name != names.front()});
    std::vector<std::string>& own = conditions.back().names;
    own = {name};
    if (conditions.back().of_launch) own.assign(std::begin(launch_numbers), std::end(launch_numbers));
  }
  return conditions;
}

/// A condition that all wrong calls meet, with the number of right calls that meet it and of those that do not.
struct Dependence {
  std::string text;
  std::size_t exceptions, others;
  bool of_launch;
};

/// A call apart from a condition: its other numbers, and which conditions on other sizes it meets.
std::pair<Numbers, std::vector<bool>> rest_of(const Observation& observation, const Condition& condition) {
  std::pair<Numbers, std::vector<bool>> rest{without(observation.numbers, condition), {}};
  const Names own(condition.names.begin(), condition.names.end());
  for (const Condition& other : conditions_on_sizes())
    if (!condition.of_launch && Names(other.names.begin(), other.names.end()) != own)
      rest.second.push_back(other.holds(observation.numbers).value_or(false));
  return rest;
}

/// Whether two calls that differ only in the condition confirm it: one is wrong and the other right.
bool is_shown(const Condition& condition, const std::vector<const Observation*>& wrong,
              const std::vector<const Observation*>& right) {
  std::set<std::pair<Numbers, std::vector<bool>>> spoilt;
  for (const Observation* observation : wrong) spoilt.insert(rest_of(*observation, condition));
  return std::ranges::any_of(right, [&](const Observation* observation) {
    return !condition.holds(observation->numbers).value_or(true) && spoilt.contains(rest_of(*observation, condition));
  });
}

/// "with d = 128", if no call without it is wrong, most calls with it are, and it is confirmed. Confirmation is a pair
/// of calls, or a number of calls that rules out a coincidence. Tests use some tile sizes with some problem sizes only,
/// so a condition on the launch configuration needs a pair of calls.
std::optional<Dependence> only(const Condition& condition, const std::vector<const Observation*>& wrong,
                               const std::vector<const Observation*>& right) {
  std::size_t with = 0, without_it = 0;  // number of right calls
  for (const Observation* observation : wrong)
    if (!condition.holds(observation->numbers).value_or(false)) return {};
  for (const Observation* observation : right) {
    const std::optional<bool> holds = condition.holds(observation->numbers);
    if (holds) ++(*holds ? with : without_it);
  }
  if (wrong.size() < 2 || wrong.size() <= with || without_it < 2) return {};  // one call is no evidence
  if (!is_shown(condition, wrong, right)) {
    if (condition.of_launch) return {};
    // The probability that all wrong calls meet the condition if they were drawn at random from all calls.
    double probability = 1;
    for (std::size_t i = 0; i < wrong.size(); ++i)
      probability *= double(wrong.size() + with - i) / double(wrong.size() + with + without_it - i);
    if (probability > 0.02) return {};
  }
  return Dependence{condition.text, with, without_it, condition.of_launch};
}

/// The condition with the fewest exceptions. The tests combine some values with some inputs only, so one of several
/// equally good conditions may hold by coincidence. Two conditions are both named; if there are more, none is.
std::optional<std::string> dependence(const std::vector<const Observation*>& wrong,
                                      const std::vector<const Observation*>& right) {
  if (wrong.empty()) return {};
  std::vector<Dependence> found;
  for (const auto& conditions : {conditions_on_values(wrong), conditions_on_sizes()})
    for (const Condition& condition : conditions)
      if (const auto each = only(condition, wrong, right)) found.push_back(*each);
  if (found.empty()) return {};
  const std::size_t least = std::ranges::min(found, {}, &Dependence::exceptions).exceptions;
  std::erase_if(found, [=](const Dependence& each) { return each.exceptions > least; });
  // Launch sizes change together, so one of them represents all.
  found.erase(std::unique(found.begin(), found.end(),
                          [](const Dependence& a, const Dependence& b) { return a.of_launch && b.of_launch; }),
              found.end());
  if (found.size() > 2) return {};
  const std::string with = least == 0
                               ? fmt::format("all {} such calls are wrong", wrong.size())
                               : fmt::format("of {} such calls, {} are wrong", wrong.size() + least, wrong.size());
  return fmt::format("only {}{}: {}; the {} other calls are all right", found.front().text,
                     found.size() > 1 ? ", or " + found.back().text : "", with, found.front().others);
}

// ---- Which elements are wrong ---------------------------------------------------------------------------------------

/// "columns from 32 on", "rows 16 to 31 of each warp"; empty for an axis along which every index is wrong, or whose
/// range is not informative.
std::string range_of(const AxisFinding& axis, std::int64_t rows_per_warp) {
  if (axis.first == axis.last) {
    return axis.first > 0 && axis.first == axis.size - 1 ? "the last " + axis.axis
                                                         : fmt::format("{} {}", axis.axis, axis.first);
  }
  if (axis.period > 0) return axis.repetition(rows_per_warp);
  return axis.tail() ? fmt::format("{} from {} on", axis.plural(), axis.first) : "";
}

/// The range of the wrong elements in each tensor, if it is the same in all calls.
std::vector<std::string> wrong_ranges(const std::vector<const Observation*>& wrong_observations) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> found;  // by tensor and axis
  for (const Observation* observation : wrong_observations) {
    for (const TensorFinding& tensor : observation->tensors) {
      for (const AxisFinding& axis : tensor.where)
        found[{tensor.tensor, axis.axis}].push_back(range_of(axis, tensor.rows_per_warp));
    }
  }
  std::vector<std::string> facts;
  for (const auto& [of, texts] : found) {
    const std::string& text = texts.front();  // a single call may be a coincidence
    if (texts.size() > 1 && !text.empty() && std::ranges::count(texts, text) == std::ssize(texts))
      facts.push_back(fmt::format("{} wrong only in {}", called(Names{of.first}), text));
  }
  return facts;
}

/// Whether a report with this cause may follow from wrong values, such as an index.
bool may_follow_from_values(const Cause& cause) {
  constexpr std::array kinds{"out-of-bounds", "misaligned", "uninitialised-global", "written-twice", "never-written"};
  return std::ranges::count(kinds, std::string_view(cause.id)) > 0;
}
/// Whether the first failed test shows wrong values alone: an exercise's own call of a function, before the kernels
/// that use it.
bool is_counterexample(const Verdict& first) {
  const bool shown = first.result == Result::failed && first.finished && first.reports.empty() && !first.cause;
  return shown && !first.hidden && first.exercise != kWhole;
}

}  // namespace

Conclusion conclude(const std::vector<const Verdict*>& of_one_exercise) {
  std::vector<const Verdict*> failures;
  std::vector<const Observation*> wrong, right;
  for (const Verdict* verdict : of_one_exercise) {
    if (failed(*verdict)) failures.push_back(verdict);
    if (verdict->hidden) continue;
    for (const Observation& observation : verdict->observations)
      (observation.wrong() ? wrong : right).push_back(&observation);
  }
  Conclusion conclusion;
  if (failures.empty()) return conclusion;
  const auto say = [&](const std::string& fact) {
    if (conclusion.facts.size() < kMostFacts) conclusion.facts.push_back(fact);
  };
  std::vector<const Observation*> compared = wrong;
  std::erase_if(compared, [](const Observation* observation) { return observation->tensors.empty(); });
  if (nothing_written(compared))
    std::erase_if(failures, [](const Verdict* verdict) {
      const bool compares =
          std::ranges::any_of(verdict->observations, [](const auto& o) { return !o.tensors.empty(); });
      return verdict->reports.empty() && (compares || !is_one_match(*verdict));
    });
  conclusion.causes = ranked_causes(failures);
  conclusion.may_follow = !conclusion.causes.empty() && may_follow_from_values(conclusion.causes.front()) &&
                          is_counterexample(*failures.front());
  // If a known mistake gives exactly these values, its sentence already explains which tensors and calls it affects.
  const bool matched =
      std::ranges::any_of(conclusion.causes, [](const Cause& cause) { return !cause.measure.empty(); });
  if (const auto fact = not_a_number(compared)) say(*fact);
  if (const auto fact = right_and_wrong(compared); fact && !matched) say(*fact);
  for (const std::string& fact : scaled_rows(compared)) say(fact);
  if (!matched)
    for (const std::string& fact : misplaced_values(compared)) say(fact);
  if (const auto fact = dependence(wrong, right); fact && !matched) say(*fact);
  for (const std::string& fact : wrong_ranges(compared)) say(fact);
  if (conclusion.causes.empty() && conclusion.facts.empty())
    if (const auto fact = counted(failures)) say(*fact);
  return conclusion;
}

}  // namespace workbook::judge
