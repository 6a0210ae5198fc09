// Chapter 16: which pairs of a query and a key count, as any function of the two. A predicate is a type, so that the
// compiler puts it where pairs are asked, as FlexAttention's mask_mod is. It has
//
//   predicate(at, key)     whether the query that stands at key `at` sees this key
//
// Query i stands at key i + (Nk - Nq), the diagonal, as in chapter 15; with Nq > Nk that may be negative.
//
// Source: Dong et al. 2024 (FlexAttention), section 3; Raffel et al. 2020 (T5), section 3.2.1, for the prefix; Child et
// al. 2019 (Sparse Transformers), section 4.3, for strides.
// Test it: ./workbook test 16.1
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch16 {
namespace {

/// Texts that are packed one after the other: a query sees the keys of its own document up to its own place.
struct Documents {
  const int* __restrict__ document;  // (Nk): the number of each token's document

  // TODO(16.1) Whether the query sees the key (1 line). `at` may be negative: ask for no document there.
  // STUB: __device__ bool operator()(int at, int key) const { WORKBOOK_TODO(16.1); }
  // BEGIN 16.1
  __device__ bool operator()(int at, int key) const { return key <= at && document[at] == document[key]; }
  // END 16.1
};

// TODO(16.2) Two more predicates. Prefix: the first `length` keys are seen by all queries, the others up to a query's
// own place; with a length of 0 that is the causal mask, with all keys no mask. Strided: a query sees the last `width`
// of the `stride` keys that end at its own place, again the last `width` of the `stride` keys before these, and so on
// (1 line each).
// STUB: struct Prefix {
// STUB:   int length;
// STUB:   __device__ bool operator()(int at, int key) const { WORKBOOK_TODO(16.2); }
// STUB: };
// STUB: struct Strided {
// STUB:   int width, stride;
// STUB:   __device__ bool operator()(int at, int key) const { WORKBOOK_TODO(16.2); }
// STUB: };
// BEGIN 16.2
struct Prefix {
  int length;
  __device__ bool operator()(int at, int key) const { return key < length || key <= at; }
};
struct Strided {
  int width, stride;
  __device__ bool operator()(int at, int key) const { return key <= at && (at - key) % stride < width; }
};
// END 16.2

/// A predicate, asked by the numbers of queries and keys. Those that do not exist make no pair.
template <class Predicate>
struct Pairs {
  Predicate predicate;
  int Nq, Nk;
  __device__ bool operator()(int query, int key) const {
    return query < Nq && key < Nk && predicate(query + Nk - Nq, key);
  }
};

}  // namespace
}  // namespace ch16
