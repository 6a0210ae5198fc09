// What goes wrong where heads of Q share heads of K and V, and are packed into the rows of a tile.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index, judge::infinity, judge::Place, judge::round_down, judge::Row;
using Table = ch01::AttentionTable;

bool shares_heads(const Attention& m) {
  return m.problem->shape.H > m.problem->shape.Hkv;
}

/// Which head of K and V a head of Q meets.
Table heads() {
  Table table([](const Attention& m) { return shares_heads(m) && m.problem->shape.Hkv > 1; });
  table.add("kv-head-modulo", "head h of Q meets head h mod Hkv of K and V: neighbours share one, head h meets h / G",
            [](Attention& m) { m.kv_head = [Hkv = m.problem->shape.Hkv](Index h) { return h % Hkv; }; });
  table.add("kv-head-first", "every head of Q meets the first head of K and V",
            [](Attention& m) { m.kv_head = [](Index) { return 0; }; });
  table.add("kv-head-divided-twice",
            "the number of a pack is divided by G: of a pack that holds a group, it is the head of K and V already",
            [](Attention& m) {
              m.K = m.V = [G = m.problem->shape.H / m.problem->shape.Hkv](const Tensor<float>& tensor, Index b, Index h,
                                                                          Index j, Index c) {
                const Index Hkv = tensor.sizes[1], head = (b * Hkv + h) / G;
                return Index(tensor.index(head / Hkv, head % Hkv, j, c));
              };
            });
  return table;
}

Table values() {
  Table table([](const Attention& m) { return m.problem->shape.B * m.problem->shape.Hkv > 1; });
  table.add("V-of-the-first-head", "every head of Q meets the V of the first head of all", [](Attention& m) {
    m.V = [](const Tensor<float>& V, Index, Index, Index j, Index c) { return Index(V.index(0, 0, j, c)); };
  });
  return table;
}

/// Packed row i·G + h % G instead of row i of head h: as if packed rows were adjacent in memory.
Place neighbours(const Attention& m) {
  return
      [G = m.problem->shape.H / m.problem->shape.Hkv](const Tensor<float>& tensor, Index b, Index h, Index i, Index c) {
        const Index Nq = tensor.sizes[2], row = i * G + h % G;
        return Index(tensor.index(b, round_down(h, G) + row / Nq, row % Nq, c));
      };
}
/// Whether packed rows are not adjacent in memory. With a single query they are.
bool packs_rows(const Attention& m) {
  return shares_heads(m) && m.Nq() > 1;
}
/// Chunks of 8 columns of packed row i·G + h % G, in the order of one side's swizzle.
Place plain_chunks(const Attention& m) {
  return
      [G = m.problem->shape.H / m.problem->shape.Hkv](const Tensor<float>& tensor, Index b, Index h, Index i, Index c) {
        return Index(tensor.index(b, h, i, (c / 8 ^ (i * G + h % G) % 8) * 8 + c % 8));
      };
}
Table read_places() {
  Table table(shares_heads);
  table.add("Q-swizzled-on-one-side",
            "the packed rows of Q are stored plainly, and read swizzled: chunk c of row r is at chunk c ^ (r % 8)",
            [](Attention& m) { m.Q = plain_chunks(m); });
  table.add("Q-of-the-first-head", "all rows have the Q of the group's first head", [](Attention& m) {
    m.Q = [G = m.problem->shape.H / m.problem->shape.Hkv](const Tensor<float>& Q, Index b, Index h, Index i, Index c) {
      return Index(Q.index(b, round_down(h, G), i, c));
    };
  });
  table.add("Q-of-the-first-rows", "every warp has the Q of the group's first 32 packed rows", [](Attention& m) {
    m.Q = [G = m.problem->shape.H / m.problem->shape.Hkv](const Tensor<float>& Q, Index b, Index h, Index i, Index c) {
      const Index row = (i * G + h % G) % 32;
      return Index(Q.index(b, round_down(h, G) + row % G, row / G, c));
    };
  });
  table.add(
      "Q-rows-neighbours",
      "the packed rows of Q are taken for neighbours in memory: a group's heads follow each other there",
      [](Attention& m) { m.Q = neighbours(m); }, packs_rows);
  return table;
}
Table written_places() {
  Table table(shares_heads);
  table.add("packed-O-swizzled-on-one-side",
            "the packed rows of O are stored swizzled, and read plainly: chunk c of row r is at chunk c ^ (r % 8)",
            [](Attention& m) { m.written = plain_chunks(m); });
  table.add(
      "O-rows-neighbours",
      "packed rows are written as if they were neighbours in memory: a group's heads follow each other there",
      [](Attention& m) { m.written = neighbours(m); }, packs_rows);
  return table;
}

