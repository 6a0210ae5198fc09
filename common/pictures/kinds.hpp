// The kinds of pictures: each a function from the parameters of a table in a chapter's pictures.toml, and from what the
// code says of itself, to a drawing. Knows no chapter.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "common/judge/trace.hpp"
#include "common/judge/workspace.hpp"
#include "common/pictures/parameters.hpp"
#include "common/pictures/svg.hpp"
#include "common/worker/description.hpp"

namespace workbook::pictures {

struct Request {
  const judge::Workspace& workspace;
  const book::Chapter* chapter;  ///< whose picture it is; null in a folder without a manifest
  Parameters& parameters;
};

struct Drawing {
  Svg svg;
  double height = 0;
  std::string description;  ///< the facts that it shows, in sentences
  nlohmann::ordered_json
      facts;  ///< the same for a program, of kinds that have facts: what a figure to touch is fed with
};

struct Kind {
  const char* name;
  bool counts;  ///< it runs kernels on the simulator and needs its counters
  bool facts;   ///< its drawings come with facts
  Drawing (*draw)(const Request&);
};
std::span<const Kind> all_kinds();

// machine.cpp: what a GPU can do, from notes/hardware.toml and the results of bench in notes/results.md.
/// The levels of memory, their sizes and bandwidths. device: a name in hardware.toml.
Drawing draw_memory(const Request& request);
/// The stages of one table of the results under their roofs. device; section: "forward, d = 64, N = 8192".
Drawing draw_roofline(const Request& request);

// layout.cpp: where elements lie, by the simulator's own tables and rules.
/// Rows in the banks of shared memory. rows, row_bytes, access_bytes; paddings: bytes behind each row, a panel each.
Drawing draw_banks(const Request& request);
/// Which lane holds which element of the operands of a product. element: "half", "tf32" or "e4m3"; shape: [m, n, k];
/// matrices: of "a", "b", "accumulator"; names: what each is called.
Drawing draw_fragments(const Request& request);
/// The rows that ldmatrix is given, plain, padded and swizzled. row_bytes; chunk: which 16 bytes of each row are read.
Drawing draw_swizzle(const Request& request);

// kernels.cpp: what kernels do, from the record of a run on the simulator and from what stages say of themselves.
/// Which tiles of S a call computes, masks and skips, of each launch that reads Q and K by tiles. queries, keys, d,
/// causal; walks: whether each block's way is drawn; also, if given: for the facts alone, other calls.
Drawing draw_tiles(const Request& request);
/// What a block does between its barriers, from the `first` on. launch: a part of the kernel's name; queries, keys, d,
/// causal, count.
Drawing draw_timeline(const Request& request);
/// Which warps wait for what in block 0, and what the copy engine has on its way, from step `first` on: steps end when
/// a wait or a copy does (waits.cpp). launch, queries, keys, d, causal, count.
Drawing draw_waits(const Request& request);
/// Which rows or columns of a tile each warp has. d.
Drawing draw_owners(const Request& request);
/// Bytes that chapters' forward passes request, over N. chapters, lengths, d.
Drawing draw_traffic(const Request& request);

// numbers.cpp
/// The running maximum and sum of one row. scores, block: so many at a time.
Drawing draw_softmax(const Request& request);
/// Bits of number formats. names, exponent_bits, mantissa_bits; without_infinity: names.
Drawing draw_formats(const Request& request);
/// Where the numbers of formats lie, over the sizes of dO, dP and dS of a batch. As draw_formats; over: the format
/// whose ends are drawn through; keys, d, tokens, gradient: the size of dO times tokens.
Drawing draw_ranges(const Request& request);

/// Whose picture it is. book::ManifestError if it lies in no chapter.
const book::Chapter& own_chapter(const Request& request);
/// What a run of a chapter's kernels recorded, with the tiles of `trace`. Parameters variant and value, where given,
/// ask for other kernels of it. std::runtime_error with the reason if it failed.
judge::Trace traced(const Request& request, const book::Chapter& chapter, std::int64_t Nq, std::int64_t Nk,
                    std::int64_t d, const Mask& mask, judge::TraceRequest trace = {});
/// The launch that a picture of one is drawn from, of the chapter whose picture it is. queries, keys, d, causal;
/// launch: a part of the kernel's name. book::ManifestError where no kernel is called so.
judge::TracedLaunch traced_launch(const Request& request);
/// What the chapter's stage of its pass says of itself.
worker::StageDescription described(const Request& request);

}  // namespace workbook::pictures
