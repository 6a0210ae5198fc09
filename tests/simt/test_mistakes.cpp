// Every planted mistake is reported with its kind, its line, the variable's name and both sides; nothing else is
// reported.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/simt/planted.hpp"

namespace {

void check_all(std::span<const zoo::Case> cases, const std::string& file) {
  zoo::require_instrumentation();
  simt::options().order = GENERATE(simt::Order::natural, simt::Order::reversed, simt::Order::shuffled);
  check_planted(cases, file, /*alone=*/true);
  simt::options() = simt::Options();
}

}  // namespace

TEST_CASE("every planted race is reported at its line") {
  check_all(zoo::race_cases(), "mistakes_races.cu");
}
TEST_CASE("every planted wrong access is reported at its line") {
  check_all(zoo::memory_cases(), "mistakes_memory.cu");
}
TEST_CASE("an index outside device memory is reported with the element and the number of elements") {
  zoo::require_instrumentation();
  const auto said_of = [](const std::string& name) {
    for (const zoo::Case& c : zoo::memory_cases())
      if (c.name == name) CHECK_THROWS(c.run());
    REQUIRE(!simt::last_launch().reports.empty());
    return simt::last_launch().reports.front().what;
  };
  CHECK(said_of("read_past_end") == "4 bytes, just past the end of a, which has 64 elements: it would be element 64");
  CHECK(said_of("read_before_beginning")
            .ends_with("4 bytes before the beginning of a, which has 64 elements: it would "
                       "be element -1"));
}
TEST_CASE("every planted synchronisation mistake is reported at its line") {
  check_all(zoo::warp_cases(), "mistakes_warps.cu");
}
TEST_CASE("reports on instructions name the group to wait for, the matrix and the lanes") {
  zoo::require_instrumentation();
  const auto report_of = [](const std::string& name) {
    for (const zoo::Case& c : zoo::instruction_mistakes()) {
      if (c.name == name) CHECK_THROWS(c.run());
    }
    REQUIRE(!simt::last_launch().reports.empty());
    return simt::last_launch().reports.front();
  };
  const auto contains = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  // Three groups; two of them are still in flight, and the older one is read.
  const simt::Report group = report_of("wait_for_too_few_groups");
  CHECK(contains(group.what, "of a group with 1 newer after it"));
  CHECK(contains(group.advice, "cp_async_wait_group<1>"));
  CHECK(contains(report_of("ldmatrix_of_pending_copy").what, "newest group"));
  CHECK(contains(report_of("ldmatrix_of_pending_copy").advice, "cp_async_wait_group<0>"));
  CHECK(contains(report_of("group_never_committed").what, "not committed"));
  CHECK(report_of("stage_of_the_next_copy").variable.starts_with("K[1]["));
  CHECK(contains(report_of("stage_of_the_next_copy").what, "the data of K[0]["));
  CHECK(contains(report_of("A_partly_computed").what, "matrix A"));
  CHECK(contains(report_of("D_never_filled").what, "the accumulator D"));
  CHECK(contains(report_of("B_of_some_lanes").what, "matrix B"));
  CHECK(report_of("B_of_some_lanes").side.lanes == 0xc0000000u);
  CHECK(report_of("mma_after_exit").side.lanes == 0x00ffffffu);
  CHECK(contains(report_of("ldmatrix_into_next_member").what, "this row is in V, but the first row is in K"));
}
TEST_CASE("every planted mistake with ldmatrix, stmatrix, mma and groups of cp.async is reported at its line") {
  check_all(zoo::instruction_mistakes(), "mistakes_instructions.cu");
}
