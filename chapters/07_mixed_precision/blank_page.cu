// Chapter 7, the blank page: what stands here is up to you. blank_page.hpp says what it does and what it may cost.
//
// Test it: ./workbook test 7.7
#include "blank_page.hpp"

#include <type_traits>

#include "common/cuda/dispatch.hpp"

namespace ch07 {

// TODO(7.7) Design a kernel, and start it (about 115 lines).
// BEGIN 7.7
void blank_page(const workbook::cuda::ForwardCall<half>& call) {
  WORKBOOK_TODO(7.7);
}
// END 7.7

}  // namespace ch07
