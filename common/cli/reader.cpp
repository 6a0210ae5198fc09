// What a reader of the book uses first.
#include "common/cli/verbs.hpp"

namespace workbook::cli {

std::map<std::string, Declare> verbs_of_this_program() {
  return {{"status", declare_status}, {"run", declare_run}, {"hint", declare_hint}, {"reset", declare_reset}};
}

}  // namespace workbook::cli
