#include "common/grading/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/grading/text.hpp"

namespace workbook::grading {
namespace {

/// Points in tenths of the maximum: how many submissions lie in each.
std::vector<int> tenths(const std::vector<GradedSubmission>& submissions) {
  std::vector<int> counts(10, 0);
  for (const GradedSubmission& graded : submissions) {
    if (!graded.problem.empty() || graded.max_points() <= 0) continue;
    ++counts[std::size_t(std::clamp(int(10 * graded.points() / graded.max_points()), 0, 9))];
  }
  return counts;
}

/// id -> result -> number of submissions, in the order of the assignment's items.
std::vector<std::pair<const GradedItem*, std::map<std::string, int>>> by_item(
    const std::vector<GradedSubmission>& submissions) {
  std::vector<std::pair<const GradedItem*, std::map<std::string, int>>> items;
  for (const GradedSubmission& graded : submissions) {
    for (const GradedItem& item : graded.items) {
      auto found = std::find_if(items.begin(), items.end(), [&](const auto& i) { return i.first->id == item.id; });
      if (found == items.end()) found = items.insert(items.end(), {&item, {}});
      ++found->second[item.result];
    }
  }
  return items;
}

}  // namespace

std::string class_table(const std::vector<GradedSubmission>& submissions) {
  // Those that could not be graded have no items: the header is one that has.
  const auto any = std::find_if(submissions.begin(), submissions.end(),
                                [](const GradedSubmission& graded) { return !graded.items.empty(); });
  if (any == submissions.end()) return "student,points,of,problem\n";
  std::string table = csv_header(*any);
  for (const GradedSubmission& graded : submissions) {
    if (!graded.items.empty()) {
      table += csv_row(graded);
      continue;
    }
    table += csv_cell(graded.student) + ",0," + points_text(any->max_points()) + std::string(any->items.size(), ',') +
             "," + csv_cell(graded.problem) + "\n";
  }
  return table;
}

std::string class_summary(const std::vector<GradedSubmission>& submissions) {
  if (submissions.empty()) return "# No submission has been graded.\n";
  std::vector<double> points;
  std::vector<const GradedSubmission*> not_graded;
  double most = 0;
  for (const GradedSubmission& graded : submissions) {
    if (!graded.problem.empty()) {
      not_graded.push_back(&graded);
      continue;
    }
    points.push_back(graded.points());
    most = std::max(most, graded.max_points());
  }
  std::sort(points.begin(), points.end());
  std::string text =
      fmt::format("# {}\n\n{} submissions", markdown_line(submissions.front().assignment), submissions.size());
  if (!points.empty()) {
    double sum = 0;
    for (const double p : points) sum += p;
    const std::size_t n = points.size();
    const double median = n % 2 == 1 ? points[n / 2] : (points[n / 2 - 1] + points[n / 2]) / 2;
    text += fmt::format(", {} points to be had: mean {:.2f}, median {}, least {}, most {}", points_text(most),
                        sum / double(n), points_text(median), points_text(points.front()), points_text(points.back()));
  }
  text += ".\n\n## Points\n\n| share of the points | submissions | |\n|---|---|---|\n";
  const std::vector<int> counts = tenths(submissions);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    text += fmt::format("| {} to {} % | {} | {} |\n", 10 * i, 10 * (i + 1), counts[i],
                        std::string(std::size_t(std::min(counts[i], 60)), '#'));
  }
  text += "\n## Exercises\n\n| | | points | passed | other results |\n|---|---|---|---|---|\n";
  for (const auto& [item, results] : by_item(submissions)) {
    std::string others;
    int all = 0, passed = 0;
    for (const auto& [result, count] : results) {
      all += count;
      if (result == "passed") {
        passed = count;
      } else {
        others += fmt::format("{}{} {}", others.empty() ? "" : ", ", count, result);
      }
    }
    text += fmt::format("| {} | {} | {} | {} of {} | {} |\n", item->id, markdown_line(item->title),
                        points_text(item->max_points), passed, all, others.empty() ? "-" : others);
  }

  // A mistake counts once for each submission, however many tests show it.
  struct Mistake {
    std::string where;
    std::set<std::string> students;
  };
  std::map<std::string, Mistake> mistakes;  // sentence -> who
  for (const GradedSubmission& graded : submissions) {
    for (const GradedTest& test : graded.tests) {
      if (test.result == "passed" || test.result == "todo" || test.result == "blocked" || test.result == "skipped" ||
          test.exercise == "whole") {
        continue;
      }
      // The sentence that the tests agree on: one test may name more mistakes that fit than another.
      const std::string cause = test.likely_cause.substr(0, test.likely_cause.find(": your output"));
      const std::string sentence = !cause.empty()            ? cause.substr(0, cause.find(", or "))
                                   : test.result == "failed" ? "wrong, and none of the mistakes that the book knows"
                                                             : test.result;
      Mistake& mistake = mistakes[test.exercise + '\n' + sentence];
      mistake.where = test.exercise;
      mistake.students.insert(graded.student);
    }
  }
  std::vector<std::pair<std::string, const Mistake*>> ordered;
  for (const auto& [key, mistake] : mistakes) ordered.push_back({key.substr(key.find('\n') + 1), &mistake});
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.second->students.size() > b.second->students.size(); });
  text += "\n## Most frequent mistakes\n\n";
  if (ordered.empty())
    text += "None.\n";
  else
    text += "| submissions | where | |\n|---|---|---|\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(ordered.size(), 20); ++i) {
    text += fmt::format("| {} | {} | {} |\n", ordered[i].second->students.size(), ordered[i].second->where,
                        markdown_line(ordered[i].first));
  }
  if (!not_graded.empty()) {
    text += "\n## Not graded\n\n";
    for (const GradedSubmission* graded : not_graded) {
      text += fmt::format("- {}: {}\n", markdown_line(graded->student), markdown_line(graded->problem));
    }
  }
  return text;
}

std::string class_plot(const std::vector<GradedSubmission>& submissions, const std::string& svg) {
  std::string text = fmt::format("set terminal svg size 900,700\nset output '{}'\nset multiplot layout 2,1\n", svg);
  text += "set style fill solid 0.7\nset ylabel 'submissions'\nset yrange [0:*]\nunset key\n";
  text += "set title 'share of the points'\nset boxwidth 0.9 relative\n$points << EOD\n";
  const std::vector<int> counts = tenths(submissions);
  for (std::size_t i = 0; i < counts.size(); ++i)
    text += fmt::format("\"{}-{} %\" {}\n", 10 * i, 10 * (i + 1), counts[i]);
  text += "EOD\nplot $points using 0:2:xtic(1) with boxes\n";
  text += "set title 'results'\nset key outside\nset style data histograms\nset style histogram rowstacked\n";
  text += "$items << EOD\nitem passed todo other\n";
  for (const auto& [item, results] : by_item(submissions)) {
    int passed = 0, open = 0, other = 0;
    for (const auto& [result, count] : results) {
      (result == "passed" ? passed : result == "todo" || result == "blocked" ? open : other) += count;
    }
    text += fmt::format("\"{}\" {} {} {}\n", item->id, passed, open, other);
  }
  return text + "EOD\nplot for [i=2:4] $items using i:xtic(1) title columnheader(i)\nunset multiplot\n";
}

}  // namespace workbook::grading
