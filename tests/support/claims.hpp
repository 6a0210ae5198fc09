// Tests that are one property each: a chapter claims it, by the name of the test, for an exercise or for the whole. A
// test case is made of each row, as of TEST_CASE(name, tag) { property(); }.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <source_location>

namespace workbook::test {

struct Claim {
  const char *tag, *name;
  void (*property)();
};

struct Claims {
  Claims(std::initializer_list<Claim> claims, std::source_location where = std::source_location::current()) {
    for (const auto& [tag, name, property] : claims)
      Catch::AutoReg(Catch::makeTestInvoker(property), {where.file_name(), where.line()}, "", {name, tag});
  }
};

}  // namespace workbook::test
