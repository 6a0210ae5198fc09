// Chapter 16: mask predicates (the mask_mod of FlexAttention), any function of a query and a key. A predicate is a
// type, so that the compiler inlines it where a pair is tested. It has
//
//   mask_mod(diagonal, key)   whether the query with this diagonal attends to the key
//
// Query i is aligned with key i + (Nk - Nq), its diagonal, as in chapter 15. With Nq > Nk the diagonal may be negative.
//
// Source: Dong et al. 2024 (FlexAttention), section 3; Raffel et al. 2019 (T5), section 3.2.1, for the prefix; Child et
// al. 2019 (Sparse Transformers), section 4.3, for strides.
// Test it: ./workbook test 16.1
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch16 {
namespace {

/// Documents, packed one after the other: a query attends to the keys of its own document, up to its diagonal.
struct Documents {
  const int* __restrict__ document;  // (Nk): the index of each token's document

  // TODO(16.1) Whether the query attends to the key. Do not read `document` at a negative diagonal (1 line).
  // STUB: __device__ bool operator()(int diagonal, int key) const { WORKBOOK_TODO(16.1); }
  // BEGIN 16.1
  __device__ bool operator()(int diagonal, int key) const {
    return key <= diagonal && document[diagonal] == document[key];
  }
  // END 16.1
};

// TODO(16.2) Two more predicates (1 line each). Prefix: a query attends to the first `length` keys, and to the keys up
// to its diagonal. A length of 0 is the causal mask, a length of Nk is no mask. Strided: divide the keys up to the
// diagonal into groups of `stride` keys, counted back from the diagonal. A query attends to the last `width` keys of
// each group.
// STUB: struct Prefix {
// STUB:   int length;
// STUB:   __device__ bool operator()(int diagonal, int key) const { WORKBOOK_TODO(16.2); }
// STUB: };
// STUB: struct Strided {
// STUB:   int width, stride;
// STUB:   __device__ bool operator()(int diagonal, int key) const { WORKBOOK_TODO(16.2); }
// STUB: };
// BEGIN 16.2
struct Prefix {
  int length;
  __device__ bool operator()(int diagonal, int key) const { return key < length || key <= diagonal; }
};
struct Strided {
  int width, stride;
  __device__ bool operator()(int diagonal, int key) const {
    return key <= diagonal && (diagonal - key) % stride < width;
  }
};
// END 16.2

/// Whether a pair is unmasked, from the indices of its query and key. A pair whose query or key does not exist is
/// masked.
template <class MaskMod>
struct PairMask {
  MaskMod mask_mod;
  int Nq, Nk;
  __device__ bool operator()(int query, int key) const {
    return query < Nq && key < Nk && mask_mod(query + Nk - Nq, key);
  }
};

}  // namespace
}  // namespace ch16
