// Chapter 2's exercises as operations that the tests call by name, each alone.
#include "common/cuda/operations.hpp"

#include <algorithm>

#include "online_softmax.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;

// block; x (n) -> state (2): m, l
void online_softmax(const Arguments& call) {
  const auto [m, l] = ch02::online_softmax(call.input("x"), call.integer("block"));
  const auto state = call.output("state");
  state[0] = m;
  state[1] = l;
}

// block; x (n) -> P (n), lse (1)
void softmax(const Arguments& call) {
  call.output("lse")[0] = ch02::softmax(call.input("x"), call.output("P"), call.integer("block"));
}

// d; m (2), l (2), O (2, d): the two parts -> m_out (1), l_out (1), O_out (d)
void merge(const Arguments& call) {
  const auto part = [&](std::size_t i) {
    const auto d = std::size_t(call.integer("d"));
    const auto O = call.input("O").subspan(i * d, d);
    return ch02::PartialState{call.input("m")[i], call.input("l")[i], {O.begin(), O.end()}};
  };
  ch02::PartialState into = part(0);
  ch02::merge(into, part(1));
  call.output("m_out")[0] = into.m;
  call.output("l_out")[0] = into.l;
  const auto O_out = call.output("O_out");
  std::copy_n(into.O.begin(), std::min(into.O.size(), O_out.size()), O_out.begin());
}

// rows, d, Nk, first_query, Nq, Bc, scale, causal; Q (rows, d), K, V (Nk, d) -> O (rows, d), lse (rows)
void attend_tile(const Arguments& call) {
  const std::int64_t rows = call.integer("rows"), d = call.integer("d"), Nk = call.integer("Nk");
  ch02::attend_tile({"Q_tile", call.input("Q"), rows, d}, {"K", call.input("K"), Nk, d}, {"V", call.input("V"), Nk, d},
                    {"O_tile", call.output("O"), rows, d}, call.output("lse"), call.integer("first_query"),
                    call.integer("Nq"), call.integer("Bc"), float(call.number("scale")), call.flag("causal"));
}

const Operations exercises{
    {"online_softmax", online_softmax},
    {"softmax", softmax},
    {"merge", merge},
    {"attend_tile", attend_tile},
};

}  // namespace
