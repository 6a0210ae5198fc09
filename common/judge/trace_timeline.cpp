#include "common/judge/trace_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace workbook::judge {
namespace {

std::string kib(std::int64_t bytes) {
  return bytes % 1024 == 0 ? fmt::format("{} KiB", bytes / 1024) : fmt::format("{} B", bytes);
}

/// What is moved of a tensor, "K 1: 8 KiB": the tile in which it begins, if it is moved tile after tile, and from the
/// first tile on again when all have been.
std::string moved_text(const TracedTensor& tensor, std::int64_t before, std::int64_t bytes) {
  const std::int64_t tile_bytes = tensor.tiling ? tensor.tiling->tile_rows * tensor.tiling->row_bytes : 0;
  const std::string number =
      tile_bytes > 0 ? fmt::format(" {}", before % (tensor.tiling->rows * tensor.tiling->row_bytes) / tile_bytes) : "";
  return fmt::format("{}{}: {}", tensor.name, number, kib(bytes));
}

/// Copies of one tensor that run beside the kernel: from the interval that starts them to the one that waits for them.
TimelineLane copies_lane(const TracedLaunch& launch, const TracedTensor& tensor) {
  TimelineLane lane{tensor.name + ", copied", TimelineLane::Kind::copied, {}};
  std::deque<std::pair<std::size_t, std::int64_t>> started;  // interval, bytes not yet arrived
  std::int64_t before = 0;
  for (std::size_t i = 0; i < launch.intervals.size(); ++i) {
    const std::int64_t now = launch.intervals[i].counter(tensor.name, "async_bytes") +
                             launch.intervals[i].counter(tensor.name, "bulk_load_bytes");
    if (now > 0) started.emplace_back(i, now);
    std::int64_t arrived = launch.intervals[i].counter(tensor.name, "arrived_bytes");
    while (arrived > 0 && !started.empty()) {
      auto& [first, left] = started.front();
      const std::int64_t part = std::min(arrived, left);
      lane.bars.push_back({first, i, moved_text(tensor, before, part)});
      before += part;
      arrived -= part;
      left -= part;
      if (left == 0) started.pop_front();
    }
  }
  return lane;
}

/// Loads and stores of one tensor by ordinary instructions.
TimelineLane moved_lane(const TracedLaunch& launch, const TracedTensor& tensor, const char* what, const char* counter,
                        TimelineLane::Kind kind) {
  TimelineLane lane{tensor.name + what, kind, {}};
  std::int64_t before = 0;
  for (std::size_t i = 0; i < launch.intervals.size(); ++i) {
    const std::int64_t bytes = launch.intervals[i].counter(tensor.name, counter);
    if (bytes == 0) continue;
    lane.bars.push_back({i, i, moved_text(tensor, before, bytes)});
    before += bytes;
  }
  return lane;
}

/// A counter of each interval.
TimelineLane counted_lane(const TracedLaunch& launch, const char* name, const char* counter, TimelineLane::Kind kind) {
  TimelineLane lane{name, kind, {}};
  for (std::size_t i = 0; i < launch.intervals.size(); ++i) {
    const std::int64_t count = launch.intervals[i].counter(counter);
    if (count > 0) lane.bars.push_back({i, i, fmt::format("{}", count)});
  }
  return lane;
}

}  // namespace

const char* name(TimelineLane::Kind kind) {
  switch (kind) {
    case TimelineLane::Kind::copied:
      return "copied";
    case TimelineLane::Kind::loaded:
      return "loaded";
    case TimelineLane::Kind::stored:
      return "stored";
    case TimelineLane::Kind::products:
      return "products";
    case TimelineLane::Kind::shared:
      return "shared";
    case TimelineLane::Kind::shuffles:
      return "shuffles";
  }
  return "";
}

std::vector<TimelineLane> timeline_of(const TracedLaunch& launch) {
  std::vector<TimelineLane> lanes;
  for (const TracedTensor& tensor : launch.tensors) {
    lanes.push_back(copies_lane(launch, tensor));
    lanes.push_back(moved_lane(launch, tensor, ", loaded", "load_bytes", TimelineLane::Kind::loaded));
  }
  lanes.push_back(counted_lane(launch, "tensor cores", "tensor_instructions", TimelineLane::Kind::products));
  lanes.push_back(counted_lane(launch, "shared, read", "shared.load_wavefronts", TimelineLane::Kind::shared));
  lanes.push_back(counted_lane(launch, "shared, written", "shared.store_wavefronts", TimelineLane::Kind::shared));
  lanes.push_back(counted_lane(launch, "shuffles", "shuffles", TimelineLane::Kind::shuffles));
  for (const TracedTensor& tensor : launch.tensors)
    for (const char* counter : {"store_bytes", "bulk_store_bytes", "bulk_reduce_bytes"})
      lanes.push_back(moved_lane(launch, tensor, ", stored", counter, TimelineLane::Kind::stored));
  return lanes;
}

}  // namespace workbook::judge
