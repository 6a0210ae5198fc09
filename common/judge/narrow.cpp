#include "common/judge/narrow.hpp"

#include <fmt/format.h>

#include <algorithm>
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

/// The cause of this id as it is said best: where the fewest others look the same. How a hidden test found it out is
/// not said.
Cause best_said(const std::vector<const Verdict*>& failures, const std::string& id) {
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

/// It was found by comparing numbers with those that a known mistake gives.
bool is_match(const Verdict& verdict) {
  return verdict.cause && !verdict.cause->measure.empty();
}
/// Numbers were compared with those that known mistakes give, and they agreed with one or with none. NaN alone is no
/// number.
bool was_matched(const Verdict& verdict) {
  const auto is_number = [](const TensorFinding& found) {
    return !found.right && (found.off > found.nan || !found.off);
  };
  const auto compared = [&](const Trial& trial) {
    return trial.wrong() && !trial.reported && std::ranges::any_of(trial.tensors, is_number);
  };
  return is_match(verdict) || (!verdict.cause && std::ranges::any_of(verdict.trials, compared));
}

/// A match that most of the wrong answers contradict is chance: such an input makes several mistakes look the same.
bool is_chance(const Verdict& verdict, const std::vector<const Verdict*>& failures) {
  if (!is_match(verdict)) return false;
  std::size_t agree = 0, all = 0;
  for (const Verdict* other : failures) {
    if (!was_matched(*other)) continue;
    ++all;
    agree += may_be(*other, verdict.cause->id);
  }
  return 2 * agree <= all && all > 1;
}

/// Wrong numbers, or something that the simulator has reported.
bool is_wrong(const Verdict& verdict) {
  return verdict.result != Result::failed || std::ranges::any_of(verdict.trials, &Trial::wrong);
}

/// What the simulator has seen is what other mistakes lead to: threads that wait for nothing, places that nobody
/// filled.
bool may_follow(const Verdict& verdict) {
  using enum simt::Mistake;
  constexpr simt::Mistake following[] = {deadlock, uninitialised_shared, uninitialised_global};
  return !verdict.reports.empty() && std::ranges::count(following, verdict.reports[0].mistake) > 0;
}

/// What the simulator has seen is where an index has led to.
bool is_of_an_index(const Verdict& verdict) {
  using enum simt::Mistake;
  constexpr simt::Mistake places[] = {outside_global, outside_shared, outside_array, padding,
                                      misaligned,     never_written,  written_twice};
  return !verdict.reports.empty() && std::ranges::count(places, verdict.reports[0].mistake) > 0;
}
/// A test that has named a cause has asked for what the code computes, and got the answer of a known mistake.
bool was_asked(const Verdict& verdict) {
  return verdict.reports.empty() && !is_match(verdict) && !verdict.cause->of_cost;
}

/// Whether the simulator has reported in a test, perhaps among others, what another test names.
bool has_seen(const Verdict& verdict, const Verdict& other) {
  return !other.reports.empty() &&
         std::ranges::count(verdict.reports, other.reports[0].mistake, &simt::Report::mistake) > 0;
}

/// The one that explains most failures, then the one that explains most of the rest, and so on. Where an answer is
/// wrong what is counted says nothing: it may be off for the same reason. And what may follow from a cause that is
/// known is none beside it. Where an index has led comes after what a test says that has asked for the index.
std::vector<Cause> ranked_causes(const std::vector<const Verdict*>& failures) {
  std::vector<Cause> causes;
  std::vector<const Verdict*> left = failures;
  const bool wrong = std::ranges::any_of(failures, [](const Verdict* verdict) { return is_wrong(*verdict); });
  std::erase_if(left, [&](const Verdict* verdict) {
    return !verdict->cause || is_chance(*verdict, failures) || (wrong && verdict->cause->of_cost);
  });
  if (!std::ranges::all_of(left, [](const Verdict* verdict) { return may_follow(*verdict); }))
    std::erase_if(left, [](const Verdict* verdict) { return may_follow(*verdict); });
  while (!left.empty()) {
    const auto explains = [&](const Verdict* named) {
      const auto count = std::ranges::count_if(left, [&](const Verdict* v) { return may_be(*v, named->cause->id); });
      return std::pair(count, !named->reports.empty());  // what the simulator saw comes before what numbers suggest
    };
    const Verdict* named = *std::ranges::max_element(left, {}, explains);
    if (is_of_an_index(*named)) {
      const auto asked = std::ranges::find_if(left, [](const Verdict* verdict) { return was_asked(*verdict); });
      if (asked != left.end()) named = *asked;
    }
    const std::string id = named->cause->id;
    causes.push_back(best_said(failures, id));
    // Where the simulator has seen both in one test, the other follows from it. And numbers that come of what it has
    // seen may be those of any mistake.
    const bool was_seen = !named->reports.empty();
    std::erase_if(left, [&](const Verdict* verdict) {
      return may_be(*verdict, id) || has_seen(*verdict, *named) || has_seen(*named, *verdict) ||
             (was_seen && is_match(*verdict));
    });
  }
  return causes;
}

/// What is counted wrongly. It is no cause where numbers are wrong, but where nothing else is known it is a fact.
std::optional<std::string> counted(const std::vector<const Verdict*>& failures) {
  for (const Verdict* verdict : failures) {
    if (!verdict->hidden && verdict->cause && verdict->cause->of_cost)
      return "what is counted is off, too, perhaps for the same reason: " + verdict->cause->sentence;
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

/// What follows where some tensors are right and others wrong: the first line that fits.
struct Consequence {
  Names right, wrong;  ///< all of `right` are right; what is wrong is among `wrong`
  const char* text;
};
const Consequence consequences[] = {
    {{"lse"},
     {"O"},
     "m and l are fine, look at what O alone goes through, from the product with V to where it is written"},
    {{"lse"}, {"P"}, "m and l are fine, look at what P is divided by, and when"},
    {{"O"}, {"lse"}, "m and l serve O well, look at the line that makes the LSE of them"},
    {{"P"}, {"lse"}, "m and l serve P well, look at the line that makes the LSE of them"},
    {{"m", "l"}, {"O"}, "look at what touches O"},
    {{"m"}, {"l"}, "look at what l is multiplied by, and at what is added to it"},
    {{"m"}, {"l", "O"}, "look at the factors that l and O are multiplied by"},
    {{"dQ", "dK"}, {"dV"}, "P is fine, look at what dV alone goes through"},
    {{"dV", "dK"}, {"dQ"}, "look at what dQ alone goes through"},
    {{"dV", "dQ"}, {"dK"}, "look at what dK alone goes through"},
    {{"dV"}, {"dQ", "dK"}, "P is fine, look at dP, D and dS"},
};

std::optional<std::string> right_and_wrong(const std::vector<const Trial*>& wrong_trials) {
  Names right, wrong;
  for (const Trial* trial : wrong_trials)
    for (const TensorFinding& tensor : trial->tensors) (tensor.right ? right : wrong).insert(tensor.tensor);
  for (const std::string& tensor : wrong) right.erase(tensor);
  if (wrong.empty()) return {};
  const auto l_is = [&](bool alone) {
    return std::ranges::any_of(wrong_trials, [&](const Trial* trial) { return trial->only_l_is_wrong == alone; });
  };
  const bool l_alone = wrong.contains("O") && wrong.contains("lse") && l_is(true) && !l_is(false);
  if (l_alone)
    return "O and the LSE are wrong, but O times l is right: only l is wrong, not m, P or the product with V";
  if (right.empty() || wrong_trials.size() < 2) return {};  // one call may be right by chance
  std::string text = fmt::format("{} right, {} wrong", called(right), called(wrong));
  for (const Consequence& each : consequences) {
    if (std::ranges::includes(right, each.right) && std::ranges::includes(each.wrong, wrong))
      return text + ": " + each.text;
  }
  return text;
}

/// Whether every element that is off still holds what outputs start with. Then nothing that was computed has been seen,
/// and only what the simulator reports is evidence of a cause.
bool nothing_written(const std::vector<const Trial*>& wrong_trials) {
  std::int64_t off = 0, unwritten = 0;
  for (const Trial* trial : wrong_trials)
    for (const TensorFinding& tensor : trial->tensors) off += tensor.off, unwritten += tensor.unwritten;
  return off > 0 && unwritten == off;
}

std::optional<std::string> not_a_number(const std::vector<const Trial*>& wrong_trials) {
  std::int64_t off = 0, nan = 0, unwritten = 0, elements = 0;
  Names tensors;
  for (const Trial* trial : wrong_trials) {
    for (const TensorFinding& tensor : trial->tensors) {
      off += tensor.off, nan += tensor.nan, unwritten += tensor.unwritten;
      if (!tensor.right) tensors.insert(tensor.tensor), elements += tensor.elements;
    }
  }
  if (off == 0 || nan + unwritten < off) return {};
  if (unwritten == off)
    return fmt::format("{} wrong only where nothing was written, or only added to what was there", called(tensors));
  if (nan < off) return {};
  if (nan == elements && (tensors.contains("O") || tensors.contains("lse")))  // a backward pass has neither m nor l
    return fmt::format(
        "{} NaN everywhere in such calls, and it was computed: −∞ − (−∞), 0 · ∞, ∞ / ∞ or 0 / 0. If other inputs give "
        "it too, look before the first tile, where m is −∞ and l is 0: if m stays −∞, S − m is ∞; exp(m_old − m_new) "
        "is 0 there, the other way round ∞, and ∞ · 0 is NaN, as −∞ − (−∞) is",
        called(tensors));
  return fmt::format("{} wrong only where {} NaN, and the NaN was computed: −∞ − (−∞), 0 · ∞, ∞ / ∞ or 0 / 0",
                     called(tensors), pronoun(tensors));
}

/// Where a tensor is what it should be but for factors, each of which belongs to a row, or to some columns of one.
std::vector<std::string> scaled_rows(const std::vector<const Trial*>& wrong_trials) {
  std::map<std::string, Names> found;  // by tensor
  for (const Trial* trial : wrong_trials)
    for (const TensorFinding& tensor : trial->tensors)
      if (!tensor.right) found[tensor.tensor].insert(tensor.scaled_together);
  std::vector<std::string> facts;
  for (auto& [tensor, together] : found) {
    if (together.contains("")) continue;
    if (together.size() > 1) together.erase("row");  // some columns of one: a row of the same factors is one too
    if (together == Names{"row"})
      facts.push_back(
          fmt::format("each row of {} is what it should be but for a factor: look at what rows are multiplied "
                      "with or divided by",
                      called(tensor)));
    else
      facts.push_back(
          fmt::format("{} is what it should be but for factors, and {} of a row have another one than the next: the "
                      "lanes that share a row do not take the same m, l or factor",
                      called(tensor), *together.begin()));
  }
  return facts;
}

/// Of a tensor, numbers that are right in another place. What half of the calls show, or more, is said.
std::vector<std::string> places_of_others(const std::vector<const Trial*>& wrong_trials) {
  std::map<std::string, std::vector<std::string>> found;
  for (const Trial* trial : wrong_trials)
    for (const TensorFinding& tensor : trial->tensors)
      if (!tensor.right) found[tensor.tensor].push_back(tensor.elsewhere);
  std::vector<std::string> facts;
  for (const auto& [tensor, texts] : found) {
    const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
    if (first != texts.end() && 2 * std::ranges::count(texts, std::string()) <= std::ssize(texts))
      facts.push_back(fmt::format("numbers of {} are right, but in a wrong place: {}", tensor, *first));
  }
  return facts;
}

// ---- What it depends on ---------------------------------------------------------------------------------------------

using Numbers = std::map<std::string, double>;

/// Something that a call has or has not; nothing where it cannot be said of this call.
struct Condition {
  std::string text;  ///< "where Nk is no multiple of Bc"
  std::function<std::optional<bool>(const Numbers&)> holds;
  std::vector<std::string> names;  ///< the numbers of the call that it speaks of
  bool of_launch = false;          ///< of nothing but how the problem is cut up and started
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
bool no_multiple(double whole, double part) {
  return part > 0 && std::int64_t(whole) % std::int64_t(part) != 0;
}

std::vector<Condition> conditions_on_sizes() {
  std::vector<Condition> conditions{
      condition("from the second K/V tile on (Nk > Bc)", "Nk", "Bc", more),
      condition("from the second block on (more scores than a block has)", "n", "block", more),
      condition("where Nk is no multiple of Bc", "Nk", "Bc", no_multiple),
      condition("where the last block is short", "n", "block", no_multiple),
      condition("where there is more than one Q tile (Nq > Br)", "Nq", "Br", more),
      condition("where Nq is no multiple of Br", "Nq", "Br", no_multiple),
      condition("without a mask", "mask", "mask", [](double mask, double) { return mask == double(Mask::none); }),
      condition("where Nq > Nk", "Nq", "Nk", more),
      condition("where Nq < Nk", "Nk", "Nq", more),
      condition("where Nq and Nk differ", "Nq", "Nk", [](double a, double b) { return a != b; }),
      condition("where rows and columns differ in number (with rows = columns it is right)", "rows", "columns",
                [](double a, double b) { return a != b; }),
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

/// The numbers of a call that say how its problem is cut up and started; the others are the problem itself.
const char* const launch_numbers[] = {"warps", "team", "Br", "Bc", "block", "float_gradients", "atomic"};

/// What is left of a call's numbers without those that a condition speaks of.
Numbers without(Numbers numbers, const Condition& condition) {
  for (const std::string& name : condition.names) numbers.erase(name);
  if (numbers.contains("Hkv")) numbers.erase("Hkv");  // it follows H
  return numbers;
}

/// "with d = 32 or 64": a number of the call is one of the values with which it is wrong.
std::vector<Condition> conditions_on_values(const std::vector<const Trial*>& wrong) {
  std::vector<Condition> conditions;
  std::vector<const char*> names{"d"};
  names.insert(names.end(), std::begin(launch_numbers), std::end(launch_numbers));
  for (const char* name : names) {
    std::set<double> values;
    for (const Trial* trial : wrong) {
      if (const auto found = trial->numbers.find(name); found != trial->numbers.end()) values.insert(found->second);
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

/// What all wrong calls have, how many right ones have it all the same, and how many do not.
struct Dependence {
  std::string text;
  std::size_t exceptions, others;
  bool of_launch;
};

/// What is left of a call besides a condition: its other numbers, and what of the conditions on other sizes it has.
std::pair<Numbers, std::vector<bool>> rest_of(const Trial& trial, const Condition& condition) {
  std::pair<Numbers, std::vector<bool>> rest{without(trial.numbers, condition), {}};
  const Names own(condition.names.begin(), condition.names.end());
  for (const Condition& other : conditions_on_sizes())
    if (!condition.of_launch && Names(other.names.begin(), other.names.end()) != own)
      rest.second.push_back(other.holds(trial.numbers).value_or(false));
  return rest;
}

/// Whether an experiment shows it: two calls that differ in it alone, of which one is wrong and the other right.
bool is_shown(const Condition& condition, const std::vector<const Trial*>& wrong,
              const std::vector<const Trial*>& right) {
  std::set<std::pair<Numbers, std::vector<bool>>> spoilt;
  for (const Trial* trial : wrong) spoilt.insert(rest_of(*trial, condition));
  return std::ranges::any_of(right, [&](const Trial* trial) {
    return !condition.holds(trial->numbers).value_or(true) && spoilt.contains(rest_of(*trial, condition));
  });
}

/// "with d = 128", if no call without it is wrong, most calls with it are, and either an experiment shows it or
/// there are so many that it is no chance. Tests take some tiles for some sizes only: how a problem is started matters
/// only if an experiment shows it.
std::optional<Dependence> only(const Condition& condition, const std::vector<const Trial*>& wrong,
                               const std::vector<const Trial*>& right) {
  std::size_t with = 0, without_it = 0;  // of those that are right
  for (const Trial* trial : wrong)
    if (!condition.holds(trial->numbers).value_or(false)) return {};
  for (const Trial* trial : right) {
    const std::optional<bool> holds = condition.holds(trial->numbers);
    if (holds) ++(*holds ? with : without_it);
  }
  if (wrong.size() < 2 || wrong.size() <= with || without_it < 2) return {};  // one call is no evidence
  if (!is_shown(condition, wrong, right)) {
    if (condition.of_launch) return {};
    // Were the wrong calls drawn from all at random, how likely were they all of this kind?
    double chance = 1;
    for (std::size_t i = 0; i < wrong.size(); ++i)
      chance *= double(wrong.size() + with - i) / double(wrong.size() + with + without_it - i);
    if (chance > 0.02) return {};
  }
  return Dependence{condition.text, with, without_it, condition.of_launch};
}

/// What has the fewest exceptions. The tests try some values with some inputs only: of several that fit equally well
/// any may hold by chance, so that all of them are said, or none if there are more than two.
std::optional<std::string> dependence(const std::vector<const Trial*>& wrong, const std::vector<const Trial*>& right) {
  if (wrong.empty()) return {};
  std::vector<Dependence> found;
  for (const auto& conditions : {conditions_on_values(wrong), conditions_on_sizes()})
    for (const Condition& condition : conditions)
      if (const auto each = only(condition, wrong, right)) found.push_back(*each);
  if (found.empty()) return {};
  const std::size_t least = std::ranges::min(found, {}, &Dependence::exceptions).exceptions;
  std::erase_if(found, [=](const Dependence& each) { return each.exceptions > least; });
  // Sizes of a launch go together: one of them stands for all.
  found.erase(std::unique(found.begin(), found.end(),
                          [](const Dependence& a, const Dependence& b) { return a.of_launch && b.of_launch; }),
              found.end());
  if (found.size() > 2) return {};
  const std::string with =
      least == 0 ? fmt::format("the {} calls that are so are all wrong", wrong.size())
                 : fmt::format("of the {} calls that are so {} are wrong", wrong.size() + least, wrong.size());
  return fmt::format("only {}{}: {}, the {} others are all right", found.front().text,
                     found.size() > 1 ? ", or " + found.back().text : "", with, found.front().others);
}

// ---- Where it lies --------------------------------------------------------------------------------------------------

/// "columns from 32 on", "rows 16 to 31 of each warp"; empty for an axis along which everything is off, or whose extent
/// says nothing by itself.
std::string place_of(const AxisFinding& axis, std::int64_t rows_per_warp) {
  if (axis.first == axis.last) {
    return axis.first > 0 && axis.first == axis.size - 1 ? "the last " + axis.axis
                                                         : fmt::format("{} {}", axis.axis, axis.first);
  }
  if (axis.period > 0) return axis.repetition(rows_per_warp);
  return axis.tail() ? fmt::format("{} from {} on", axis.plural(), axis.first) : "";
}

/// Where in each tensor everything lies that is off in any call, if it is the same place in all of them.
std::vector<std::string> places(const std::vector<const Trial*>& wrong_trials) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> found;  // by tensor and axis
  for (const Trial* trial : wrong_trials) {
    for (const TensorFinding& tensor : trial->tensors) {
      for (const AxisFinding& axis : tensor.where)
        found[{tensor.tensor, axis.axis}].push_back(place_of(axis, tensor.rows_per_warp));
    }
  }
  std::vector<std::string> facts;
  for (const auto& [of, texts] : found) {
    const std::string& text = texts.front();  // one call may be so by chance
    if (texts.size() > 1 && !text.empty() && std::ranges::count(texts, text) == std::ssize(texts))
      facts.push_back(fmt::format("{} wrong only in {}", called(Names{of.first}), text));
  }
  return facts;
}

}  // namespace

Conclusion conclude(const std::vector<const Verdict*>& of_one_exercise) {
  std::vector<const Verdict*> failures;
  std::vector<const Trial*> wrong, right;
  for (const Verdict* verdict : of_one_exercise) {
    if (failed(*verdict)) failures.push_back(verdict);
    if (verdict->hidden) continue;
    for (const Trial& trial : verdict->trials) (trial.wrong() ? wrong : right).push_back(&trial);
  }
  Conclusion conclusion;
  if (failures.empty()) return conclusion;
  const auto say = [&](const std::string& fact) {
    if (conclusion.facts.size() < kMostFacts) conclusion.facts.push_back(fact);
  };
  std::vector<const Trial*> compared = wrong;
  std::erase_if(compared, [](const Trial* trial) { return trial->tensors.empty(); });
  if (nothing_written(compared))
    std::erase_if(failures, [](const Verdict* verdict) { return verdict->reports.empty(); });
  conclusion.causes = ranked_causes(failures);
  // Where a known mistake gives just these numbers, it says by itself which tensors and which calls it spoils.
  const bool matched =
      std::ranges::any_of(conclusion.causes, [](const Cause& cause) { return !cause.measure.empty(); });
  if (const auto fact = not_a_number(compared)) say(*fact);
  if (const auto fact = right_and_wrong(compared); fact && !matched) say(*fact);
  for (const std::string& fact : scaled_rows(compared)) say(fact);
  if (!matched)
    for (const std::string& fact : places_of_others(compared)) say(fact);
  if (const auto fact = dependence(wrong, right); fact && !matched) say(*fact);
  for (const std::string& fact : places(compared)) say(fact);
  if (conclusion.causes.empty() && conclusion.facts.empty())
    if (const auto fact = counted(failures)) say(*fact);
  return conclusion;
}

}  // namespace workbook::judge
