// Which cause a simulator report is counted as, and the sentence that a reader gets for it.
#pragma once

#include <vector>

#include "common/simt/report.hpp"

namespace workbook::test {

struct ReportCause {
  simt::Mistake mistake;
  const char *id, *sentence;
};

/// The cause that stands for all reports of one call; null: none of them has one. Of races it is the one that was
/// reported first; otherwise the kind that the others most often follow from.
const ReportCause* cause_of(const std::vector<simt::Report>& reports);

/// Moves the reports of `cause` to the front, and removes the advice of reports that follow from it.
void put_first(const ReportCause& cause, std::vector<simt::Report>& reports);

}  // namespace workbook::test
