// Chapter 14, backward: which row blocks pass by a column block of K and V, and in which order.
//
// Test it: ./workbook test 14.8
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch14 {
namespace {

/// A row block of a head of Q. Heads are counted through the batch.
struct RowBlock {
  int head, number;
};

/// The row blocks that pass by a column block: of the `group` heads of Q from first_head on, one head after the other,
/// those from number `begin` to number `end` - 1. There may be none: then begin >= end.
struct Walk {
  int first_head, group, begin, end;
  // TODO(14.8) How many row blocks pass by. And which one comes as number `step`, from 0 on (about 2 lines).
  // BEGIN 14.8
  __device__ int steps() const { WORKBOOK_TODO(14.8); }
  __device__ RowBlock at(int step) const { WORKBOOK_TODO(14.8); }
  // END 14.8
};

}  // namespace
}  // namespace ch14
