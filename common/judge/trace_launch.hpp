// A launch as the worker recorded it (common/cuda/trace_record.hpp), and the maps of the tiles that its blocks read.
// Contains no presentation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/worker/json.hpp"

namespace workbook::judge {

/// The tiling of a tensor's rows. Matrices are consecutive, and the last tile of each may be short.
struct TraceTiling {
  std::int64_t matrices = 0, rows = 0, row_bytes = 0, tile_rows = 0;
  std::int64_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }  ///< per matrix
};

/// The accesses of one launch to one tensor.
struct TracedTensor {
  std::string name;
  std::int64_t bytes = 0;                        ///< its size
  std::map<std::string, std::int64_t> counters;  ///< "load_sectors", …: simt::GlobalCounters by name
  std::optional<TraceTiling> tiling;             ///< if its reads are counted by tile
  std::vector<double> reads;                     ///< with a tiling: the number of reads of each tile by all blocks
  /// With a tiling: the tiles that each block read at least in part, as (first, last), ascending.
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> tiles_of_block;

  std::int64_t counter(const std::string& name) const { return counters.at(name); }
  /// A counter of TMA transfers; 0 if the record does not contain it.
  std::int64_t bulk(const char* name) const;
  std::int64_t read_bytes() const { return counter("load_bytes") + counter("async_bytes") + bulk("bulk_load_bytes"); }
  std::int64_t written_bytes() const {
    return counter("store_bytes") + bulk("bulk_store_bytes") + bulk("bulk_reduce_bytes");
  }
  /// TMA's bytes are converted to 32-byte sectors.
  std::int64_t read_sectors() const {
    return counter("load_sectors") + counter("async_sectors") + (bulk("bulk_load_bytes") + 31) / 32;
  }
  std::int64_t written_sectors() const {
    return counter("store_sectors") + (bulk("bulk_store_bytes") + 31) / 32 + bulk("bulk_reduce_sectors");
  }
  std::int64_t read_requests() const { return counter("load_requests") + counter("async_requests"); }
  /// Sectors transferred divided by distinct sectors; empty without accesses.
  std::optional<double> times_read() const;
  std::optional<double> times_written() const;
  double tile_reads() const;  ///< the sum of `reads`
};

/// Whether blocks loop over the tiles of the first tensor while they keep one tile of the second. Then the blocks that
/// read both read more tiles of the first. If the numbers are equal, the tensor that fewer blocks read is the streamed
/// one, since a block's loop may be empty.
bool is_streamed(const TracedTensor& streamed, const TracedTensor& kept);

/// An annotation of the kernel, such as "masked tile": its values in each block, as (first, last).
struct TracedNote {
  std::string label;
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> values_of_block;
  std::int64_t count() const;  ///< the number of distinct (block, value) pairs
};

/// The work of all warps of block 0 between two block barriers. Counters that are not listed are 0.
struct TracedInterval {
  std::map<std::string, std::int64_t> counters;  ///< "tensor_instructions", …, as a launch's
  /// By tensor: "load_bytes", …, as a launch's, and "arrived_bytes" for asynchronous copies whose completion was
  /// awaited.
  std::map<std::string, std::map<std::string, std::int64_t>> tensors;

  std::int64_t counter(const std::string& name) const;
  std::int64_t counter(const std::string& tensor, const std::string& name) const;
};

/// The access of one line to shared memory with most bank conflicts: the lanes (or rows of an 8x8 matrix) that access
/// the banks at the same time.
struct TracedAccess {
  std::int64_t wavefronts = 0, ideal = 0, bytes = 0;
  bool rows = false;
  std::vector<int> lanes, banks;
  std::vector<std::string> places;  ///< "S[0][16]"
  int bank = 0;                     ///< the bank with most distinct words
  std::vector<int> in_bank;         ///< the requests to this bank, as indices of `lanes`
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TracedAccess, wavefronts, ideal, bytes, rows, lanes, banks, places, bank, in_bank)

/// The accesses of one line of the kernel's source. Counters that are not listed are 0.
struct TracedLine {
  std::string file, function;
  int line = 0;
  std::map<std::string, std::int64_t> counters;
  std::optional<TracedAccess> worst;

  std::int64_t counter(const std::string& name) const;
};

