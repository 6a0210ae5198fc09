#include "common/grading/summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "common/book/foreign_text.hpp"

namespace workbook::grading {
namespace {

using book::line_text, book::markdown_line, book::csv_cell, book::points_text;
using judge::Result;

/// The number of submissions in each tenth of the maximum points.
std::vector<int> tenths(const std::vector<GradedSubmission>& submissions) {
  std::vector<int> counts(10, 0);
  for (const GradedSubmission& graded : submissions) {
    if (!graded.problem.empty() || graded.max_points() <= 0) continue;
    ++counts[std::size_t(std::clamp(int(10 * graded.points() / graded.max_points()), 0, 9))];
  }
  return counts;
}

/// The results of all submissions for one item.
struct ItemResults {
  const GradedItem* item = nullptr;                   ///< the item of one submission
  std::map<Result, int, std::greater<>> submissions;  ///< result -> number of submissions, the most severe first
};

/// The results by item, in the assignment's order.
std::vector<ItemResults> by_item(const std::vector<GradedSubmission>& submissions) {
  std::vector<ItemResults> items;
  for (const GradedSubmission& graded : submissions) {
    for (const GradedItem& item : graded.items) {
      auto found = std::ranges::find_if(items, [&](const ItemResults& i) { return i.item->id == item.id; });
      if (found == items.end()) found = items.insert(items.end(), {&item, {}});
      ++found->submissions[item.result];
    }
  }
  return items;
}

std::string points_line(const std::vector<GradedSubmission>& submissions) {
  std::vector<double> points;
  double most = 0, sum = 0;
  for (const GradedSubmission& graded : submissions) {
    if (!graded.problem.empty()) continue;
    points.push_back(graded.points());
    sum += points.back();
    most = std::max(most, graded.max_points());
  }
  if (points.empty()) return ".";
  std::sort(points.begin(), points.end());
  const std::size_t n = points.size();
  const double median = n % 2 == 1 ? points[n / 2] : (points[n / 2 - 1] + points[n / 2]) / 2;
  return fmt::format(", maximum {} points: mean {:.2f}, median {}, lowest {}, highest {}.", points_text(most),
                     sum / double(n), points_text(median), points_text(points.front()), points_text(points.back()));
}

std::string points_section(const std::vector<GradedSubmission>& submissions) {
  std::string text = "\n\n## Points\n\n| share of the points | submissions | |\n|---|---|---|\n";
  const std::vector<int> counts = tenths(submissions);
  for (std::size_t i = 0; i < counts.size(); ++i)
    text += fmt::format("| {} to {} % | {} | {} |\n", 10 * i, 10 * (i + 1), counts[i],
                        std::string(std::size_t(std::min(counts[i], 60)), '#'));
  return text;
}

std::string exercises_section(const std::vector<GradedSubmission>& submissions) {
  std::string text = "\n## Exercises\n\n| | | points | passed | other results |\n|---|---|---|---|---|\n";
  for (const auto& [item, results] : by_item(submissions)) {
    std::vector<std::string> others;
    int all = 0, passed = 0;
    for (const auto& [result, count] : results) {
      all += count;
      if (result == Result::passed) passed = count;
      if (result != Result::passed) others.push_back(fmt::format("{} {}", count, name(result)));
    }
    text += fmt::format("| {} | {} | {} | {} of {} | {} |\n", item->id, markdown_line(item->title),
                        points_text(item->max_points), passed, all,
                        others.empty() ? "-" : fmt::format("{}", fmt::join(others, ", ")));
  }
  return text;
}

/// A cause (or a result without one) in an item.
struct SharedMistake {
  std::string sentence;
  std::set<std::string> students;  ///< a mistake counts once per student, even if several tests show it
};

/// The mistakes, the most frequent first.
std::string mistakes_section(const std::vector<GradedSubmission>& submissions) {
  std::map<std::tuple<std::string, std::string, Result>, SharedMistake> mistakes;  // by item and cause, or result
  for (const GradedSubmission& graded : submissions) {
    for (const auto& [verdict, item] : graded.tests) {
      const auto of = std::ranges::find(graded.items, item, &GradedItem::id);
      if (of == graded.items.end() || of->kind == ItemKind::chapter || verdict.result < Result::failed) continue;
      const std::string sentence = verdict.cause                      ? verdict.cause->sentence
                                   : verdict.result == Result::failed ? "wrong, with no known mistake"
                                                                      : name(verdict.result);
      SharedMistake& mistake =
          verdict.cause ? mistakes[{item, verdict.cause->id, Result::failed}] : mistakes[{item, "", verdict.result}];
      // Tests may name different numbers of matching mistakes; the shortest sentence is common to all.
      if (mistake.sentence.empty() || sentence.size() < mistake.sentence.size()) mistake.sentence = sentence;
      mistake.students.insert(graded.student);
    }
  }
  std::vector<std::tuple<int, std::string, std::string>> rows;  // negative count, item, sentence
  for (const auto& [key, mistake] : mistakes)
    rows.emplace_back(-int(mistake.students.size()), std::get<0>(key), mistake.sentence);
  std::ranges::sort(rows);
  std::string text = "\n## Most frequent mistakes\n\n";
  text += rows.empty() ? "None.\n" : "| submissions | where | |\n|---|---|---|\n";
  rows.resize(std::min<std::size_t>(rows.size(), 20));
  for (const auto& [count, where, sentence] : rows)
    text += fmt::format("| {} | {} | {} |\n", -count, where, markdown_line(sentence));
  return text;
}

std::string not_graded_section(const std::vector<GradedSubmission>& submissions) {
  std::string text;
  for (const GradedSubmission& graded : submissions) {
    if (graded.problem.empty()) continue;
    text += fmt::format("- {}: {}\n", markdown_line(graded.student), markdown_line(graded.problem));
  }
  return text.empty() ? "" : "\n## Not graded\n\n" + text;
}

}  // namespace

std::string class_table(const std::vector<GradedSubmission>& submissions) {
  // Submissions that could not be graded have no items, so the columns come from one that was graded.
  const auto found = std::ranges::find_if(submissions, [](const auto& graded) { return !graded.items.empty(); });
  const GradedSubmission none;
  const GradedSubmission& any = found == submissions.end() ? none : *found;
  std::string table = "student,points,of";
  for (const GradedItem& item : any.items) table += "," + csv_cell(item.id);
  table += ",problem,path\n";
  for (const GradedSubmission& graded : submissions) {
    table +=
        fmt::format("{},{},{}", csv_cell(graded.student), points_text(graded.points()), points_text(any.max_points()));
    for (std::size_t i = 0; i < any.items.size(); ++i)
      table += "," + (graded.items.empty() ? "" : points_text(graded.items[i].points));
    table += fmt::format(",{},{}\n", csv_cell(line_text(graded.problem)), csv_cell(line_text(graded.path)));
  }
  return table;
}

std::string class_summary(const std::vector<GradedSubmission>& submissions) {
  if (submissions.empty()) return "# No submission has been graded.\n";
  return fmt::format("# {}\n\n{} submissions", markdown_line(submissions.front().assignment), submissions.size()) +
         points_line(submissions) + points_section(submissions) + exercises_section(submissions) +
         mistakes_section(submissions) + not_graded_section(submissions);
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
    for (const auto& [result, count] : results)
      (result == Result::passed ? passed : result == Result::todo || result == Result::blocked ? open : other) += count;
    text += fmt::format("\"{}\" {} {} {}\n", item->id, passed, open, other);
  }
  return text + "EOD\nplot for [i=2:4] $items using i:xtic(1) title columnheader(i)\nunset multiplot\n";
}

}  // namespace workbook::grading
