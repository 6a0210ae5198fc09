// A ring: every rank adds the shards of all, one of which arrives while the previous one is being added.
#pragma once

#include <vector>

namespace rings {

enum class Bug {
  none,
  no_wait_for_arrival,  ///< a shard is added before it has arrived
  no_wait_for_use,      ///< a shard is received into a buffer that is still being added
  one_buffer,           ///< the send and the receive of a step use one buffer
  written_in_flight,    ///< a shard is changed while it is being sent
  uploaded_in_flight,   ///< the host uploads into a buffer while it is being sent
  no_group,             ///< the send waits for a receive that comes after it
  wrong_count,          ///< a rank receives less than its neighbour sends
  wrong_type,
  wrong_neighbour,        ///< a rank receives from the rank to which it sends
  surplus_send,           ///< rank 1 sends once more than rank 2 receives
  one_step_less,          ///< the last rank ends early
  open_group,             ///< a last ncclGroupStart has no ncclGroupEnd
  memory_of_a_neighbour,  ///< a rank adds its neighbour's memory without a transfer
  one_step_more,          ///< the last step sends as well: right, with needless bytes
};

/// The sums of every rank; rank r's shard is 1000 r + i.
std::vector<std::vector<float>> add_in_a_ring(int ranks, int n, Bug bug);

/// Rank 0 sends all of its n elements and one more.
void send_too_much(int n);

enum class Collective { all_gather, in_place, reduce_scatter, all_reduce, different, different_counts, late_event };
/// The result of a collective, by rank.
std::vector<std::vector<float>> collect(int ranks, int n, Collective which);

}  // namespace rings
