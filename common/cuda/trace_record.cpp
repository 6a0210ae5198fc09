#include "common/cuda/trace_record.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace workbook::cuda {
namespace {

using nlohmann::json;

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);  // names and notes come from the reader's code
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ",") + text;
  return "[" + all + "]";
}

json triple(const dim3& v) {
  return {v.x, v.y, v.z};
}

/// Appends `value` of `block` to runs [block, first, last]; values of one block come in ascending order.
void append_to_runs(json& runs, std::uint64_t block, std::int64_t value) {
  if (!runs.empty() && runs.back()[0] == block) {
    const auto last = runs.back()[2].get<std::int64_t>();
    if (value == last) return;
    if (value == last + 1) {
      runs.back()[2] = value;
      return;
    }
  }
  runs.push_back({block, value, value});
}

/// The tile that a unit belongs to; nothing past the last matrix.
std::optional<std::size_t> tile_of_unit(const Tiling& tiling, std::size_t unit) {
  const std::size_t row = unit * (unit_bytes(tiling) / tiling.row_bytes), matrix = row / tiling.rows;
  if (matrix >= tiling.matrices) return std::nullopt;
  return matrix * tiling.tiles() + row % tiling.rows / tiling.tile_rows;
}

json tensor_json(const simt::TensorTraffic& traffic, const TracedTensor& known) {
  json tensor{{"name", traffic.name}, {"bytes", known.bytes},   {"counters", json::object()},
              {"tiling", nullptr},    {"reads", json::array()}, {"blocks", json::array()}};
  visit_counters(traffic.counters, "",
                 [&](const std::string& name, std::uint64_t count) { tensor["counters"][name] = count; });
  if (!known.tiling || traffic.tile_bytes.empty()) return tensor;
  const Tiling& tiling = *known.tiling;
  tensor["tiling"] = {{"matrices", tiling.matrices},
                      {"rows", tiling.rows},
                      {"row_bytes", tiling.row_bytes},
                      {"tile_rows", tiling.tile_rows}};
  json& reads = tensor["reads"];
  for (const double times : reads_of_tiles(traffic, tiling)) {
    if (!reads.empty() && reads.back()[1] == times) {
      reads.back()[0] = reads.back()[0].get<std::uint64_t>() + 1;
    } else {
      reads.push_back({1, times});
    }
  }
  for (const auto& [block, units] : traffic.tiles_of_block) {
    for (const std::uint32_t unit : units) {
      if (const auto tile = tile_of_unit(tiling, unit)) append_to_runs(tensor["blocks"], block, std::int64_t(*tile));
    }
  }
  return tensor;
}

/// What thread block 0 did between the ends of two consecutive intervals.
json interval_json(const simt::Interval& before, const simt::Interval& now) {
  json interval{{"counters", json::object()}, {"tensors", json::object()}};
  const auto add = [](json& to) {
    return [&to](const std::string& name, std::uint64_t count) { to[name] = to.value(name, std::uint64_t(0)) + count; };
  };
  const auto subtract = [](json& from) {
    return [&from](const std::string& name, std::uint64_t count) {
      const std::uint64_t left = from.at(name).get<std::uint64_t>() - count;
      from[name] = left;
      if (left == 0) from.erase(name);
    };
  };
  visit_counters(now.counters, add(interval["counters"]));
  visit_counters(before.counters, subtract(interval["counters"]));
  for (const auto& [name, tensor] : now.tensors) {
    json& done = interval["tensors"][name] = json::object();
    const auto earlier = before.tensors.find(name);
    const simt::Interval::Tensor none, &then = earlier == before.tensors.end() ? none : earlier->second;
    visit_counters(tensor.counters, "", add(done));
    visit_counters(then.counters, "", subtract(done));
    if (tensor.arrived_bytes > then.arrived_bytes) done["arrived_bytes"] = tensor.arrived_bytes - then.arrived_bytes;
    if (done.empty()) interval["tensors"].erase(name);
  }
  return interval;
}

json worst_json(const simt::WorstAccess& access) {
  return {{"wavefronts", access.wavefronts}, {"ideal", access.ideal}, {"bytes", access.bytes},   {"rows", access.rows},
          {"lanes", access.lanes},           {"banks", access.banks}, {"places", access.places}, {"bank", access.bank},
          {"in_bank", access.in_bank}};
}

json line_json(const simt::TracedLine& line) {
  json counters = json::object();
  visit_counters(line.counters, [&](const std::string& name, std::uint64_t count) {
    if (count != 0) counters[name] = count;
  });
  return {{"file", line.source.file},
          {"line", line.source.line},
          {"function", line.source.function},
          {"counters", counters},
          {"worst", line.worst ? worst_json(*line.worst) : json(nullptr)}};
}

