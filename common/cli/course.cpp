// What instructors and maintainers use.
#include "common/cli/verbs.hpp"

namespace workbook::cli {

std::map<std::string, Declare> verbs_of_this_program() {
  return {{"stubs", declare_stubs},
          {"release", declare_release},
          {"grade", declare_grade},
          {"check", declare_check},
          {"site", declare_site}};
}

}  // namespace workbook::cli
