// Whether an exercise's region stays within its function, however it is written: its brackets match, in each branch of
// its #if too, no comment or text goes on behind it, and its macros end with it.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace workbook::grading {

/// By exercise, why its region leaves its place: "line 12: } closes what the region has not opened". Those that stay
/// are not in it.
std::map<std::string, std::string> leaving_regions(std::string_view source);

/// The source with a compile error in place of each region that leaves its place, which says why; everything else
/// byte for byte as it is.
std::string confined(const std::string& source);

}  // namespace workbook::grading
