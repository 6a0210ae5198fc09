// What trains and measures.
#include "common/cli/verbs.hpp"

namespace workbook::cli {

std::map<std::string, Declare> verbs_of_this_program() {
  return {{"train", declare_train}, {"bench", declare_bench}};
}

}  // namespace workbook::cli