json wait_json(const simt::Wait& wait) {
  return {{"warp", wait.warp},   {"what", wait.what}, {"file", wait.source.file}, {"line", wait.source.line},
          {"begin", wait.begin}, {"end", wait.end},   {"interval", wait.interval}};
}

/// By label and row, in the order of their first appearance. If an interval has several values, the last one is used.
json values_json(const simt::Launch& launch) {
  json all = json::array();
  std::map<std::pair<std::string, long long>, std::size_t> places;
  for (const simt::NotedValue& noted : launch.values) {
    const auto [at, fresh] = places.try_emplace({noted.label, noted.row}, all.size());
    if (fresh) all.push_back({{"label", noted.label}, {"row", noted.row}, {"at", json::array()}});
    json& values = all[at->second]["at"];
    if (!values.empty() && values.back()[0] == noted.interval) values.erase(values.size() - 1);
    json value = noted.value;
    if (!std::isfinite(noted.value)) value = std::isnan(noted.value) ? "nan" : noted.value > 0 ? "inf" : "-inf";
    values.push_back({noted.interval, std::move(value)});
  }
  return all;
}

}  // namespace

void visit_counters(const simt::GlobalCounters& c, const std::string& prefix,
                    const std::function<void(const std::string&, std::uint64_t)>& take) {
  take(prefix + "load_requests", c.load_requests);
  take(prefix + "load_sectors", c.load_sectors);
  take(prefix + "load_bytes", c.load_bytes);
  take(prefix + "store_requests", c.store_requests);
  take(prefix + "store_sectors", c.store_sectors);
  take(prefix + "store_bytes", c.store_bytes);
  take(prefix + "async_requests", c.async_requests);
  take(prefix + "async_sectors", c.async_sectors);
  take(prefix + "async_bytes", c.async_bytes);
  take(prefix + "atomic_requests", c.atomic_requests);
  take(prefix + "atomic_sectors", c.atomic_sectors);
  if (c.bulk_load_bytes != 0) take(prefix + "bulk_load_bytes", c.bulk_load_bytes);
  if (c.bulk_store_bytes != 0) take(prefix + "bulk_store_bytes", c.bulk_store_bytes);
  if (c.bulk_reduce_bytes != 0) take(prefix + "bulk_reduce_bytes", c.bulk_reduce_bytes);
  if (c.bulk_reduce_sectors != 0) take(prefix + "bulk_reduce_sectors", c.bulk_reduce_sectors);
  take(prefix + "unique_read_sectors", c.unique_read_sectors);
  take(prefix + "unique_written_sectors", c.unique_written_sectors);
}

void visit_counters(const simt::Counters& c, const std::function<void(const std::string&, std::uint64_t)>& take) {
  visit_counters(c.global, "global.", take);
  take("shared.load_instructions", c.shared.load_instructions);
  take("shared.store_instructions", c.shared.store_instructions);
  take("shared.matrix_loads", c.shared.matrix_loads);
  take("shared.matrix_stores", c.shared.matrix_stores);
  take("shared.load_wavefronts", c.shared.load_wavefronts);
  take("shared.store_wavefronts", c.shared.store_wavefronts);
  take("shared.load_ideal", c.shared.load_ideal);
  take("shared.store_ideal", c.shared.store_ideal);
  take("shared.atomic_instructions", c.shared.atomic_instructions);
  take("tensor_instructions", c.tensor_instructions);
  take("multiply_calls", c.multiply_calls);
  take("async_instructions", c.async_instructions);
  const auto take_if_any = [&](const char* name, std::uint64_t count) {
    if (count != 0) take(name, count);
  };
  take_if_any("bulk_loads", c.bulk_loads);
  take_if_any("bulk_stores", c.bulk_stores);
  take_if_any("bulk_reductions", c.bulk_reductions);
  take_if_any("bulk_reductions_ordered", c.bulk_reductions_ordered);
  take_if_any("bulk_requests", c.bulk_requests);
  take_if_any("wgmma_instructions", c.wgmma_instructions);
  take_if_any("wgmma_operations", c.wgmma_operations);
  take_if_any("wgmma_wavefronts", c.wgmma_wavefronts);
  take_if_any("wgmma_partial_waits", c.wgmma_partial_waits);
  take_if_any("wgmma_after_window", c.wgmma_after_window);
  take_if_any("wgmma_waits_in_window", c.wgmma_waits_in_window);
  take_if_any("async_partial_waits", c.async_partial_waits);
  take_if_any("multiplies_beside_copies", c.multiplies_beside_copies);
  take_if_any("shuffles_before_arrival", c.shuffles_before_arrival);
  take_if_any("mbarrier_arrivals", c.mbarrier_arrivals);
  take_if_any("mbarrier_waits", c.mbarrier_waits);
  take_if_any("mbarrier_waits_together", c.mbarrier_waits_together);
  take_if_any("fences", c.fences);
  take_if_any("exponentials", c.exponentials);
  take("named_barriers", c.named_barriers);
  take("block_barriers", c.block_barriers);
  take("warp_barriers", c.warp_barriers);
  take("shuffles", c.shuffles);
  take("votes", c.votes);
}

