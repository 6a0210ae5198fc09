// What trains, measures and draws.
#include "common/cli/verbs.hpp"

namespace workbook::cli {

std::map<std::string, Declare> verbs_of_this_program() {
  return {{"train", declare_train}, {"bench", declare_bench}, {"pictures", declare_pictures}};
}

}  // namespace workbook::cli
