// Which version of a function runs, in a program that holds several (common/book/combine.hpp). A worker sets the number
// before each call.
#pragma once

namespace workbook {

namespace detail {
extern int version;  ///< of the running call; 0: the book's. Defined in common/worker/server.cpp
}
/// The compiler may evaluate it once for several uses: no kernel changes it.
[[gnu::pure]] inline int version() {
  return detail::version;
}

}  // namespace workbook
