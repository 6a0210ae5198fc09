// The facts of a traced launch as texts and tables, used for both the terminal and the web page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/judge/trace_launch.hpp"
#include "common/simt/gpu_class.hpp"

namespace workbook::judge {

/// A table; the first row is the header. Text columns are left-aligned, the others right-aligned.
struct TraceTable {
  std::vector<std::vector<std::string>> rows;
  std::size_t left = 1;  ///< the number of leading text columns
};

/// "grid (4, 1, 1), block (128, 1, 1): 4 blocks of 128 threads, 171.5 KiB of dynamic shared memory per block"
std::string launch_shape(const TracedLaunch& launch);
/// Traffic of device memory: one row for reads and one for writes of each tensor.
TraceTable traffic_table(const TracedLaunch& launch);
/// The total traffic of several launches, in bytes only.
TraceTable all_traffic_table(const std::vector<TracedLaunch>& launches);
/// What each rank sent to which other one, by its calls of NCCL (a group is one), and in all. Only the header if none
/// did.
TraceTable transfer_table(const std::vector<TracedTransfer>& transfers);
/// Shared memory: instructions, wavefronts, bank conflicts. Only the header if none is used.
TraceTable shared_table(const TracedLaunch& launch);
/// Tensor cores, cp.async, barriers, tiles, annotations, as (name, text).
std::vector<std::pair<std::string, std::string>> launch_facts(const TracedLaunch& launch);
/// "2 blocks per SM (H100), 8 of 64 warps, limited by shared memory": the occupancy that the limits of a GPU allow.
/// `registers`: per block, if known.
std::string occupancy_text(const simt::GpuClass& gpu, std::int64_t threads, std::int64_t shared_bytes,
                           std::int64_t registers = 0);
/// Every counter with the corresponding metric of Nsight Compute.
TraceTable metrics_table(const TracedLaunch& launch);

/// Explanations of the tables' columns.
extern const char* const traffic_legend;
extern const char* const shared_legend;

/// A tile map as it is drawn, with `scale` x `scale` tiles per cell.
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
/// The meanings of the marks that occur in a drawn map.
std::vector<std::pair<DrawnCell, std::string>> map_legend(const TileMap& map, const DrawnMap& drawn);
/// Further notes on the map: a scale, reads that were divided; empty if there are none.
std::string map_note(const TileMap& map, const DrawnMap& drawn);

}  // namespace workbook::judge
