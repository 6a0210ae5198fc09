// What a reader of the book uses once there is code to test.
#include "common/cli/verbs.hpp"

namespace workbook::cli {

std::map<std::string, Declare> verbs_of_this_program() {
  return {{"test", declare_test},     {"watch", declare_watch},       {"trace", declare_trace},
          {"doctor", declare_doctor}, {"solution", declare_solution}, {"library", declare_library}};
}

}  // namespace workbook::cli
