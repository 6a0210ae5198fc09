// Correct kernels give the correct result and no report: in every order of lanes and warps, on one thread and on
// several.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "common/simt/simulator.hpp"
#include "tests/simt/cases.hpp"

namespace {

void check_no_reports(std::span<const zoo::Case> cases) {
  for (const zoo::Case& c : cases) {
    INFO(c.name);
    simt::clear_launches();
    CHECK_NOTHROW(c.run());
    CHECK(simt::last_launch().reports.empty());
  }
}

}  // namespace

TEST_CASE("right kernels give the right answer and no report") {
  simt::options().order = GENERATE(simt::Order::natural, simt::Order::reversed, simt::Order::shuffled);
  simt::options().workers = GENERATE(1, 2);
  check_no_reports(zoo::right_cases());
  check_no_reports(zoo::counted_cases());
  check_no_reports(zoo::instruction_cases());
  simt::options() = simt::Options();
}

TEST_CASE("right kernels run with observation switched off") {
  simt::options().count = simt::options().detect = false;
  check_no_reports(zoo::right_cases());
  check_no_reports(zoo::instruction_cases());
  CHECK(!simt::last_launch().counted);
  simt::options() = simt::Options();
}

TEST_CASE("there are at least 30 of each kind") {
  CHECK(zoo::right_cases().size() >= 30);
  CHECK(zoo::race_cases().size() + zoo::memory_cases().size() + zoo::warp_cases().size() >= 30);
}
