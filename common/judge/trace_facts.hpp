// What the trace shows of a launch, in words and tables: the same facts for the terminal and for the page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/judge/trace_launch.hpp"
#include "common/simt/gpu_class.hpp"

namespace workbook::judge {

/// A table; the first row is the head. Columns of words are aligned left, the others right.
struct TraceTable {
  std::vector<std::vector<std::string>> rows;
  std::size_t left = 1;  ///< so many first columns are words
};

/// "grid (4, 1, 1), block (128, 1, 1): 4 blocks of 128 threads, 171.5 KiB of dynamic shared memory a block"
std::string launch_shape(const TracedLaunch& launch);
/// Device memory, a row for what is read and one for what is written of each tensor.
TraceTable traffic_table(const TracedLaunch& launch);
/// The same of several launches together: bytes only.
TraceTable all_traffic_table(const std::vector<TracedLaunch>& launches);
/// Shared memory: instructions, wavefronts, bank conflicts. Only the head if none is used.
TraceTable shared_table(const TracedLaunch& launch);
/// Tensor cores, cp.async, barriers, tiles, annotations: name and text.
std::vector<std::pair<std::string, std::string>> launch_facts(const TracedLaunch& launch);
/// "2 blocks on a multiprocessor (H100), 8 of 64 warps, limited by shared memory": what the limits of a GPU allow.
/// `registers`: of a block, where they are known.
std::string occupancy_text(const simt::GpuClass& gpu, std::int64_t threads, std::int64_t shared_bytes,
                           std::int64_t registers = 0);
/// Every counter, and the metric of Nsight Compute that counts the same.
TraceTable metrics_table(const TracedLaunch& launch);

/// How the columns of the tables are to be read.
extern const char* const traffic_legend;
extern const char* const shared_legend;

/// A tile map as it is drawn: `scale` x `scale` tiles a cell.
struct DrawnCell {
  enum class Kind { never, part, read, masked, mixed } kind = Kind::never;
  std::string text;  ///< ".", "#", "m", "16", …
};
struct DrawnMap {
  std::int64_t scale = 1;
  std::vector<std::vector<DrawnCell>> cells;
  std::size_t width() const;  ///< characters of the longest text
};
DrawnMap draw(const TileMap& map, std::int64_t scale);

/// "Q tiles of 64 rows down, K and V tiles of 64 rows across, in heads 0-3 alike"
std::string map_title(const TileMap& map);
/// What the marks of a drawn map mean, those that occur.
std::vector<std::pair<DrawnCell, std::string>> map_legend(const TileMap& map, const DrawnMap& drawn);
/// Anything that has to be known beside that: a scale, reads that were divided; empty if nothing.
std::string map_note(const TileMap& map, const DrawnMap& drawn);

}  // namespace workbook::judge
