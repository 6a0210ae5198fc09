// Chapter 14, backward: which Q tiles pass by a K/V tile of K and V, and in which order.
//
// Test it: ./workbook test 14.8
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch14 {
namespace {

/// A Q tile of a head of Q. Heads are counted through the batch.
struct QTile {
  int head, number;
};

/// The Q tiles that pass by a K/V tile: of the `group` heads of Q from first_head on, one head after the other,
/// those from number `begin` to number `end` - 1. There may be none: then begin >= end.
struct Walk {
  int first_head, group, begin, end;
  // TODO(14.8) How many Q tiles pass by. And which one comes as number `step`, from 0 on (about 2 lines).
  // BEGIN 14.8
  __device__ int steps() const { WORKBOOK_TODO(14.8); }
  __device__ QTile at(int step) const { WORKBOOK_TODO(14.8); }
  // END 14.8
};

}  // namespace
}  // namespace ch14
