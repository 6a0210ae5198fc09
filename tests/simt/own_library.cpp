// A small model of the simulator's library: it returns memory that it has allocated.
#include <string>
#include <vector>

namespace simt {
__attribute__((visibility("default"))) std::vector<std::string> reports_of_its_own() {
  return {std::string(40, 'x'), std::string(80, 'y')};
}
}  // namespace simt
