// The kinds of pictures. Each is a function from the parameters of a table in a chapter's pictures.toml and from the
// code's own data to facts, which notes/site/figures draws. Independent of any chapter.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/judge/trace.hpp"
#include "common/judge/workspace.hpp"
#include "common/pictures/parameters.hpp"
#include "common/worker/description.hpp"

namespace workbook::pictures {

using Facts = nlohmann::ordered_json;

struct Request {
  const judge::Workspace& workspace;
  const book::Chapter* chapter;  ///< the picture's chapter; null in a folder without a manifest
  Parameters& parameters;
};

struct Kind {
  const char* name;
  bool counts;  ///< whether it runs kernels on the simulator and needs its counters
  Facts (*facts)(const Request&);
};

// machine.cpp: the limits of a GPU, from notes/hardware.toml and the results of bench in notes/results.md.
/// The levels of memory, their sizes and bandwidths. device: a name in hardware.toml.
Facts memory_facts(const Request& request);
/// The stages of one table of the results under their roofs. device; section: "forward, d = 64, N = 8192".
Facts roofline_facts(const Request& request);
/// Some curves of a plot of bench. figure: its name in notes/figures; panel: its title; curves; names: what the plot
/// calls them. Optional, one more curve from a run in notes/speed_log.md: log, its heading "### …"; log_column, a
/// column of TFLOP/s in the section's first table, whose second column is N; log_rows, the first cell of its rows;
/// log_name.
Facts plot_facts(const Request& request);

// layout.cpp: the layout of elements, from the simulator's tables and rules.
/// Rows in the banks of shared memory. rows, row_bytes, access_bytes; paddings: bytes after each row, one panel each.
Facts banks_facts(const Request& request);
/// Which lane holds which element of an MMA's operands. element: "half", "tf32" or "e4m3"; shape: [m, n, k]; matrices:
/// of "a", "b", "accumulator"; names: the name of each.
Facts fragments_facts(const Request& request);
/// The pairs that a lane holds in a block of 32 x 32 pairs of S and of its transpose, and their random bytes. dropped:
/// a pair with a smaller byte is dropped; seed.
Facts dropout_facts(const Request& request);
/// The rows of an ldmatrix, plain, padded and swizzled. row_bytes; chunk: which 16 bytes of each row are read.
Facts swizzle_facts(const Request& request);
/// Boxes, lines, arrows and words, from a `text` of box-drawing characters in columns of equal width.
Facts diagram_facts(const Request& request);

// kernels.cpp: what kernels do, from the record of a run on the simulator and from the stages' descriptions.
/// Which tiles of S a call computes, masks and skips, of each launch that reads Q and K by tiles. queries, keys, d,
/// causal or mask; loops: whether each block's loop is drawn; also, optional: other calls, only for the facts.
Facts tiles_facts(const Request& request);
/// The same for each of several `masks`, side by side. queries, keys, d.
Facts blocks_facts(const Request& request);
/// What a thread block does between its barriers, starting at barrier `first`. launch: a part of the kernel's name;
/// queries, keys, d, causal, count.
Facts timeline_facts(const Request& request);
/// What each warp of block 0 waits for, and which TMA copies are in flight, from step `first` on. A step ends when a
/// wait or a copy ends. launch, queries, keys, d, causal, count.
Facts waits_facts(const Request& request);
/// Which rows or columns of a tile each warp has. d.
Facts owners_facts(const Request& request);
/// Thread blocks and bytes of K and V of a call whose `heads` heads share one K/V head, for each of `lengths` queries:
/// with the number named `packing` 1 (not packed), 2 (packed), and omitted (the kernel decides). keys, d; queries: the
/// one of the lengths that the picture shows.
Facts packing_facts(const Request& request);
/// Bytes that chapters' forward passes request, over N. chapters, lengths, d.
Facts traffic_facts(const Request& request);

// numbers.cpp
/// What the formulas of attention on several ranks need, and the values that the picture shows. heads, d, tflops;
/// ranks, tokens per rank, group (H / Hkv), gbs: GB/s in one direction, one of `links`.
Facts ranks_facts(const Request& request);
/// The running maximum and sum of one row. scores; block: number of scores per step.
Facts softmax_facts(const Request& request);
/// A tile that moves over S, and m, l and O of its rows after each step. scores: row by row, `keys` per row; values:
/// the rows of V, `columns` per row; block: keys per tile. keys, columns.
Facts algorithm_facts(const Request& request);
/// Bits of number formats. names, exponent_bits, mantissa_bits; without_infinity: names.
Facts formats_facts(const Request& request);
/// The ranges of number formats above the magnitudes of dO, dP and dS of a batch. Parameters as for formats; over: the
/// format whose limits are drawn through; keys, d, tokens, gradient: the size of dO times tokens.
Facts ranges_facts(const Request& request);

/// The record of a run of a chapter's kernels, with the tiles of `trace`. The optional parameters variant and value
/// select other kernels of the chapter; `heads` is H, with one K/V head. std::runtime_error with the reason if the run
/// failed.
judge::Trace traced(const Request& request, const book::Chapter& chapter, std::int64_t Nq, std::int64_t Nk,
                    std::int64_t d, const Mask& mask, judge::TraceRequest trace = {});
/// The description of the chapter's stage of its pass.
worker::StageDescription described(const Request& request);

}  // namespace workbook::pictures
