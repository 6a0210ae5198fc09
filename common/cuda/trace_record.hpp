// The record of each launch on the simulator for `./workbook trace`, as JSON:
//
//   {"launches": [{"kernel": "attention<64, 64>", "device": 0, "grid": [4, 1, 1], "block": [128, 1, 1],
//     "shared_bytes": 1024, "registers": 0, "counters": {"global.load_requests": 0, …, "block_barriers": 0, …},
//     "tensors": [{"name": "K", "bytes": 8192, "counters": {"load_requests": 0, …},
//       "tiling": null, or {"matrices": 4, "rows": 100, "row_bytes": 128, "tile_rows": 64},
//       "reads": [[COUNT, READS], …], "blocks": [[BLOCK, FIRST, LAST], …]}],
//     "notes": [{"label": "masked tile", "values": [[BLOCK, FIRST, LAST], …]}],
//     "intervals": [{"counters": {"shuffles": 32, …}, "tensors": {"K": {"async_bytes": 8192, …}}}],
//     "lines": [{"file": "solutions/…", "line": 12, "function": "load_tile<64>", "counters": {…}, "worst": null, or
//       {"wavefronts": 8, "ideal": 1, "bytes": 16, "rows": true, "lanes": [0, …], "banks": [0, …],
//        "places": ["S[0][0]", …], "bank": 0, "in_bank": [0, …]}}],
//     "waits": [{"warp": 0, "what": "__syncthreads", "file": "…", "line": 9, "begin": 0, "end": 4, "interval": 0}],
//     "flights": [{"warp": 7, "what": "K 3", "barrier": "full[1]", "begin": 0, "end": 4, "interval": 0}],
//     "values": [{"label": "m", "row": 12, "at": [[INTERVAL, VALUE], …]}],
//     "reports": ["race: …"]}],
//   "transfers": [{"from": 0, "to": 1, "bytes": 65536, "step": 0}], "reports": ["output never written: …"]}
//
// Tiles are numbered through all matrices. "reads": COUNT adjacent tiles were each read READS times, summed over all
// thread blocks. "blocks": the block read part of tiles FIRST to LAST. "intervals": the nonzero counters of block 0
// between two block barriers; arrived_bytes are the bytes of cp.async copies that were waited for, and the copy
// engine's. "lines": the nonzero counters of each source line of the kernel. "values": the values that block 0 recorded
// for a row, the last one of each interval; VALUE may be "inf", "-inf" or "nan". Independent of attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/cuda/backend.hpp"
#include "common/simt/simulator.hpp"
#include "common/simt/stream_order.hpp"

namespace workbook::cuda {

/// Every counter by name: "global.load_sectors", "shared.load_wavefronts", "block_barriers", …
void visit_counters(const simt::Counters& counters, const std::function<void(const std::string&, std::uint64_t)>& take);
/// Every counter of one tensor: `prefix` + "load_sectors", …
void visit_counters(const simt::GlobalCounters& counters, const std::string& prefix,
                    const std::function<void(const std::string&, std::uint64_t)>& take);

/// A number of bytes that divides every tile, including partial ones: the unit by which the simulator counts a tiling's
/// reads.
std::size_t unit_bytes(const Tiling& tiling);
/// How many times each tile was read, summed over all thread blocks, computed from the counts per unit.
std::vector<double> reads_of_tiles(const simt::TensorTraffic& traffic, const Tiling& tiling);

/// A tensor's properties in the record, apart from its traffic.
struct TracedTensor {
  std::size_t bytes = 0;
  std::optional<Tiling> tiling;
};

/// The record of several launches.
class TraceRecord {
 public:
  /// Adds a completed launch, with its tensors by name.
  void add_launch(const simt::Launch& launch, const std::map<std::string, TracedTensor>& tensors);
  void add_transfers(const std::vector<simt::Transfer>& transfers);
  /// Adds a report made after the launches.
  void add_report(const std::string& text);
  std::string text() const;

 private:
  std::vector<std::string> launches_, transfers_, reports_;  ///< JSON texts
};

}  // namespace workbook::cuda
