// The tables of a benchmark: for a terminal, and as Markdown for notes/results.md; and putting them between the markers
// of that page.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/bench/figures.hpp"
#include "common/bench/results.hpp"
#include "common/book/manifest.hpp"

namespace workbook::bench {

/// Every point, one a line, with what each column means below.
std::string terminal_table(const Results& results);

/// The sections of notes/results.md by the names of their markers: "environment", "goals", "speed", "details",
/// "memory", "profile", "figures". Goals are those that the chapters set. `figure_folder`: where the figures lie, seen
/// from the page.
std::map<std::string, std::string> page_sections(const Results& results, const std::vector<book::Chapter>& chapters,
                                                 const std::vector<Figure>& figures, const std::string& figure_folder);

/// The page with what stands between the lines <!-- BEGIN name --> and <!-- END name --> replaced by each section.
/// ResultsError naming `page_name` and the marker if one is missing, there twice, or not closed.
std::string publish(const std::string& page, const std::string& page_name,
                    const std::map<std::string, std::string>& sections);

}  // namespace workbook::bench
