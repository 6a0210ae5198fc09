// What the simulator's library does with memory, in small: it returns what it has allocated.
#include <string>
#include <vector>

namespace simt {
__attribute__((visibility("default"))) std::vector<std::string> reports_of_its_own() {
  return {std::string(40, 'x'), std::string(80, 'y')};
}
}  // namespace simt