/// A row's LSE is that of packed row of(packed row, place), its place being that in its group's memory. Rows that do
/// not exist have a Q of zeros.
auto with_LSE_of(Index (*of)(Index packed_row, Index place)) {
  return [=](Attention& m) {
    const auto heads = std::make_shared<std::map<std::pair<Index, Index>, judge::Head>>();
    m.after_last([=, right = m](Row& row) {
      const Index G = right.problem->shape.H / right.problem->shape.Hkv, b = row.head->b, h = row.head->h;
      const Index other = of(row.query * G + h % G, h % G * right.Nq() + row.query);
      const Index head = round_down(h, G) + other % G;
      if (!heads->contains({b, head})) (*heads)[{b, head}] = right.read(b, head);
      const Row from = right.attend((*heads)[{b, head}], other / G);
      row.m = from.m, row.l = from.l;
    });
  };
}
/// Packed row 16·i + 8·r + … of a warp's 32, where a lane has rows of i, r = 0 and 1.
Index row_of_lane(Index packed_row, Index i, Index r) {
  return round_down(packed_row, 32) + 16 * i + 8 * r + packed_row % 8;
}
Table written_lse() {
  Table table(packs_rows);
  table.add("lse-rows-exchanged",
            "the second and the third of a lane's four rows change places in the LSE: row_lse[i][r] is that of row "
            "16·i + 8·r + lane / 4",
            with_LSE_of([](Index row, Index) { return row_of_lane(row, row % 16 / 8, row % 32 / 16); }));
  table.add("lse-of-the-first-row", "of a lane's two rows of a row tile both get the LSE of the first",
            with_LSE_of([](Index row, Index) { return row_of_lane(row, row % 32 / 16, 0); }));
  table.add("lse-rows-neighbours",
            "the LSE is written as if packed rows were neighbours in memory: a group's heads follow each other there",
            with_LSE_of([](Index, Index place) { return place; }));
  return table;
}

/// Which keys a packed row sees.
Table packed_masks() {
  Table table([](const Attention& m) { return shares_heads(m) && m.causal() && m.tiled(); });
  // A row sees what some number of a query sees, by `of`.
  const auto seen_by = [](auto of) {
    return [=](Attention& m) {
      m.after_scores([=, right = m](Row& row) {
        const Index G = right.problem->shape.H / right.problem->shape.Hkv;
        const Index visible = right.visible(of(right, row.query, row.query * G + row.head->h % G));
        for (Index j = row.first; j < row.first + row.keys; ++j)
          row.S[std::size_t(j - row.first)] = j < visible ? right.score(*row.head, row.query, j) : -infinity;
      });
      m.goes_to = {};
    };
  };
  table.add("mask-by-row", "the mask takes the number of the packed row for that of its query: it must be row / G",
            seen_by([](const Attention&, Index, Index packed_row) { return packed_row; }));
  return table;
}

/// The mask of a call that has none.
Table masks_without_mask() {
  Table table([](const Attention& m) { return m.unmasked() && m.Nk() > 1; });
  table.add("mask-without-mask", "rows see only the keys up to their query without the mask too", [](Attention& m) {
    m.sees = [Nq = m.Nq(), Nk = m.Nk()](Index query) {
      return judge::Range{0, std::max<Index>(0, query + 1 + Nk - Nq)};
    };
  });
  return table;
}

