#include "common/judge/trace_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "common/book/text.hpp"

namespace workbook::judge {
namespace {

using nlohmann::ordered_json;

std::string kib(std::int64_t bytes) {
  return bytes % 1024 == 0 ? fmt::format("{} KiB", bytes / 1024) : fmt::format("{} B", bytes);
}

/// The text of a transfer, "K 1: 8 KiB": the tensor, the tile in which the transfer begins, and the size. The tile
/// index starts again at 0 after the last tile.
std::string moved_text(const TracedTensor& tensor, std::int64_t before, std::int64_t bytes) {
  const std::int64_t tile_bytes = tensor.tiling ? tensor.tiling->tile_rows * tensor.tiling->row_bytes : 0;
  const std::string number =
      tile_bytes > 0 ? fmt::format(" {}", before % (tensor.tiling->rows * tensor.tiling->row_bytes) / tile_bytes) : "";
  return fmt::format("{}{}: {}", tensor.name, number, kib(bytes));
}

ordered_json bar(std::size_t first, std::size_t last, const std::string& text) {
  return {{"first", first}, {"last", last}, {"text", text}};
}

/// Asynchronous copies of one tensor. A bar extends from the interval that issues the copy to the one in which a TMA
/// load completes, or in which the kernel waits for cp.async.
ordered_json copies(const TracedLaunch& launch, const TracedTensor& tensor) {
  ordered_json bars = ordered_json::array();
  for (const TracedFlight& flight : launch.flights) {
    if (flight.what.substr(0, flight.what.rfind(' ')) == tensor.name)
      bars.push_back(bar(std::size_t(flight.interval), std::size_t(flight.last), flight.what));
  }
  std::deque<std::pair<std::size_t, std::int64_t>> started;  // interval, bytes in flight
  std::int64_t before = 0;
  for (std::size_t i = 0; i < launch.intervals.size(); ++i) {
    const std::int64_t now = launch.intervals[i].counter(tensor.name, "async_bytes");
    if (now > 0) started.emplace_back(i, now);
    std::int64_t arrived = launch.intervals[i].counter(tensor.name, "arrived_bytes");
    while (arrived > 0 && !started.empty()) {
      auto& [first, left] = started.front();
      const std::int64_t part = std::min(arrived, left);
      bars.push_back(bar(first, i, moved_text(tensor, before, part)));
      before += part;
      arrived -= part;
      left -= part;
      if (left == 0) started.pop_front();
    }
  }
  return bars;
}

/// Loads and stores of one tensor by ordinary instructions.
ordered_json moved(const TracedLaunch& launch, const TracedTensor& tensor, const char* counter) {
  ordered_json bars = ordered_json::array();
  std::int64_t before = 0;
  for (std::size_t i = 0; i < launch.intervals.size(); ++i) {
    const std::int64_t bytes = launch.intervals[i].counter(tensor.name, counter);
    if (bytes > 0) bars.push_back(bar(i, i, moved_text(tensor, before, bytes)));
    before += bytes;
  }
  return bars;
}

/// The values of a counter in each interval.
ordered_json counted(const TracedLaunch& launch, const char* counter) {
  ordered_json bars = ordered_json::array();
  for (std::size_t i = 0; i < launch.intervals.size(); ++i) {
    const std::int64_t count = launch.intervals[i].counter(counter);
    if (count > 0) bars.push_back(bar(i, i, fmt::format("{}", count)));
  }
  return bars;
}

}  // namespace

std::string short_name(const std::string& function) {
  std::string text = book::replaced(function, "(anonymous namespace)::", "");
  text.erase(std::min(text.find_first_of("<("), text.size()));
  const std::size_t last = text.find_last_of(": ");
  return last == std::string::npos ? text : text.substr(last + 1);
}

ordered_json timeline_facts(const TracedLaunch& launch) {
  ordered_json lanes = ordered_json::array();
  const auto add = [&](const std::string& name, const char* kind, ordered_json bars) {
    if (!bars.empty()) lanes.push_back({{"name", name}, {"kind", kind}, {"bars", std::move(bars)}});
  };
  for (const TracedTensor& tensor : launch.tensors) {
    add(tensor.name + ", copied", "copied", copies(launch, tensor));
    add(tensor.name + ", loaded", "loaded", moved(launch, tensor, "load_bytes"));
  }
  add("tensor cores", "products", counted(launch, "tensor_instructions"));
  add("wgmma", "products", counted(launch, "wgmma_instructions"));
  add("shared, read", "shared", counted(launch, "shared.load_wavefronts"));
  add("shared, written", "shared", counted(launch, "shared.store_wavefronts"));
  add("shuffles", "shuffles", counted(launch, "shuffles"));
  for (const TracedTensor& tensor : launch.tensors)
    for (const char* counter : {"store_bytes", "bulk_store_bytes", "bulk_reduce_bytes"})
      add(tensor.name + ", stored", "stored", moved(launch, tensor, counter));
  return {{"kernel", short_name(launch.kernel)},
          {"warps", launch.threads() / 32},
          {"intervals", launch.intervals.size()},
          {"lanes", lanes}};
}

ordered_json waits_facts(const TracedLaunch& launch, bool lines) {
  ordered_json waits = ordered_json::array(), flights = ordered_json::array();
  for (const TracedWait& wait : launch.waits) {
    waits.push_back({{"warp", wait.warp}, {"what", wait.what}, {"begin", wait.begin}, {"end", wait.end}});
    if (lines) waits.back().update({{"line", wait.line}, {"interval", wait.interval}});
  }
  for (const TracedFlight& flight : launch.flights)
    flights.push_back(
        {{"what", flight.what}, {"barrier", flight.barrier}, {"begin", flight.begin}, {"end", flight.end}});
  return {{"waits", waits}, {"flights", flights}};
}

}  // namespace workbook::judge
