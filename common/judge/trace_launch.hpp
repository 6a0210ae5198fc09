// What a launch did, as the worker recorded it (common/cuda/trace_record.hpp), and the maps of the tiles that its
// blocks read. Knows nothing of how either is shown.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/worker/json.hpp"

namespace workbook::judge {

/// A tensor's rows in tiles: matrices one behind the other, the last tile of each may be short.
struct TraceTiling {
  std::int64_t matrices = 0, rows = 0, row_bytes = 0, tile_rows = 0;
  std::int64_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }  ///< of one matrix
};

/// What one launch asked of one tensor.
struct TracedTensor {
  std::string name;
  std::int64_t bytes = 0;                        ///< its size
  std::map<std::string, std::int64_t> counters;  ///< "load_sectors", …: simt::GlobalCounters by name
  std::optional<TraceTiling> tiling;             ///< where its reads are counted by tiles
  std::vector<double> reads;                     ///< with a tiling: how many times each tile was read, by all blocks
  /// With a tiling: the tiles of which each block read something, as (first, last), ascending.
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> tiles_of_block;

  std::int64_t counter(const std::string& name) const { return counters.at(name); }
  /// What TMA moved; 0 where the record names none.
  std::int64_t bulk(const char* name) const;
  std::int64_t read_bytes() const { return counter("load_bytes") + counter("async_bytes") + bulk("bulk_load_bytes"); }
  std::int64_t written_bytes() const {
    return counter("store_bytes") + bulk("bulk_store_bytes") + bulk("bulk_reduce_bytes");
  }
  /// TMA's bytes count as sectors of 32.
  std::int64_t read_sectors() const {
    return counter("load_sectors") + counter("async_sectors") + (bulk("bulk_load_bytes") + 31) / 32;
  }
  std::int64_t written_sectors() const {
    return counter("store_sectors") + (bulk("bulk_store_bytes") + 31) / 32 + bulk("bulk_reduce_sectors");
  }
  std::int64_t read_requests() const { return counter("load_requests") + counter("async_requests"); }
  /// How many times what was read or written of it went over the wire; nothing if nothing did.
  std::optional<double> times_read() const;
  std::optional<double> times_written() const;
  double tile_reads() const;  ///< the sum of `reads`
};

/// Whether blocks walk over the one tensor's tiles while they keep one of the other: the blocks that read both read
/// more tiles of it. If equally many, it is the one that fewer blocks read, since a block may have nothing to walk
/// over.
bool is_walked_over(const TracedTensor& walked, const TracedTensor& kept);

/// An annotation of the kernel's, such as "masked tile": in which blocks, with which values, as (first, last).
struct TracedNote {
  std::string label;
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> values_of_block;
  std::int64_t count() const;  ///< of different (block, value)
};

/// What block 0 did between two block barriers, all its warps together. What is not named is 0.
struct TracedInterval {
  std::map<std::string, std::int64_t> counters;  ///< "tensor_instructions", …, as a launch's
  /// By tensor: "load_bytes", …, as a launch's, and "arrived_bytes" of asynchronous copies that were waited for.
  std::map<std::string, std::map<std::string, std::int64_t>> tensors;

  std::int64_t counter(const std::string& name) const;
  std::int64_t counter(const std::string& tensor, const std::string& name) const;
};

/// Of one line, the access to shared memory with most bank conflicts: the lanes (or rows of an 8x8 matrix) that the
/// banks should serve at once.
struct TracedAccess {
  std::int64_t wavefronts = 0, ideal = 0, bytes = 0;
  bool rows = false;
  std::vector<int> lanes, banks;
  std::vector<std::string> places;  ///< "S[0][16]"
  int bank = 0;                     ///< the one with most different words
  std::vector<int> in_bank;         ///< who asks for it: indices of `lanes`
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TracedAccess, wavefronts, ideal, bytes, rows, lanes, banks, places, bank, in_bank)

/// What one line of the kernel's source asked for. What is not named is 0.
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

/// A copy of TMA to shared memory, of block 0; times as a wait's; it has landed in interval `last`.
struct TracedFlight {
  int warp = 0;
  std::string what, barrier;  ///< "K 3", and at which barrier it ends: "full[1]"
  std::int64_t begin = 0, end = 0, interval = 0, last = 0;
};

/// What block 0 noted of a row: its value from an interval on, until the next one. +-infinity and NaN are possible.
struct TracedValues {
  std::string label;
  std::int64_t row = 0;
  std::vector<std::pair<std::int64_t, double>> at;  ///< by interval
};

struct TracedLaunch {
  std::string kernel;
  std::int64_t grid[3], block[3], shared_bytes = 0;
  std::int64_t registers = 0;                    ///< of a block after setmaxnreg; 0: it has not been called
  std::map<std::string, std::int64_t> counters;  ///< "global.load_sectors", "block_barriers", …: simt::Counters by name
  std::vector<TracedTensor> tensors;             ///< those touched, in the order of allocation
  std::vector<TracedNote> notes;
  std::vector<TracedInterval> intervals;  ///< the last one ends with the block
  std::vector<TracedLine> lines;          ///< by file and line
  std::vector<TracedWait> waits;          ///< by begin
  std::vector<TracedFlight> flights;      ///< by begin
  std::vector<TracedValues> values;       ///< by first appearance
  std::vector<std::string> reports;       ///< the simulator's, each a text of several lines

  std::int64_t counter(const std::string& name) const { return counters.at(name); }
  /// Of those that are recorded only where there are any.
  std::int64_t if_any(const std::string& name) const { return counters.contains(name) ? counters.at(name) : 0; }
  std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  std::int64_t threads() const { return block[0] * block[1] * block[2]; }
  const TracedTensor* tensor(const std::string& name) const;
};

struct Trace {
  std::vector<TracedLaunch> launches;
  std::vector<std::string> reports;  ///< of what was found after them: elements of an output never written
  std::int64_t too_large = 0;        ///< bytes that the record would take, if it did not fit
};
/// Reads the worker's text. std::runtime_error if it is none.
Trace parse_trace(const std::string& text);

/// One cell of a map: what the blocks of a row read of a tile.
struct TileCell {
  double reads = 0;     ///< how many times the tile was read, parts of it counted as parts
  bool masked = false;  ///< annotated as "masked tile"
  friend bool operator==(const TileCell&, const TileCell&) = default;
};

/// Which tiles were read, by whom: the same in all matrices (heads) named.
struct TileMap {
  std::vector<std::string> tensors;    ///< whose tiles the columns are: "K", "V" where both are read alike
  std::int64_t tile_rows = 0;          ///< rows in a tile of theirs
  std::string row_tensor;              ///< whose tiles the rows are, one a block: "Q"; empty: the rows are blocks
  std::int64_t row_tile_rows = 0;      ///< rows in a tile of that
  std::vector<std::int64_t> matrices;  ///< ascending
  std::vector<std::int64_t> rows;      ///< number of the tile in its matrix, or of the block (of the first matrix)
  std::vector<std::vector<TileCell>> cells;  ///< [row][column]
  bool divided = false;  ///< blocks share a tile that was read more often than there are blocks: divided among them

  std::size_t columns() const { return cells.empty() ? 0 : cells[0].size(); }
  double most_reads() const;
};
/// The maps of a launch. Where each block reads one tile of a tensor (of Q, say), the rows are that tensor's tiles,
/// otherwise blocks. Tensors without a tiling have none.
std::vector<TileMap> tile_maps(const TracedLaunch& launch);

}  // namespace workbook::judge