std::size_t unit_bytes(const Tiling& tiling) {
  return std::gcd(tiling.rows, tiling.tile_rows) * tiling.row_bytes;
}

std::vector<double> reads_of_tiles(const simt::TensorTraffic& traffic, const Tiling& tiling) {
  const std::size_t tiles = tiling.tiles();
  std::vector<double> reads(tiling.matrices * tiles, 0.0);
  for (std::size_t unit = 0; unit < traffic.tile_bytes.size(); ++unit) {
    if (const auto tile = tile_of_unit(tiling, unit)) reads[*tile] += double(traffic.tile_bytes[unit]);
  }
  for (std::size_t tile = 0; tile < reads.size(); ++tile) {
    const std::size_t rows = std::min(tiling.tile_rows, tiling.rows - tile % tiles * tiling.tile_rows);
    reads[tile] /= double(rows * tiling.row_bytes);
  }
  return reads;
}

void TraceRecord::add_launch(const simt::Launch& launch, const std::map<std::string, TracedTensor>& tensors) {
  json record{{"kernel", launch.kernel},
              {"device", launch.device},
              {"grid", triple(launch.grid)},
              {"block", triple(launch.block)},
              {"shared_bytes", launch.shared_bytes},
              {"registers", launch.registers},
              {"counters", json::object()},
              {"tensors", json::array()},
              {"notes", json::array()},
              {"intervals", json::array()},
              {"lines", json::array()},
              {"waits", json::array()},
              {"flights", json::array()},
              {"values", values_json(launch)},
              {"reports", json::array()}};
  visit_counters(launch.counters,
                 [&](const std::string& name, std::uint64_t count) { record["counters"][name] = count; });
  for (const simt::TensorTraffic& traffic : launch.tensors) {
    const auto known = tensors.find(traffic.name);
    record["tensors"].push_back(tensor_json(traffic, known == tensors.end() ? TracedTensor{} : known->second));
  }
  std::map<std::string, json> notes;  // sorted by block, label, value
  for (const simt::Note& note : launch.notes) {
    append_to_runs(notes.try_emplace(note.label, json::array()).first->second, note.block, note.value);
  }
  for (auto& [label, values] : notes) record["notes"].push_back({{"label", label}, {"values", std::move(values)}});
  for (std::size_t i = 0; i < launch.intervals.size(); ++i) {
    record["intervals"].push_back(
        interval_json(i == 0 ? simt::Interval{} : launch.intervals[i - 1], launch.intervals[i]));
  }
  for (const simt::TracedLine& line : launch.lines) record["lines"].push_back(line_json(line));
  for (const simt::Wait& wait : launch.waits) record["waits"].push_back(wait_json(wait));
  for (const simt::Flight& flight : launch.flights)
    record["flights"].push_back({{"warp", flight.warp},
                                 {"what", flight.what},
                                 {"barrier", flight.barrier},
                                 {"begin", flight.begin},
                                 {"end", flight.end},
                                 {"interval", flight.interval},
                                 {"last", std::max(flight.interval, flight.last_interval)}});
  for (const simt::Report& report : launch.reports) record["reports"].push_back(report.text());
  launches_.push_back(dumped(record));
}

void TraceRecord::add_transfers(const std::vector<simt::Transfer>& transfers) {
  for (const auto& [from, to, bytes, step] : transfers)
    transfers_.push_back(dumped({{"from", from}, {"to", to}, {"bytes", bytes}, {"step", step}}));
}

void TraceRecord::add_report(const std::string& text) {
  reports_.push_back(dumped(text));
}

std::string TraceRecord::text() const {
  return "{\"launches\":" + joined(launches_) + ",\"transfers\":" + joined(transfers_) +
         ",\"reports\":" + joined(reports_) + "}";
}

}  // namespace workbook::cuda