// ---- The gradients ----

using judge::GradientModel;
using GradientTable = judge::MistakeTable<GradientModel>;
using Heads = GradientModel::Heads;

/// Takes other heads for those of head h of Q, which are given, with the number of its group's first head.
auto with_heads(void (*change)(Heads& heads, Index h, Index first, Index G)) {
  return [=](GradientModel& m) {
    const Index G = m.inputs->problem.shape.H / m.inputs->problem.shape.Hkv;
    m.heads = [=, original = m.heads](Index h) {
      Heads heads = original(h);
      change(heads, h, round_down(h, G), G);
      return heads;
    };
  };
}
/// In Q tile i of a head a K/V tile takes the mask of Q tile n, where n is its step in the loop of the K/V tile.
void mask_of_the_step(GradientModel& m) {
  const Shape shape = m.inputs->problem.shape;
  const Index Bc = m.owned, Br = m.passing, end = (m.Nq() + Br - 1) / Br, offset = m.offset();
  m.heads = [=, original = m.heads](Index h) {
    Heads heads = original(h);
    heads.sees = [=, nth = h % (shape.H / shape.Hkv)](Index i, Index j) {
      const Index begin = std::max<Index>(0, round_down(j, Bc) - offset) / Br;
      if (i / Br < begin) return false;  // the loop skips it
      const Index step = nth * (end - begin) + i / Br - begin;
      const bool masked = step * Br + offset - round_down(j, Bc) < Bc - 1 || round_down(j, Bc) + Bc > shape.Nk;
      return !masked || j <= step * Br + i % Br + offset;
    };
    return heads;
  };
}
/// The rows of a head in what the queries bring and in the sums of dQ.
Index padded(const GradientModel& m) {
  return (m.Nq() + 63) / 64 * 64;
}
/// Of (heads, padded, d) floats, the one that holds element (row, column) of a head's sums of dQ: address_in_sum.
Index place_in_sums(Index row, Index column, Index d) {
  const Index lane = row % 8 * 4 + column % 8 / 2, e = row % 16 / 8 * 2 + column % 2;
  return ((row / 16 * (d / 8) + column / 8) * 4 + e) * 32 + lane;
}
/// What is Nq rows a head, and should be filled up.
GradientTable not_padded() {
  GradientTable table([](const GradientModel& m) { return padded(m) > m.Nq(); });
  table.add("rows-not-padded",
            "a head's LSE and D are looked for Nq rows behind those of the head before: they are padded(Nq) rows apart",
            [](GradientModel& m) {
              const auto taken = [Nq = m.Nq(), rows = padded(m)](const auto& value, double behind_the_last) {
                return [=](Index head, Index i) {
                  const Index place = head * Nq + i;
                  return place % rows < Nq ? value(place / rows, place % rows) : behind_the_last;
                };
              };
              m.lse = taken(m.lse, infinity), m.D = taken(m.D, 0);
            });
  table.add(
      "dQ-not-padded", "a head's sums of dQ go Nq rows behind those of the head before: they are padded(Nq) rows apart",
      [](GradientModel& m) {
        m.moved = [rows = padded(m)](Tensor<double>& dQ) {
          const Index heads = dQ.sizes[0] * dQ.sizes[1], Nq = dQ.sizes[2], d = dQ.sizes[3];
          std::vector<double> sums(std::size_t(heads * rows * d));
          const auto each = [&](Index apart, const auto& use) {
            for (Index at = 0; at < Index(dQ.values.size()); ++at)
              use(dQ.values[std::size_t(at)],
                  sums[std::size_t(at / (Nq * d) * apart * d + place_in_sums(at / d % Nq, at % d, d))]);
          };
          each(Nq, [](double value, double& sum) { sum += value; });
          each(rows, [](double& value, double sum) { value = sum; });
        };
      },
      [](const GradientModel& m) { return m.of_queries; });
  return table;
}
GradientTable gradients() {
  GradientTable table([](const GradientModel& m) { return m.inputs->problem.shape.H > m.inputs->problem.shape.Hkv; });
  const auto of_keys = [](const GradientModel& m) { return !m.of_queries; };
  const auto of_queries = [](const GradientModel& m) { return m.of_queries; };
  const auto several_groups = [](const GradientModel& m) {
    return m.inputs->problem.shape.B * m.inputs->problem.shape.Hkv > 1;
  };
  const auto first_alone = with_heads([](Heads& heads, Index h, Index first, Index) {
    if (h != first) heads.to = -1;
  });
  table.add("group-first-head-alone", "{gradient} has the part of the first head of each group alone", first_alone,
            of_keys);
  table.add("group-last-head-alone", "{gradient} has the part of the last head of each group alone",
            with_heads([](Heads& heads, Index h, Index first, Index G) {
              if (h != first + G - 1) heads.to = -1;
            }),
            of_keys);
  table.add(
      "gradient-averaged", "{gradient} is the mean of what the heads of a group give: it is their sum",
      [](GradientModel& m) { m.factor /= double(m.inputs->problem.shape.H / m.inputs->problem.shape.Hkv); }, of_keys);
  table.add("dQ-of-the-first-head-alone", "only the first head of each group gets a dQ", first_alone, of_queries);
  table.add("dQ-to-the-first-head", "dQ of all heads of a group is added to the first one's",
            with_heads([](Heads& heads, Index, Index first, Index) { heads.to = first; }), of_queries);
  table.add("queries-of-the-first-head", "all heads of a group bring the Q and dO of the first one",
            with_heads([](Heads& heads, Index, Index first, Index) { heads.of_queries = first; }));
  table.add("rows-of-the-first-head", "all heads of a group bring the LSE and D of the first one",
            with_heads([](Heads& heads, Index, Index first, Index) { heads.of_rows = first; }));
  table.add(
      "first-head-not-times-group",
      "the heads of Q that go with head k of K and V are taken to begin with head k: they begin with head k · G",
      [](GradientModel& m) {
        with_heads([](Heads& heads, Index h, Index first, Index G) {
          if (heads.to == h) heads.to = first / G + h - first;
          heads.of_queries = heads.of_rows = first / G + h - first;
        })(m);
      },
      several_groups);
  table.add("mask-of-the-step",
            "the mask takes the number of the step for that of the Q tile: it asks for the Q tile within its head",
            mask_of_the_step, [](const GradientModel& m) { return m.causal() && m.tiled(); });
  table.add(not_padded());
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "14_grouped_queries",
     .uses = {"08_registers", "09_backward_registers"},
     .attention = {{judge::Turn::mask, in_both, heads()},
                   {judge::Turn::mask, in_O, values()},
                   {judge::Turn::mask, in_both, read_places()},
                   {judge::Turn::mask, in_O, written_places()},
                   {judge::Turn::mask, in_LSE, written_lse()},
                   {judge::Turn::mask, in_both, packed_masks()},
                   {judge::Turn::mask, in_both, masks_without_mask()}},
     .gradients = gradients(),
     .claimed = judge::words("diagonal-sign negative-count not-packed packed-tiles packing-ignored packed-without-need "
                             "packing-rule place-query-by-query "
                             "rows-head-by-head extra-memory future-tile-used narrow-access not-repeatable "
                             "order-dependent row-without-keys rows-mixed traffic uncoalesced gradients-by-atomics "
                             "groups-mixed head-by-end head-from-0 number-by-end shares-in-integers walk-by-end "
                             "walk-by-row-blocks walk-from-0 walk-of-one-head"),
     .without_mutant = {{judge::one_claim_of_several, judge::words("gradients-by-atomics groups-mixed")},
                        {"the last head alone, and dQ of the first alone, have mutants", {"group-first-head-alone"}}}});

}  // namespace
}  // namespace workbook::test
