// What a forward stage has to be, whichever way its kernels go, each property once. A chapter's tests name those that
// it claims; tiles, head dimensions, masks and elements are those that its stage says it has on this device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/claims.hpp"
#include "tests/support/forward_stage.hpp"

namespace workbook::test {

// ---- Right, on any input ----

/// Every kind of input (inputs.hpp) with every mask, for every head dimension, on large and on small tiles.
void expect_every_kind(std::optional<Element> element = {});
/// The same for the part of the stage, or of its variant, that one exercise writes: each kind once, small.
void expect_every_kind_in_this_part(const Numbers& variant = {});
/// Kinds that a stage for a second element may get wrong.
void expect_element(Element element);
/// Some of all pairs of lengths, with every mask, head dimension and element: tests/cuda/test_any_lengths.cpp has all.
void expect_any_two_lengths();
/// For what one block does at its ends: short lengths around tiles and warps.
void expect_ragged_tails();
/// Every tile that the device has room for.
void expect_tiles_do_not_matter();
/// The tiles that each size of shared memory has room for, as GPUs have it, for the stage and its variants.
void expect_tiles_for_every_size(int least_KiB = 64);
/// What the previous chapter gives.
void expect_agrees_with_previous();
/// Scales of both signs and 0, where some keys of the last tile do not exist.
void expect_any_scale();
/// More queries than keys under the causal mask: the first ones see none, have O = 0 and an LSE of -inf.
void expect_rows_without_keys();
/// 65600 heads of one query and one key: each gets its own value, exactly.
void expect_every_head();
/// The last heads of tensors with more than 2^32 elements each.
void expect_offsets_beyond_32_bits();

// ---- Right, in each of its parts ----

/// For each `width` columns in sequence: all other columns of Q and K are 0, and one key has all of the weight.
void expect_every_column(std::int64_t width = 16);
/// For each 16 keys in sequence: V is small in all other rows.
void expect_every_value();
/// Rows whose scores lie far apart: relative to another row's maximum they are all 0, or infinite.
void expect_row_maxima();
void expect_rising_maximum();
/// Large logits stay finite, negative ones too.
void expect_finite();
/// P in fp16 and nothing coarser, and an l of what was not rounded.
void expect_precise_P();
/// 64 tiles and more: what is rounded in each is off.
void expect_precise_sums();
/// With a V of ones O is one; and rows whose l differ.
void expect_divided_once();
void expect_lse_over_all_keys();
void expect_every_element_written();
/// In several orders of lanes and copies: the simulator reports races.
void expect_no_race();

// ---- Independent of what is none of its business ----

/// Rows of Q, but for those of one row's `block`, become something else, NaN at last.
void expect_rows_independent(std::int64_t block = 1);
/// Memory after the last row of Q, K and V has no influence.
void expect_nothing_past_the_end();
/// Keys that a query does not see become other numbers; those of tiles that its block does not see become NaN.
void expect_no_future();
/// The simulator's number of workers and order of lanes: O, the LSE and the counters stay the same, bit for bit.
void expect_order_changes_nothing();
/// Run after run, with the lanes and copies in another order each time if `in_other_orders`.
void expect_repeatable(int runs, bool in_other_orders = false);

// ---- And it costs what it must ----

/// How a stage moves its tensors.
struct Moves {
  const char* in = "async";     ///< Q, K and V: "load", "async", "bulk_load"
  const char* out = "store";    ///< O
  bool whole_tiles = false;     ///< rows that do not exist are brought too
  std::int64_t query_part = 0;  ///< of Q then in parts of so many, of which some row exists; 0: its tiles too are whole
  std::int64_t least_tiles = 0;  ///< so many tiles of keys a block takes, whatever it sees
};
/// Q is read once, K and V by each tile of queries up to the last key that it sees, O and the LSE are written once, and
/// nothing else is moved.
void expect_moves(const Moves& moves = {});
/// Q, K and V are read 16 bytes a thread: "load" or "async".
void expect_wide_tiles(const std::string& way);
/// The next tiles are copied while the products of a tile are computed; `alone`: how much of the last tile's products
/// has no copy to run beside, 1 if all of them.
void expect_matmuls_beside_copies(std::int64_t d, double alone);
/// O is written 16 bytes per thread.
void expect_wide_O();
/// A warp releases a stage as soon as it has read it, before the softmax.
void expect_early_release(const worker::Reply& reply, const std::string& how);
/// Consumers issue wgmma only within their issue windows, except for the last O += P V (`last` wgmma of all warps), and
/// do not wait for wgmma within a window.
void expect_issue_windows(const worker::Reply& reply, double last, const std::string& how);
/// The stage allocates no device memory beside Q, K, V, O and the LSE but the bytes it needs, whatever N is. `stored`:
/// what it most likely stores there.
void expect_no_extra_memory(const std::string& stored = "S or P", std::int64_t needed = 0);

}  // namespace workbook::test
