// A Python with numpy, for tests of the package in python/.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "common/worker/command.hpp"

namespace workbook::test {

/// The first of WORKBOOK_PYTHON, python3 and Debian's Python that can import numpy; empty: none.
inline std::string python_with_numpy() {
  std::vector<std::string> known{"python3", "/usr/bin/python3"};
  if (const char* named = std::getenv("WORKBOOK_PYTHON")) known.insert(known.begin(), named);
  for (const std::string& python : known) {
    if (!worker::find_program(python).empty() && worker::run_command({python, "-c", "import numpy"}).exit_code == 0)
      return python;
  }
  return "";
}

/// Runs a script with the book's package and these library files.
inline worker::CommandResult run_python(const std::string& python, const std::string& book,
                                        const std::vector<std::string>& script, const std::string& libraries) {
  worker::CommandOptions options;
  const char* path = std::getenv("PYTHONPATH");
  options.environment["PYTHONPATH"] = book + "/python" + (path == nullptr ? "" : std::string(":") + path);
  options.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  options.environment["WORKBOOK_LIBRARY"] = libraries;
  std::vector<std::string> words{python};
  words.insert(words.end(), script.begin(), script.end());
  return worker::run_command(words, options);
}

}  // namespace workbook::test
