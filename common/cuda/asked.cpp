#include "common/cuda/asked.hpp"

#include <cstdlib>
#include <fstream>
#include <set>

namespace workbook::cuda {

void note_asked(const std::string& what, std::string_view file) {
  const char* const name = std::getenv("WORKBOOK_INSTANCES_FILE");
  if (name == nullptr) return;
  static std::set<std::string> noted;
  const std::string line = what + ' ' + std::string(file.substr(file.rfind('/') + 1));
  if (noted.insert(line).second) std::ofstream(name, std::ios::app) << line << '\n';
}

}  // namespace workbook::cuda
