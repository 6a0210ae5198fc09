// What goes wrong with rotated rows and with elements of P that are dropped.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/attention/positions.hpp"
#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::GradientModel, judge::Head, judge::Index;
using Table = ch01::AttentionTable;
using GradientTable = judge::MistakeTable<GradientModel>;

// ---- Rotations: rows of Q or K, each to another position ----

/// The position that a row is rotated to.
using Position = Index (*)(bool of_queries, Index row, const Shape& shape, Index Br, Index Bc);
Index position_of(bool of_queries, Index row, const Shape& shape) {
  return of_queries ? row + shape.Nk - shape.Nq : row;
}
auto rotated_to(Position position, const Problem& problem, Index Br, Index Bc, judge::Rounding rounded) {
  return [=, shape = problem.shape](std::vector<float>& rows, bool of_queries) {
    const Index d = shape.d;
    for (Index row = 0; row < Index(rows.size()) / d; ++row) {
      std::vector<float> one(rows.begin() + row * d, rows.begin() + (row + 1) * d);
      rotate(one, 1, d, position(of_queries, row, shape, Br, Bc));
      std::ranges::transform(one, rows.begin() + row * d, rounded);
    }
  };
}

struct Rotation {
  const char *id, *sentence;
  Position position;
  bool (*when)(const Problem& problem) = nullptr;
};
const Rotation rotations[] = {
    {"rope-missing", "neither Q nor K is rotated", [](bool, Index, const Shape&, Index, Index) { return Index(0); }},
    {"rope-of-queries-alone", "K is not rotated",
     [](bool of_queries, Index row, const Shape& s, Index, Index) {
       return of_queries ? position_of(true, row, s) : Index(0);
     }},
    {"rope-of-keys-alone", "Q is not rotated",
     [](bool of_queries, Index row, const Shape& s, Index, Index) {
       return of_queries ? Index(0) : position_of(false, row, s);
     }},
    {"rope-top-left", "query i stands at position i: the last query stands where the last key does",
     [](bool, Index row, const Shape&, Index, Index) { return row; },
     [](const Problem& p) { return p.shape.Nq != p.shape.Nk; }},
    {"rope-of-tile", "positions of keys begin anew with each tile",
     [](bool of_queries, Index row, const Shape& s, Index, Index Bc) {
       return of_queries || Bc == 0 ? position_of(of_queries, row, s) : row % Bc;
     },
     [](const Problem& p) { return p.shape.Nk > 32; }},
    {"rope-of-query-tile", "positions of queries begin anew with each tile",
     [](bool of_queries, Index row, const Shape& s, Index Br, Index) {
       return position_of(of_queries, of_queries && Br > 0 ? row % Br : row, s);
     },
     [](const Problem& p) { return p.shape.Nq > 32; }},
    {"rope-of-block", "all warps take the positions of the block's first queries",
     [](bool of_queries, Index row, const Shape& s, Index Br, Index) {
       return position_of(of_queries, of_queries && Br > 0 ? row / Br * Br + row % 32 : row, s);
     },
     [](const Problem& p) { return p.shape.Nq > 32; }},
};
Table rope() {
  Table table([](const Attention& m) { return m.problem->mask.rope; });
  for (const Rotation& each : rotations)
    table.add(
        each.id, each.sentence,
        [position = each.position](Attention& m) {
          m.rotated = rotated_to(position, *m.problem, m.tiling.Br, m.tiling.Bc, m.round_O);
        },
        [when = each.when](const Attention& m) { return when == nullptr || when(*m.problem); });
  return table;
}

// ---- Dropout ----

