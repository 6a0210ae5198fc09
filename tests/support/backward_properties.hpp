// Properties of a backward stage whose kernel holds a K/V tile, streams Q tiles and accumulates dQ in device memory, in
// any order or in a fixed one; each property once. A chapter's tests name those that it claims; sizes, head dimensions
// and element types are those that its stage supports on this device.
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
/// In deterministic mode, with several heads, whose K/V tiles draw tickets from one counter.
void expect_right_deterministic();
/// The last heads of tensors with more than 2^32 elements each.
void expect_offsets_beyond_32_bits();

// ---- Right, in each of its parts ----

/// For each 16 columns in sequence: Q and dO are small in all other columns.
void expect_every_column();
void expect_pair_scores();
void expect_P_from_the_lse();
/// The scores of different queries, and so their LSE, differ by orders of magnitude.
void expect_lse_and_D_of_query();
void expect_D_before_rounding();
/// A masked pair has P = 0 for a negative scale and a scale of 0 too.
void expect_masked_pairs();
void expect_causal(std::int64_t Nq);
/// exp2(-LSE) is infinite, so dS of a missing key would be too.
void expect_no_keys_past_the_end();
/// More queries than keys under the causal mask.
void expect_rows_without_keys();
/// A call with a gradient of the LSE, by the operation "backward_dlse".
void expect_lse_gradient();
/// For each 16 queries in sequence: dO is small in all other rows.
void expect_dV();
void expect_dK();
void expect_rounded_once();
void expect_dQ();
/// For each 16 keys in sequence: K is small in all other rows.
void expect_every_key_in_dQ();
/// In several orders of lanes: the simulator reports what is touched too early, whatever the numbers are.
void expect_no_race(const Shape& shape, std::uint64_t seed, const std::vector<Numbers>& variants, int orders);

// ---- Independent of other data and of the order ----

/// Keys and queries that the causal mask excludes get other values of K, V, Q and dO.
void expect_no_future();
/// In deterministic mode, `runs` runs give the same bits.
void expect_repeatable_deterministic(int runs);
/// In any order dQ alone differs from run to run, within its bounds.
void expect_only_dQ_differs();
void expect_order_changes_only_dQ();

// ---- Cost ----

/// How a stage moves its tensors.
struct Moves {
  const char* in = "async";      ///< Q, K, V and dO: "async", "bulk_load"
  const char* out = "store";     ///< dK and dV: "store", "bulk_store"
  bool whole_tiles = false;      ///< missing rows are loaded too
  bool added_by_threads = true;  ///< dQ's sum: counted in sectors of 32 bytes; else the bytes of TMA's additions are
};
/// K and V are read once, Q and dO once per K/V tile that they attend to, dK, dV and dQ are written once, and each K/V
/// tile adds to dQ of each of its Q tiles once.
void expect_moves(const Moves& moves);
/// Only Q tiles with an unmasked pair are loaded, and only those on the diagonal or at the end are masked.
void expect_blocks_loaded(const worker::Reply& reply, const Moves& moves, const Problem& problem, const Sizes& sizes);
void expect_blocks_masked(const worker::Reply& reply, const Problem& problem, const Sizes& sizes);
/// Each K/V tile, or each of its warps, releases the semaphore of each Q tile that it visits once.
void expect_semaphores(bool of_each_warp);
/// The stage allocates `a_query` bytes of device memory per query, and `an_element` per element of dQ.
void expect_extra_memory(std::int64_t a_query, std::int64_t an_element);

}  // namespace workbook::test::gradients
