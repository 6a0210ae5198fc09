// Chapter 1's exercises as operations that the tests call by name, each alone.
#include "common/cuda/operations.hpp"

#include "naive_attention.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;

// Nq, Nk, d, scale, causal; Q (Nq, d), K (Nk, d) -> S (Nq, Nk)
void scaled_scores(const Arguments& call) {
  const std::int64_t Nq = call.integer("Nq"), Nk = call.integer("Nk"), d = call.integer("d");
  ch01::scaled_scores({"Q", call.input("Q"), Nq, d}, {"K", call.input("K"), Nk, d}, {"S", call.output("S"), Nq, Nk},
                      float(call.number("scale")), call.flag("causal"));
}

// Nq, Nk; S (Nq, Nk) -> P (Nq, Nk), lse (Nq)
void softmax_rows(const Arguments& call) {
  const std::int64_t Nq = call.integer("Nq"), Nk = call.integer("Nk");
  ch01::softmax_rows({"S", call.input("S"), Nq, Nk}, {"P", call.output("P"), Nq, Nk}, call.output("lse"));
}

// Nq, Nk, d; P (Nq, Nk), V (Nk, d) -> O (Nq, d)
void weighted_values(const Arguments& call) {
  const std::int64_t Nq = call.integer("Nq"), Nk = call.integer("Nk"), d = call.integer("d");
  ch01::weighted_values({"P", call.input("P"), Nq, Nk}, {"V", call.input("V"), Nk, d}, {"O", call.output("O"), Nq, d});
}

const Operations exercises{
    {"scaled_scores", scaled_scores},
    {"softmax_rows", softmax_rows},
    {"weighted_values", weighted_values},
};

}  // namespace