/// A wait of a warp of block 0, in the simulator's order.
struct TracedWait {
  int warp = 0;
  std::string what, file;
  int line = 0;
  std::int64_t begin = 0, end = 0, interval = 0;
};

/// A TMA load of block 0. Times are as in TracedWait; the load has completed in interval `last`.
struct TracedFlight {
  int warp = 0;
  std::string what, barrier;  ///< "K 3", and the barrier that it completes on: "full[1]"
  std::int64_t begin = 0, end = 0, interval = 0, last = 0;
};

/// The annotated values of a row in block 0. A value holds from its interval until the next entry. It may be ±infinity
/// or NaN.
struct TracedValues {
  std::string label;
  std::int64_t row = 0;
  std::vector<std::pair<std::int64_t, double>> at;  ///< by interval
};

struct TracedLaunch {
  std::string kernel;
  std::int64_t device = 0;
  std::int64_t grid[3], block[3], shared_bytes = 0;
  std::int64_t registers = 0;                    ///< per block after setmaxnreg; 0: not called
  std::map<std::string, std::int64_t> counters;  ///< "global.load_sectors", "block_barriers", …: simt::Counters by name
  std::vector<TracedTensor> tensors;             ///< the accessed tensors, in the order of allocation
  std::vector<TracedNote> notes;
  std::vector<TracedInterval> intervals;  ///< the last one ends with the block
  std::vector<TracedLine> lines;          ///< by file and line
  std::vector<TracedWait> waits;          ///< by begin
  std::vector<TracedFlight> flights;      ///< by begin
  std::vector<TracedValues> values;       ///< by first appearance
  std::vector<std::string> reports;       ///< the simulator's, each a text of several lines

  std::int64_t counter(const std::string& name) const { return counters.at(name); }
  /// A counter that is recorded only if it is not 0.
  std::int64_t if_any(const std::string& name) const { return counters.contains(name) ? counters.at(name) : 0; }
  std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  std::int64_t threads() const { return block[0] * block[1] * block[2]; }
  const TracedTensor* tensor(const std::string& name) const;
};

/// Bytes that a rank sent to another one in one call.
struct TracedTransfer {
  std::int64_t from = 0, to = 0, bytes = 0;
  std::int64_t step = 0;  ///< how many calls of NCCL the sender had completed; those of a group count as one
};

struct Trace {
  std::vector<TracedLaunch> launches;
  std::vector<TracedTransfer> transfers;  ///< in the order of their completion
  std::vector<std::string> reports;       ///< findings after the launches: output elements that were never written
  std::int64_t too_large = 0;             ///< the size of a record that did not fit, in bytes
};
/// Parses the worker's record. std::runtime_error if it is invalid.
Trace parse_trace(const std::string& text);

/// One cell of a map: the reads of a tile by the blocks of a row.
struct TileCell {
  double reads = 0;     ///< the number of reads; a partial read counts as a fraction
  bool masked = false;  ///< annotated as "masked tile"
  friend bool operator==(const TileCell&, const TileCell&) = default;
};

/// Which blocks read which tiles. One map stands for all matrices (heads) listed in it.
struct TileMap {
  std::vector<std::string> tensors;  ///< the tensors whose tiles are the columns: "K" and "V" if their maps are equal
  std::int64_t tile_rows = 0;        ///< rows per tile of these tensors
  std::string row_tensor;  ///< the tensor whose tiles are the rows, one per block: "Q"; empty: the rows are blocks
  std::int64_t row_tile_rows = 0;      ///< rows per tile of row_tensor
  std::vector<std::int64_t> matrices;  ///< ascending
  std::vector<std::int64_t> rows;      ///< index of the tile in its matrix, or of the block (for the first matrix)
  std::vector<std::vector<TileCell>> cells;  ///< [row][column]
  bool divided = false;                      ///< the reads of a shared tile were divided evenly among its blocks

  std::size_t columns() const { return cells.empty() ? 0 : cells[0].size(); }
  double most_reads() const;
};
/// The maps of a launch. If each block reads one tile of a tensor such as Q, the rows are that tensor's tiles;
/// otherwise they are blocks. Tensors without a tiling have no map.
std::vector<TileMap> tile_maps(const TracedLaunch& launch);

}  // namespace workbook::judge
