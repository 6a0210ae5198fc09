// What a reader of the book uses.
#include "common/cli/verbs.hpp"

namespace workbook::cli {

std::map<std::string, Declare> verbs_of_this_program() {
  return {{"status", declare_status},  {"run", declare_run},       {"test", declare_test},
          {"hint", declare_hint},      {"reset", declare_reset},   {"watch", declare_watch},
          {"trace", declare_trace},    {"doctor", declare_doctor}, {"solution", declare_solution},
          {"library", declare_library}};
}

}  // namespace workbook::cli
