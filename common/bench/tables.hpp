// The tables of a benchmark, for a terminal and as Markdown for notes/results.md, and their insertion between the
// markers of that page.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/bench/figures.hpp"
#include "common/bench/results.hpp"
#include "common/book/manifest.hpp"

namespace workbook::bench {

/// Every point, one per line.
std::string terminal_table(const Results& results);

/// The sections of notes/results.md by the names of their markers: "environment", "goals", "speed", "details",
/// "memory", "profile", "figures"; of results of decoding only "decoding". The chapters define the goals.
/// `figure_folder`: the folder of the figures, relative to the page.
std::map<std::string, std::string> page_sections(const Results& results, const std::vector<book::Chapter>& chapters,
                                                 const std::vector<Figure>& figures, const std::string& figure_folder);

/// The page with the text between the lines <!-- BEGIN name --> and <!-- END name --> replaced by each section.
/// ResultsError names `page_name` and the marker if a marker is missing, occurs twice or is not closed.
std::string publish(const std::string& page, const std::string& page_name,
                    const std::map<std::string, std::string>& sections);

}  // namespace workbook::bench
