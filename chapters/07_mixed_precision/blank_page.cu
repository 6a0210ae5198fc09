// Chapter 7, the blank page: a kernel of your own design. blank_page.hpp gives its function and its limits.
//
// Test it: ./workbook test 7.7
#include "blank_page.hpp"

#include <type_traits>

#include "common/cuda/dispatch.hpp"

namespace ch07 {

// TODO(7.7) Design a kernel, and launch it (about 115 lines).
// BEGIN 7.7
void blank_page(const workbook::cuda::ForwardCall<half>& call) {
  WORKBOOK_TODO(7.7);
}
// END 7.7

}  // namespace ch07
