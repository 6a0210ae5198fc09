// The kinds of pictures: each a function from the parameters of a table in a chapter's pictures.toml, and from what the
// code says of itself, to facts. notes/site/figures draws them. Knows no chapter.
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
  const book::Chapter* chapter;  ///< whose picture it is; null in a folder without a manifest
  Parameters& parameters;
};

struct Kind {
  const char* name;
  bool counts;  ///< it runs kernels on the simulator and needs its counters
  Facts (*facts)(const Request&);
};

// machine.cpp: what a GPU can do, from notes/hardware.toml and the results of bench in notes/results.md.
/// The levels of memory, their sizes and bandwidths. device: a name in hardware.toml.
Facts memory_facts(const Request& request);
/// The stages of one table of the results under their roofs. device; section: "forward, d = 64, N = 8192".
Facts roofline_facts(const Request& request);

// layout.cpp: where elements lie, by the simulator's own tables and rules.
/// Rows in the banks of shared memory. rows, row_bytes, access_bytes; paddings: bytes behind each row, a panel each.
Facts banks_facts(const Request& request);
/// Which lane holds which element of the operands of a product. element: "half", "tf32" or "e4m3"; shape: [m, n, k];
/// matrices: of "a", "b", "accumulator"; names: what each is called.
Facts fragments_facts(const Request& request);
/// The rows that ldmatrix is given, plain, padded and swizzled. row_bytes; chunk: which 16 bytes of each row are read.
Facts swizzle_facts(const Request& request);

// kernels.cpp: what kernels do, from the record of a run on the simulator and from what stages say of themselves.
/// Which tiles of S a call computes, masks and skips, of each launch that reads Q and K by tiles. queries, keys, d,
/// causal or mask; walks: whether each block's way is drawn; also, if given: for the facts alone, other calls.
Facts tiles_facts(const Request& request);
/// The same for each of several `masks`, side by side. queries, keys, d.
Facts blocks_facts(const Request& request);
/// What a block does between its barriers, from the `first` on. launch: a part of the kernel's name; queries, keys, d,
/// causal, count.
Facts timeline_facts(const Request& request);
/// Which warps wait for what in block 0, and what TMA has on its way, from step `first` on: steps end when a wait or a
/// copy does. launch, queries, keys, d, causal, count.
Facts waits_facts(const Request& request);
/// Which rows or columns of a tile each warp has. d.
Facts owners_facts(const Request& request);
/// Bytes that chapters' forward passes request, over N. chapters, lengths, d.
Facts traffic_facts(const Request& request);

// numbers.cpp
/// The running maximum and sum of one row. scores, block: so many at a time.
Facts softmax_facts(const Request& request);
/// A tile that walks over S, and m, l and O of its rows after each step. scores: row by row, of so many keys; values:
/// V's rows, one behind the other, of so many columns; block: keys of a tile. keys, columns.
Facts walk_facts(const Request& request);
/// Bits of number formats. names, exponent_bits, mantissa_bits; without_infinity: names.
Facts formats_facts(const Request& request);
/// Where the numbers of formats lie, over the sizes of dO, dP and dS of a batch. As formats; over: the format whose
/// ends are drawn through; keys, d, tokens, gradient: the size of dO times tokens.
Facts ranges_facts(const Request& request);

/// What a run of a chapter's kernels recorded, with the tiles of `trace`. Parameters variant and value, where given,
/// ask for other kernels of it. std::runtime_error with the reason if it failed.
judge::Trace traced(const Request& request, const book::Chapter& chapter, std::int64_t Nq, std::int64_t Nk,
                    std::int64_t d, const Mask& mask, judge::TraceRequest trace = {});
/// What the chapter's stage of its pass says of itself.
worker::StageDescription described(const Request& request);

}  // namespace workbook::pictures
