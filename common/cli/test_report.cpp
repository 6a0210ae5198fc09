#include "common/cli/test_report.hpp"

#include "common/book/files.hpp"
#include "common/grading/points.hpp"

namespace workbook::cli {

using book::Chapter;
using judge::ChapterRun, judge::Verdict;

grading::GradedSubmission empty_report() {
  grading::GradedSubmission report;
  report.student = "your code";
  report.assignment = "The FlashAttention Workbook";
  report.hidden_results = "visible";
  return report;
}

void add_to_report(grading::GradedSubmission& report, const Chapter& chapter, const std::vector<ChapterRun>& runs) {
  std::vector<Verdict> verdicts;
  for (const ChapterRun& run : runs) verdicts.insert(verdicts.end(), run.tests.begin(), run.tests.end());
  add_tested(report, chapter, verdicts);
}

void write_reports(const grading::GradedSubmission& report, const std::filesystem::path& junit,
                   const std::filesystem::path& summary) {
  if (!junit.empty()) book::write_file(junit, grading::junit_xml(report));
  if (summary.empty()) return;
  const std::string before = std::filesystem::exists(summary) ? book::read_file(summary) : "";
  book::write_file(summary, before + grading::feedback_page(report));
}

}  // namespace workbook::cli