using Kept = double (*)(const Setting& setting, Index head, Index i, Index j);
double right_of(const Setting& setting, Index head, Index i, Index j) {
  return kept(setting, head * setting.shape.Nq + i, j);
}
/// kept() of any query and key, whatever the call's sizes are.
double any_pair(const Setting& setting, Index head, Index i, Index j) {
  Setting wide = setting;
  wide.shape.Nq = wide.shape.Nk = 1 << 24;
  return kept(wide, head * wide.shape.Nq + i, j);
}
struct Dropping {
  const char *id, *sentence;
  Kept kept;
};
double unscaled(const Setting& s, Index head, Index i, Index j) {
  return right_of(s, head, i, j) > 0 ? 1.0 : 0.0;
}
/// In either pass.
const Dropping droppings[] = {
    {"dropout-missing-but-scaled", "nothing is dropped, and everything is multiplied with 1/(1 − p)",
     [](const Setting& s, Index, Index, Index) { return s.mask.kept_scale(); }},
    {"dropout-opposite", "what is to be kept is dropped, and the other way round",
     [](const Setting& s, Index head, Index i, Index j) {
       return right_of(s, head, i, j) > 0 ? 0.0 : s.mask.kept_scale();
     }},
};
/// In the forward pass: a part of eight keys takes other bits than its own.
const Dropping of_parts[] = {
    {"dropout-of-other-part", "a part takes the bits of its neighbour",
     [](const Setting& s, Index head, Index i, Index j) { return any_pair(s, head, i, j / 16 * 16 + (j + 8) % 16); }},
    {"dropout-of-half", "of two parts the second is not dropped",
     [](const Setting& s, Index head, Index i, Index j) {
       return j / 8 % 2 == 0 ? right_of(s, head, i, j) : s.mask.kept_scale();
     }},
    {"dropout-of-half", "of two parts the first is not dropped",
     [](const Setting& s, Index head, Index i, Index j) {
       return j / 8 % 2 != 0 ? right_of(s, head, i, j) : s.mask.kept_scale();
     }},
    {"dropout-of-first-part", "both parts take the bits of the first",
     [](const Setting& s, Index head, Index i, Index j) { return any_pair(s, head, i, j / 16 * 16 + j % 8); }},
};
/// In the backward pass, which asks for blocks itself.
const Dropping of_blocks[] = {
    {"dropout-mirrored", "rows are taken for queries where they are keys, or the other way round",
     [](const Setting& s, Index head, Index i, Index j) {
       return any_pair(s, head, i / 32 * 32 + j % 32, j / 32 * 32 + i % 32);
     }},
    {"dropout-of-one-head", "all heads drop the same pairs",
     [](const Setting& s, Index, Index i, Index j) { return any_pair(s, 0, i, j); }},
    {"dropout-of-first-block", "all blocks drop the pairs of the first one",
     [](const Setting& s, Index head, Index i, Index j) { return any_pair(s, head, i % 32, j % 32); }},
};
Table dropout() {
  Table table([](const Attention& m) { return m.problem->mask.dropped > 0; });
  table.add("dropped-before-the-sum", "l is the sum of what is kept: it has to be that of all of P", [](Attention& m) {
    m.after_probabilities([given = m.problem](judge::Row& row) {
      for (Index j = 0; j < Index(row.P.size()); ++j) {
        const Head& head = *row.head;
        if (row.first + j < given->shape.Nk &&
            right_of(*given, head.b * given->shape.H + head.h, row.query, row.first + j) == 0)
          row.P[std::size_t(j)] = 0;
      }
    });
  });
  const auto add = [&](const Dropping& each) {
    table.add(each.id, each.sentence, [of = each.kept](Attention& m) {
      m.kept = [of, given = m.problem](const Head& head, Index query, Index key) {
        return float(of(*given, head.b * given->shape.H + head.h, query, key));
      };
    });
  };
  std::ranges::for_each(droppings, add), std::ranges::for_each(of_parts, add);
  return table;
}

// ---- The gradients ----

