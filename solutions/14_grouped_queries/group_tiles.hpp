// Chapter 14, backward: the Q tiles that a K/V tile loops over, and their order.
//
// Test it: ./workbook test 14.8
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch14 {
namespace {

/// A Q tile of a head of Q. Heads are indexed across the batch.
struct QTile {
  int head, index;
};

/// The Q tiles that a K/V tile loops over: tiles `begin` to `end` - 1 of each of the `group` heads of Q from first_head
/// on, head by head. There are none if begin >= end.
struct GroupTiles {
  int first_head, group, begin, end;
  // TODO(14.8) The number of steps of the loop: one per Q tile. And the Q tile of a step, from step 0 on (about 2
  // lines).
  // STUB: __device__ int steps() const { WORKBOOK_TODO(14.8); }
  // STUB: __device__ QTile at(int step) const { WORKBOOK_TODO(14.8); }
  // BEGIN 14.8
  __device__ int steps() const { return group * max(0, end - begin); }
  __device__ QTile at(int step) const { return {first_head + step / (end - begin), begin + step % (end - begin)}; }
  // END 14.8
};

}  // namespace
}  // namespace ch14
