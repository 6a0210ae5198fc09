// What a backward stage has to be whose kernel owns keys while queries pass by and adds dQ up in device memory, in any
// order or by turns; each property once. A chapter's tests name those that it claims; sizes, head dimensions and
// elements are those that its stage says it has on this device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/backward_stage.hpp"
#include "tests/support/claims.hpp"

namespace workbook::test::gradients {

// ---- Right, on any input ----

/// Every kind of input (inputs.hpp), with the usual sizes and with small ones.
void expect_every_kind_whole();
void expect_bf16();
/// Some of all pairs of lengths, with either mask, head dimension and element: tests/cuda/test_any_lengths.cpp has all.
/// `most`: the largest product Nq·Nk·d on the simulator.
void expect_any_two_lengths(std::int64_t most);
/// Every size that the device has room for.
void expect_sizes_do_not_matter();
/// The sizes that each size of shared memory has room for, as GPUs have it, for the stage and its variants.
void expect_sizes_for_every_memory(int least_KiB);
/// By turns: with several heads, whose K/V tiles take their tickets together.
void expect_right_deterministic();
/// The last heads of tensors with more than 2^32 elements each.
void expect_offsets_beyond_32_bits();

// ---- Right, in each of its parts ----

/// Q and dO are small but for 16 columns, in turn.
void expect_every_column();
void expect_own_scores();
void expect_P_from_the_lse();
/// The queries' scores differ by far in size, and so do their LSE.
void expect_own_lse_and_D();
void expect_D_before_rounding();
/// Neither a negative scale nor 0 makes anything of a pair that does not count.
void expect_uncounted_pairs();
void expect_causal(std::int64_t Nq);
/// exp2(-LSE) is infinite, and so is dS of a key that does not exist.
void expect_no_keys_behind();
/// More queries than keys under the causal mask.
void expect_rows_without_keys();
/// A call that brings a gradient of the LSE, too, by the operation "backward_dlse".
void expect_lse_gradient();
/// dO is small but for 16 queries, in turn.
void expect_dV();
void expect_dK();
void expect_rounded_once();
void expect_dQ();
/// K is small but for 16 keys, in turn.
void expect_every_key_in_dQ();
/// In several orders of lanes: the simulator reports what is touched too early, whatever the numbers are.
void expect_no_race(const Shape& shape, std::uint64_t seed, const std::vector<Numbers>& variants, int orders);

// ---- Independent of what is none of its business ----

/// K and V of keys, and Q and dO of queries, that the causal mask hides become other numbers.
void expect_no_future();
/// By turns, run after run.
void expect_repeatable_deterministic(int runs);
/// In any order dQ alone differs from run to run, within its bounds.
void expect_only_dQ_differs();
void expect_order_changes_only_dQ();

// ---- And it costs what it must ----

/// How a stage moves its tensors.
struct Moves {
  const char* in = "async";      ///< Q, K, V and dO: "async", "bulk_load"
  const char* out = "store";     ///< dK and dV: "store", "bulk_store"
  bool whole_tiles = false;      ///< rows that do not exist are brought too
  bool added_by_threads = true;  ///< dQ's sum: counted in sectors of 32 bytes; else the bytes of TMA's additions are
};
/// K and V are read once, Q and dO by every K/V tile that they see, dK, dV and dQ are written once, and each row
/// block is added to once for each K/V tile.
void expect_moves(const Moves& moves);
/// Only Q tiles that see a key are loaded; and only those are masked that the diagonal or the end crosses.
void expect_blocks_loaded(const worker::Reply& reply, const Moves& moves, const Problem& problem, const Sizes& sizes);
void expect_blocks_masked(const worker::Reply& reply, const Problem& problem, const Sizes& sizes);
/// Each K/V tile ends its turn in each Q tile that it visits, or each of its warps does.
void expect_semaphores(bool of_each_warp);
/// So many bytes of device memory for each query, and for each element of dQ.
void expect_extra_memory(std::int64_t a_query, std::int64_t an_element);

}  // namespace workbook::test::gradients