auto kept_as(Kept of, const GradientModel& m) {
  return [of, in = m.inputs](Index head, Index i, Index j) { return of(in->problem, head, i, j); };
}
/// By which pair c of columns, c and c + d/2, is rotated at a position.
double angle(Index position, Index c, Index d) {
  return double(position) * std::pow(10000, -2 * double(c) / double(d));
}
/// Rows are rotated back by angle_of(row, pair, d).
template <class Angle>
std::function<void(GradientModel&)> rotated_back_by(Angle angle_of) {
  return [=](GradientModel& m) {
    m.rotated_back = [=, d = m.d()](Tensor<double>& sums) {
      for (Index row = 0; row < Index(sums.values.size()) / d; ++row)
        for (Index c = 0; c < d / 2; ++c) {
          const double by = angle_of(row % sums.sizes[2], c, d);
          double &x = sums.values[std::size_t(row * d + c)], &y = sums.values[std::size_t(row * d + c + d / 2)];
          const double old = x;
          x = x * std::cos(by) + y * std::sin(by), y = y * std::cos(by) - old * std::sin(by);
        }
    };
  };
}
GradientTable gradients() {
  GradientTable table;
  const auto drops = [](const GradientModel& m) { return m.inputs->problem.mask.dropped > 0; };
  const auto drops_dP = [=](const GradientModel& m) { return drops(m) && !m.of_values; };
  const auto turns = [](const GradientModel& m) { return m.inputs->problem.mask.rope && !m.of_values; };
  table.add(
      "dP-not-dropped", "dP counts for pairs that were dropped",
      [](GradientModel& m) {
        m.kept = [scale = m.inputs->problem.mask.kept_scale()](Index, Index, Index) { return scale; };
      },
      drops_dP);
  table.add(
      "dP-not-dropped", "dP is neither dropped nor multiplied with 1/(1 − p)", [](GradientModel& m) { m.kept = {}; },
      drops_dP);
  table.add(
      "dP-unscaled", "dP is not multiplied with 1/(1 − p)", [](GradientModel& m) { m.kept = kept_as(unscaled, m); },
      drops_dP);
  table.add(
      "dS-of-kept-P", "dS has P of kept pairs alone: of a pair that was dropped it is −P·D",
      [](GradientModel& m) { m.kept_dS = true; }, drops_dP);
  table.add(
      "D-scaled", "D is multiplied with 1/(1 − p): it is of an O that has been already",
      [](GradientModel& m) {
        m.D = [right = m.D, scale = m.inputs->problem.mask.kept_scale()](Index head, Index i) {
          return scale * right(head, i);
        };
      },
      drops_dP);
  table.add(
      "bits-from-the-first-part", "the second half of a Q tile takes the bits of the first: it begins at part 2",
      [](GradientModel& m) {
        m.kept = m.kept_P = kept_as(
            [](const Setting& s, Index head, Index i, Index j) { return any_pair(s, head, i / 32 * 32 + i % 16, j); },
            m);
      },
      [=](const GradientModel& m) { return drops(m) && m.passing == 32; });
  const auto add = [&](const Dropping& each) {
    table.add(
        std::string("gradient-") + each.id, std::string("in {gradient} ") + each.sentence,
        [of = each.kept](GradientModel& m) { m.kept = m.kept_P = kept_as(of, m); }, drops);
  };
  std::ranges::for_each(droppings, add), std::ranges::for_each(of_blocks, add);
  table.add(
      "dV-scaled-twice", "P is multiplied with 1/(1 − p), and so is dV",
      [](GradientModel& m) {
        m.kept_P = [once = m.kept_P, scale = m.inputs->problem.mask.kept_scale()](Index head, Index i, Index j) {
          return scale * once(head, i, j);
        };
      },
      [=](const GradientModel& m) { return drops(m) && m.of_values; });
  table.add(
      "not-rotated-back", "{gradient} is that of the rotated rows: it has to be rotated back",
      [](GradientModel& m) { m.rotated_back = {}; }, turns);
  for (const bool second : {false, true})
    table.add(
        "rotated-back-half-alone",
        std::string("the ") + (second ? "second" : "first") +
            " half of {gradient} is left as it was formed: both elements of a pair are turned back",
        [=](GradientModel& m) {
          m.rotated_back = [=, right = m.rotated_back, d = m.d()](Tensor<double>& sums) {
            const std::vector<double> formed = sums.values;
            right(sums);
            for (Index at = 0; at < Index(formed.size()); ++at)
              if ((at % d >= d / 2) == second) sums.values[std::size_t(at)] = formed[std::size_t(at)];
          };
        },
        turns);
  table.add(
      "rotated-twice", "{gradient} is rotated once more: back is the other way",
      [](GradientModel& m) {
        m.rotated_back = [in = m.inputs](Tensor<double>& sums) {
          rotate_rows(sums.values, in->problem, sums.sizes[2]);
        };
      },
      turns);
  const auto of_teams = [=](const GradientModel& m) { return turns(m) && !m.of_queries && m.d() == 128; };
  table.add("rotated-back-by-other-columns", "the second warp of a team takes the angles of the first one's columns",
            rotated_back_by([](Index row, Index c, Index d) { return angle(row, c % (d / 4), d); }), of_teams);
  table.add("rotated-back-narrow-table",
            "rows of the table are taken for shorter than they are: each has d/2 pairs, whatever a warp has of them",
            rotated_back_by([](Index row, Index c, Index d) {
              const Index at = row % 32 * (d / 4) + c;  // from the first of 32 rows on
              return angle(row / 32 * 32 + at / (d / 2), at % (d / 2), d);
            }),
            of_teams);
  table.add(
      "rotated-back-with-the-next-part",
      "columns of dK are turned with those of the part beside theirs: the other element of a pair is half a row "
      "further",
      [](GradientModel& m) {
        m.rotated_back = [d = m.d()](Tensor<double>& sums) {
          for (Index row = 0; row < Index(sums.values.size()) / d; ++row)
            for (Index c = 0; c < d / 2; ++c) {
              const double by = angle(row % sums.sizes[2], c, d);
              const auto at = std::size_t(row * d + c / 8 * 16 + c % 8);
              const double x = sums.values[at], y = sums.values[at + 8];
              sums.values[at] = x * std::cos(by) + y * std::sin(by);
              sums.values[at + 8] = y * std::cos(by) - x * std::sin(by);
            }
        };
      },
      [turns](const GradientModel& m) { return turns(m) && !m.of_queries && m.d() < 128; });  // there a team has a row
  table.add(
      "rotated-back-by-another-row", "rows of dK are rotated back by the angles of the first of 16 rows",
      [](GradientModel& m) {
        m.rotated_back = [in = m.inputs](Tensor<double>& sums) {
          const Index d = in->problem.shape.d;
          for (Index row = 0; row < Index(sums.values.size()) / d; ++row) {
            std::vector<double> one(sums.values.begin() + row * d, sums.values.begin() + (row + 1) * d);
            rotate(one, 1, d, row % sums.sizes[2] / 16 * 16, /*back=*/true);
            std::ranges::copy(one, sums.values.begin() + row * d);
          }
        };
      },
      [turns](const GradientModel& m) { return turns(m) && !m.of_queries; });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "17_rope_dropout",
     .uses = {"08_registers", "09_backward_registers"},
     .attention = {{judge::Turn::scores, in_both, rope()}, {judge::Turn::softmax, in_both, dropout()}},
     .gradients = gradients(),
     .claimed = judge::words(
         "philox-rounds philox-key-first philox-one-key philox-multipliers philox-halves philox-words philox-keys "
         "philox-key-steps philox-sequential philox-new-x bits-opposite bits-one-too-many bits-of-one-head "
         "bits-word-and-byte "
         "bits-counters-swapped bits-place-in-block bits-mirrored bits-of-first-block bits-counter-step "
         "bits-of-elements angle-of-next turned-sign-of-x turned-sign-of-y bits-without-seed bits-of-one-column "
         "angle-of-c angle-of-first-pair angle-grows sine-first angle-opposite angle-in-float turned-back "
         "turned-one-after-the-other turned-neighbours turned-by-the-neighbour turned-cosines-first turned-half-alone "
         "dropped-by-tiles "
         "dropped-share table-filled table-narrow table-read drawn-blocks"),
     .without_mutant = {
         {judge::one_of_a_kind, judge::words("philox-keys philox-multipliers philox-words turned-sign-of-x "
                                             "bits-mirrored bits-without-seed rope-missing")},
         {judge::one_claim_of_several,
          judge::words("drawn-blocks dropped-by-tiles dropped-share table-filled table-read")}}});

}  // namespace
}  // namespace workbook::test
