// Every planted mistake is reported: as what it is, at its line, with the variable's name and both sides; nothing else
// is.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <exception>

#include "common/simt/simulator.hpp"
#include "tests/simt/cases.hpp"
#include "tests/simt/sources.hpp"

namespace {

using simt::Mistake;

struct Expected {
  const char* name;
  Mistake mistake;
  const char* variable;  ///< the report's variable begins with this
};

constexpr Expected races[] = {
    {"missing_barrier", Mistake::read_after_write, "tile"},
    {"missing_barrier_before_overwrite", Mistake::write_after_read, "tile"},
    {"two_writers", Mistake::write_after_write, "maximum"},
    {"partial_maximum_ignored", Mistake::read_after_write, "warp_sum"},
    {"flag_of_one_thread", Mistake::read_after_write, "flag"},
    {"reduction_without_barriers", Mistake::read_after_write, "s"},
    {"histogram_without_atomics", Mistake::write_after_write, "bins"},
    {"atomic_and_plain", Mistake::read_after_write, "count"},
    {"halves_read_in_pairs", Mistake::read_after_write, "tile"},
    {"missing_syncwarp", Mistake::read_after_write, "tile"},
    {"missing_syncwarp_before_overwrite", Mistake::write_after_read, "tile"},
    {"own_read_before_the_other", Mistake::write_after_read, "tile"},
    {"own_read_after_the_other", Mistake::write_after_read, "tile"},
    {"two_lanes_write", Mistake::write_after_write, "tile"},
    {"shuffle_is_no_barrier", Mistake::read_after_write, "tile"},
    {"half_warp_barrier", Mistake::read_after_write, "tile"},
    {"wmma_load_without_barrier", Mistake::read_after_write, "A["},
    {"wmma_store_then_read", Mistake::read_after_write, "C["},
    {"wmma_tile_overwritten", Mistake::write_after_read, "A["},
    {"wmma_two_warps_store", Mistake::write_after_write, "C["},
    {"async_not_waited_for", Mistake::pending_copy, "tile"},
    {"async_without_barrier", Mistake::read_after_write, "tile"},
    {"async_waits_for_too_few", Mistake::pending_copy, "tile"},
    {"async_never_committed", Mistake::pending_copy, "tile"},
    {"async_over_data_still_read", Mistake::write_after_read, "tile"},
    {"async_own_bytes_touched", Mistake::pending_copy, "tile"},
};

constexpr Expected memory[] = {
    {"read_past_end", Mistake::outside_global, ""},
    {"write_past_end", Mistake::outside_global, ""},
    {"read_before_beginning", Mistake::outside_global, ""},
    {"vector_over_end", Mistake::outside_global, "a"},
    {"null_pointer", Mistake::outside_global, ""},
    {"wmma_past_end", Mistake::outside_global, ""},
    {"async_past_end", Mistake::outside_global, "a"},
    {"read_unwritten", Mistake::uninitialised_global, "scratch"},
    {"never_written", Mistake::never_written, "b"},
    {"written_twice", Mistake::written_twice, "b"},
    {"accumulated_in_output", Mistake::written_twice, "b"},
    {"static_index", Mistake::outside_array, ""},
    {"static_row", Mistake::outside_array, ""},
    {"local_index", Mistake::outside_array, ""},
    {"dynamic_past_launched", Mistake::outside_shared, "dynamic shared memory"},
    {"struct_larger_than_launched", Mistake::outside_shared, "Smem"},
    {"member_row", Mistake::outside_array, ""},
    {"member_padding", Mistake::padding, "K["},
    {"member_into_next", Mistake::outside_shared, ""},
    {"wmma_into_next_member", Mistake::outside_shared, "K[8][0]"},
    {"unseen_store", Mistake::unseen_store, "s"},
    {"unseen_row", Mistake::unseen_store, "rows"},
    {"unseen_output", Mistake::unseen_store, "b"},
    {"uninitialised", Mistake::uninitialised_shared, "s"},
    {"uninitialised_sum", Mistake::uninitialised_shared, "s"},
    {"uninitialised_tail", Mistake::uninitialised_shared, "K["},
    {"misaligned_global", Mistake::misaligned, "a"},
    {"misaligned_shared", Mistake::misaligned, "s"},
    {"misaligned_wmma_pointer", Mistake::misaligned, "a"},
    {"misaligned_wmma_leading", Mistake::misaligned, "s"},
    {"misaligned_async", Mistake::misaligned, ""},
};

constexpr Expected warps[] = {
    {"barrier_in_both_branches", Mistake::divergent_barrier, ""},
    {"barrier_in_one_branch", Mistake::divergent_barrier, ""},
    {"barrier_for_half_a_warp", Mistake::divergent_barrier, ""},
    {"syncwarp_against_syncthreads", Mistake::deadlock, ""},
    {"shuffle_in_a_branch", Mistake::deadlock, ""},
    {"masks_that_overlap", Mistake::deadlock, ""},
    {"different_functions", Mistake::divergent_collective, ""},
    {"caller_not_in_mask", Mistake::divergent_collective, ""},
    {"shuffle_from_outside", Mistake::inactive_lane, ""},
    {"shuffle_after_exit", Mistake::inactive_lane, ""},
    {"mma_without_all_lanes", Mistake::inactive_lane, ""},
    {"matrix_load_in_a_branch", Mistake::divergent_collective, ""},
    {"matrix_pointer_by_lane", Mistake::divergent_collective, ""},
    {"accumulator_not_cleared", Mistake::unset_fragment, ""},
    {"operand_not_loaded", Mistake::unset_fragment, ""},
    {"stored_without_a_product", Mistake::unset_fragment, ""},
    {"failed_assertion", Mistake::assertion, ""},
    {"turn_never_passed", Mistake::deadlock, "turns"},
};

constexpr Expected instructions[] = {
    {"ldmatrix_without_barrier", Mistake::read_after_write, "K["},
    {"ldmatrix_tile_overwritten", Mistake::write_after_read, "K["},
    {"stmatrix_then_read", Mistake::read_after_write, "K["},
    {"stmatrix_of_two_warps", Mistake::write_after_write, "K["},
    {"stmatrix_rows_overlap", Mistake::write_after_write, "K["},
    {"ldmatrix_of_pending_copy", Mistake::pending_copy, "K["},
    {"wait_for_too_few_groups", Mistake::pending_copy, "K"},
    {"stage_of_the_next_copy", Mistake::wrong_stage, "K["},
    {"group_never_committed", Mistake::pending_copy, "K["},
    {"copy_over_rows_still_loaded", Mistake::write_after_read, "K"},
    {"named_barrier_of_another_pair", Mistake::read_after_write, "s"},
    {"named_barrier_before_the_read_only", Mistake::write_after_read, "s"},
    {"ldmatrix_misaligned", Mistake::misaligned, "K"},
    {"stmatrix_misaligned", Mistake::misaligned, "K["},
    {"ldmatrix_of_global_memory", Mistake::outside_shared, ""},
    {"ldmatrix_past_launched", Mistake::outside_shared, "dynamic shared memory"},
    {"ldmatrix_into_next_member", Mistake::outside_shared, "V["},
    {"ldmatrix_of_padding", Mistake::padding, "K["},
    {"stmatrix_into_padding", Mistake::padding, "K["},
    {"ldmatrix_uninitialised", Mistake::uninitialised_shared, "K["},
    {"copy_of_too_many_bytes", Mistake::misaligned, ""},
    {"ldmatrix_in_a_branch", Mistake::divergent_collective, ""},
    {"ldmatrix_in_two_branches", Mistake::divergent_collective, ""},
    {"ldmatrix_of_two_kinds", Mistake::divergent_collective, ""},
    {"ldmatrix_after_exit", Mistake::inactive_lane, ""},
    {"stmatrix_after_exit", Mistake::inactive_lane, ""},
    {"mma_after_exit", Mistake::inactive_lane, ""},
    {"mma_against_shuffle", Mistake::divergent_collective, ""},
    {"A_never_loaded", Mistake::unset_fragment, ""},
    {"A_partly_computed", Mistake::unset_fragment, ""},
    {"B_never_loaded", Mistake::unset_fragment, ""},
    {"B_of_some_lanes", Mistake::unset_fragment, ""},
    {"D_never_filled", Mistake::unset_fragment, ""},
    {"D_scaled_but_never_filled", Mistake::unset_fragment, ""},
    {"D_declared_in_the_loop", Mistake::unset_fragment, ""},
    {"P_of_scores_never_set", Mistake::unset_fragment, ""},
    {"tf32_never_loaded", Mistake::unset_fragment, ""},
    {"stmatrix_of_nothing", Mistake::unset_fragment, ""},
};

std::string all_texts(const std::vector<simt::Report>& reports) {
  std::string text;
  for (const simt::Report& report : reports) text += report.text();
  return text;
}

/// Runs one case and compares its reports with what its source says.
void check(const zoo::Case& c, const Expected& expected, const zoo::MarkedLines& lines, const std::string& file) {
  INFO(c.name);
  simt::clear_launches();
  std::string thrown;
  try {
    c.run();
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  REQUIRE(!thrown.empty());
  const std::vector<simt::Report> reports = simt::last_launch().reports;
  INFO("what was thrown:\n" << thrown << "the reports:\n" << all_texts(reports));
  // Seen when the output is fetched, so not in the launch.
  if (expected.mistake == Mistake::never_written || c.name == std::string("unseen_output")) {
    CHECK(thrown.find(simt::name(expected.mistake)) != std::string::npos);
    return;
  }
  CHECK(thrown == all_texts(reports));
  const auto at = [&](const auto& by_name) {
    const auto found = by_name.find(c.name);
    return found == by_name.end() ? std::set<int>() : found->second;
  };
  const std::set<int> bug = at(lines.bug), other = at(lines.other);
  REQUIRE(!bug.empty());

  const auto right = std::find_if(reports.begin(), reports.end(), [&](const simt::Report& r) {
    return r.mistake == expected.mistake && bug.count(r.side.source.line) == 1 &&
           (other.empty() || !r.other || other.count(r.other->source.line) == 1) &&
           r.variable.rfind(expected.variable, 0) == 0;
  });
  REQUIRE(right != reports.end());
  if (!other.empty() && expected.mistake != Mistake::outside_shared) CHECK(right->other.has_value());
  CHECK(!right->what.empty());
  CHECK(!right->advice.empty());
  CHECK(right->count > 0);
  if (expected.mistake != Mistake::deadlock && expected.mistake != Mistake::divergent_barrier)
    CHECK(right->side.lanes != 0);
  // No report points anywhere else, and none comes twice.
  for (const simt::Report& report : reports) {
    CHECK(report.side.source.file.find(file) != std::string::npos);
    CHECK(bug.count(report.side.source.line) + other.count(report.side.source.line) > 0);
    if (report.other && !other.empty())
      CHECK(bug.count(report.other->source.line) + other.count(report.other->source.line) > 0);
    CHECK(std::count_if(reports.begin(), reports.end(), [&](const simt::Report& r) {
            return r.mistake == report.mistake && r.side.source.line == report.side.source.line &&
                   r.what == report.what &&
                   (r.other ? r.other->source.line : 0) == (report.other ? report.other->source.line : 0);
          }) == 1);
  }
}

template <class Table>
void check_all(std::span<const zoo::Case> cases, const Table& table, const std::string& file) {
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation");
  const zoo::MarkedLines lines = zoo::marked_lines(ZOO_SOURCES "/" + file);
  REQUIRE(cases.size() == std::size(table));
  const auto order = GENERATE(simt::Order::natural, simt::Order::reversed, simt::Order::shuffled);
  simt::options().order = order;
  for (const zoo::Case& c : cases) {
    const auto expected = std::find_if(std::begin(table), std::end(table),
                                       [&](const Expected& e) { return std::string(e.name) == c.name; });
    REQUIRE(expected != std::end(table));
    check(c, *expected, lines, file);
  }
  simt::options() = simt::Options();
}

}  // namespace

TEST_CASE("every planted race is reported at its line") {
  check_all(zoo::race_cases(), races, "mistakes_races.cu");
}
TEST_CASE("every planted wrong access is reported at its line") {
  check_all(zoo::memory_cases(), memory, "mistakes_memory.cu");
}
TEST_CASE("every planted mistake of threads that do not come together is reported at its line") {
  check_all(zoo::warp_cases(), warps, "mistakes_warps.cu");
}
TEST_CASE("reports on instructions name the group to wait for, the matrix and the lanes") {
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation");
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
  // Three groups; two of them are left, of which the older one is read.
  const simt::Report group = report_of("wait_for_too_few_groups");
  CHECK(contains(group.what, "of a group with 1 newer after it"));
  CHECK(contains(group.advice, "cp_async_wait_group<1>"));
  CHECK(contains(report_of("ldmatrix_of_pending_copy").what, "newest group"));
  CHECK(contains(report_of("ldmatrix_of_pending_copy").advice, "cp_async_wait_group<0>"));
  CHECK(contains(report_of("group_never_committed").what, "no commit"));
  CHECK(report_of("stage_of_the_next_copy").variable.starts_with("K[1]["));
  CHECK(contains(report_of("stage_of_the_next_copy").what, "what K[0]["));
  CHECK(contains(report_of("A_partly_computed").what, "matrix A"));
  CHECK(contains(report_of("D_never_filled").what, "D, to which the product is added"));
  CHECK(contains(report_of("B_of_some_lanes").what, "matrix B"));
  CHECK(report_of("B_of_some_lanes").side.lanes == 0xc0000000u);
  CHECK(report_of("mma_after_exit").side.lanes == 0x00ffffffu);
  CHECK(contains(report_of("ldmatrix_into_next_member").what, "this row lies in V, the first one in K"));
}
TEST_CASE("every planted mistake with ldmatrix, stmatrix, mma and groups of cp.async is reported at its line") {
  check_all(zoo::instruction_mistakes(), instructions, "mistakes_instructions.cu");
}
