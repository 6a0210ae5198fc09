// Splits a compiler's log into warnings.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace workbook::judge {

/// The warnings in a log of g++, clang++ or nvcc whose location is_own accepts, each with the explaining lines after
/// it.
std::vector<std::string> warnings_in(const std::string& log,
                                     const std::function<bool(const std::string& file, int line)>& is_own);

}  // namespace workbook::judge
