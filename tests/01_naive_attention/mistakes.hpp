// The known mistakes of chapter 1 that other files name.
#pragma once

#include <vector>

#include "common/judge/mistakes.hpp"

namespace workbook::test::ch01 {

using Attention = judge::AttentionModel;
using AttentionTable = judge::MistakeTable<Attention>;

/// In exercises that are tested alone. Q: (1, 1, Nq, d), K: (1, 1, Nk, d), S: (1, 1, Nq, Nk), masked where
/// problem.causal() says so.
std::vector<judge::Mistake> score_mistakes(const Problem& problem);
std::vector<judge::Mistake> softmax_mistakes(const Tensor<float>& S);
std::vector<judge::Mistake> row_lse_mistakes(const Tensor<float>& S);
std::vector<judge::Mistake> product_mistakes(const Tensor<float>& P, const Tensor<float>& V);

/// Tables that later chapters build upon.
AttentionTable masks();
/// The same mistakes, made by a causal stage that goes through all tiles, or through the right ones alone: those that
/// a row of the Q tile sees.
AttentionTable in_all_tiles(const AttentionTable& table);
AttentionTable in_right_tiles(const AttentionTable& table);
/// Those of the table with these ids, made in the right tiles, where it is not known which tiles the stage goes
/// through: each of them does harm.
AttentionTable in_each_visit(const AttentionTable& table, const std::vector<std::string>& ids);
AttentionTable softmaxes();
/// m starts at a number that scores of a test lie far below.
AttentionTable finite_starts();
AttentionTable divisions();
/// m, l and O from one {tile} to the next.
AttentionTable running();
/// What is tried last, since it says little.
AttentionTable nothing();

/// An element of V's, K's or Q's memory if it is taken for the transposed matrix.
judge::Index place_in_transposed(const Tensor<float>& tensor, judge::Index b, judge::Index h, judge::Index row,
                                 judge::Index column);

}  // namespace workbook::test::ch01
