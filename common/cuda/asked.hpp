// What a worker was asked for, noted for the book's own gates (instances.hpp, gates/instances.hpp).
#pragma once

#include <string>
#include <string_view>

namespace workbook::cuda {

/// Adds a line to the file that $WORKBOOK_INSTANCES_FILE names, if it names one: `what`, and the name of a source file
/// without its folders.
void note_asked(const std::string& what, std::string_view file);

}  // namespace workbook::cuda
