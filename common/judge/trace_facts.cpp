#include "common/judge/trace_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/book/text.hpp"
#include "common/worker/backend.hpp"

namespace workbook::judge {
namespace {

/// "3136", "3.06"
std::string number_text(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.2f}", value);
}

std::string times_text(std::optional<double> times) {
  return times ? number_text(*times) : "-";
}

/// Names as in simt::Counters (common/simt/counters.hpp), with the metrics listed there.
struct Metric {
  const char *counter, *metric;
};
constexpr std::array<Metric, 53> metrics{{
    {"global.load_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum, less global.async_requests"},
    {"global.load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum, less global.async_sectors"},
    {"global.load_bytes", ""},
    {"global.store_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"},
    {"global.store_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"},
    {"global.store_bytes", ""},
    {"global.async_requests", ""},
    {"global.async_sectors", ""},
    {"global.async_bytes", ""},
    {"global.atomic_requests",
     "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum + l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum"},
    {"global.atomic_sectors",
     "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum + l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum"},
    {"global.unique_read_sectors", ""},
    {"global.unique_written_sectors", ""},
    {"shared.load_instructions", "smsp__sass_inst_executed_op_shared_ld.sum"},
    {"shared.store_instructions", "smsp__sass_inst_executed_op_shared_st.sum"},
    {"shared.matrix_loads", "smsp__sass_inst_executed_op_ldsm.sum"},
    {"shared.matrix_stores", ""},
    {"shared.load_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"},
    {"shared.store_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"},
    {"shared.load_ideal", ""},
    {"shared.store_ideal", ""},
    {"shared.atomic_instructions", "smsp__inst_executed_op_shared_atom.sum"},
    {"tensor_instructions",
     "sm__inst_executed_pipe_tensor.sum, less sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"},
    {"multiply_calls", ""},
    {"async_instructions", "smsp__inst_executed_op_ldgsts_pred_on_any.sum"},
    {"block_barriers", ""},
    {"named_barriers", ""},
    {"warp_barriers", ""},
    {"shuffles", ""},
    {"votes", ""},
    // Recorded only if not 0:
    {"global.bulk_load_bytes", "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"},
    {"global.bulk_store_bytes", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"},
    {"global.bulk_reduce_bytes", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum"},
    {"global.bulk_reduce_sectors", "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum"},
    {"bulk_loads", "smsp__sass_inst_executed_op_tma_ld.sum"},
    {"bulk_stores", "smsp__sass_inst_executed_op_tma_st.sum"},
    {"bulk_reductions", "smsp__sass_inst_executed_op_tma_red.sum"},
    {"bulk_reductions_ordered", ""},
    {"bulk_requests", "l1tex__tmain_requests.sum"},
    {"wgmma_instructions", "sm__inst_executed_pipe_tensor_op_gmma.sum"},
    {"wgmma_operations", "sm__ops_path_tensor_op_hgmma_src_fp16.sum"},
    {"wgmma_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"},
    {"wgmma_partial_waits", ""},
    {"wgmma_after_window", ""},
    {"wgmma_waits_in_window", ""},
    {"async_partial_waits", ""},
    {"multiplies_beside_copies", ""},
    {"shuffles_before_arrival", ""},
    {"mbarrier_arrivals", ""},
    {"mbarrier_waits", ""},
    {"mbarrier_waits_together", ""},
    {"fences", ""},
    {"exponentials", ""},
}};

/// "0-3, 5"
std::string ranges_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

DrawnCell drawn(const TileCell& cell, bool counts) {
  if (cell.reads == 0) return {DrawnCell::Kind::never, "."};
  if (cell.reads < 1) return {DrawnCell::Kind::part, "~"};
  std::string text;
  if (counts) text = cell.reads == std::floor(cell.reads) ? number_text(cell.reads) : fmt::format("{:.1f}", cell.reads);
  if (cell.masked) return {DrawnCell::Kind::masked, text + "m"};
  return {DrawnCell::Kind::read, counts ? text : "#"};
}

/// The transfers of Hopper's TMA and the mbarriers. Adds nothing for kernels without them.
void add_copy_engine(std::vector<std::pair<std::string, std::string>>& facts, const TracedLaunch& launch) {
  const auto count = [&](const char* name) { return launch.if_any(name); };
  if (count("bulk_loads") + count("bulk_stores") + count("bulk_reductions") > 0) {
    std::string text = fmt::format("{} loads, {} stores", count("bulk_loads"), count("bulk_stores"));
    if (count("bulk_reductions") > 0) text += fmt::format(", {} additions", count("bulk_reductions"));
    for (const TracedTensor& tensor : launch.tensors) {
      for (const auto& [name, verb] : {std::pair{"bulk_load_bytes", "loaded"},
                                       {"bulk_store_bytes", "stored"},
                                       {"bulk_reduce_bytes", "added to"}}) {
        const std::int64_t bytes = tensor.bulk(name);
        if (bytes > 0) text += fmt::format("; {} {}, {}", tensor.name, verb, book::bytes_text(double(bytes)));
      }
    }
    facts.emplace_back("TMA", text);
  }
  if (count("mbarrier_waits") + count("mbarrier_arrivals") > 0) {
    facts.emplace_back("mbarriers", fmt::format("{} waits and {} arrivals of threads", count("mbarrier_waits"),
                                                count("mbarrier_arrivals")));
  }
}

}  // namespace

const char* const traffic_legend =
    "sectors: 32 bytes each, as the kernel requests them, before any cache; at least: distinct sectors, the traffic "
    "with an ideal cache; times: sectors / at least";
const char* const shared_legend =
    "LDSM, STSM: fragments loaded and stored, eight rows of 16 bytes at a time; wavefronts: cycles of the 32 banks; at "
    "least: without bank conflicts; conflicts: the share of wavefronts caused by bank conflicts";

std::string launch_shape(const TracedLaunch& launch) {
  return fmt::format("grid ({}, {}, {}), block ({}, {}, {}): {} {} of {} threads, {} dynamic shared memory per block",
                     launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1], launch.block[2],
                     launch.blocks(), launch.blocks() == 1 ? "block" : "blocks", launch.threads(),
                     launch.shared_bytes == 0 ? "no" : book::bytes_text(double(launch.shared_bytes)) + " of");
}

TraceTable traffic_table(const TracedLaunch& launch) {
  TraceTable table{{{"tensor", "", "size", "bytes", "requests", "sectors", "at least", "times"}}, 2};
  std::int64_t read_bytes = 0, read_sectors = 0, written_bytes = 0, written_sectors = 0, least_read = 0,
               least_written = 0, read_requests = 0, write_requests = 0;
  const auto add = [&](const std::string& name, const char* what, const std::string& size, std::int64_t bytes,
                       std::int64_t requests, std::int64_t sectors, std::int64_t least, std::optional<double> times) {
    table.rows.push_back({name, what, size, book::bytes_text(double(bytes)), fmt::format("{}", requests),
                          fmt::format("{}", sectors), fmt::format("{}", least), times_text(times)});
  };
  for (const TracedTensor& tensor : launch.tensors) {
    const std::string size = book::bytes_text(double(tensor.bytes));
    if (tensor.read_requests() > 0 || tensor.bulk("bulk_load_bytes") > 0) {
      add(tensor.name, "read", size, tensor.read_bytes(), tensor.read_requests(), tensor.read_sectors(),
          tensor.counter("unique_read_sectors"), tensor.times_read());
      read_bytes += tensor.read_bytes();
      read_requests += tensor.read_requests();
      read_sectors += tensor.read_sectors();
      least_read += tensor.counter("unique_read_sectors");
    }
    if (tensor.counter("store_requests") + tensor.bulk("bulk_store_bytes") + tensor.bulk("bulk_reduce_bytes") > 0) {
      add(tensor.name, "written", size, tensor.written_bytes(), tensor.counter("store_requests"),
          tensor.written_sectors(), tensor.counter("unique_written_sectors"), tensor.times_written());
      written_bytes += tensor.written_bytes();
      write_requests += tensor.counter("store_requests");
      written_sectors += tensor.written_sectors();
      least_written += tensor.counter("unique_written_sectors");
    }
    if (tensor.counter("atomic_requests") > 0) {
      table.rows.push_back({tensor.name, "atomics", size, "-", fmt::format("{}", tensor.counter("atomic_requests")),
                            fmt::format("{}", tensor.counter("atomic_sectors")), "-", "-"});
    }
  }
  if (launch.tensors.size() > 1) {
    add("all", "read", "", read_bytes, read_requests, read_sectors, least_read,
        least_read == 0 ? std::nullopt : std::optional(double(read_sectors) / double(least_read)));
    add("all", "written", "", written_bytes, write_requests, written_sectors, least_written,
        least_written == 0 ? std::nullopt : std::optional(double(written_sectors) / double(least_written)));
  }
  return table;
}

TraceTable transfer_table(const std::vector<TracedTransfer>& transfers) {
  TraceTable table{{{"from rank", "to rank", "call", "bytes"}}, 0};
  std::vector<TracedTransfer> sorted = transfers;
  std::ranges::stable_sort(sorted, {}, [](const TracedTransfer& sent) { return std::pair(sent.from, sent.step); });
  std::int64_t sum = 0;
  for (const TracedTransfer& sent : sorted) {
    sum += sent.bytes;
    table.rows.push_back({fmt::format("{}", sent.from), fmt::format("{}", sent.to), fmt::format("{}", sent.step),
                          book::bytes_text(double(sent.bytes))});
  }
  if (!sorted.empty()) table.rows.push_back({"all", "", "", book::bytes_text(double(sum))});
  return table;
}

TraceTable all_traffic_table(const std::vector<TracedLaunch>& launches) {
  struct Sums {
    std::string name;
    std::int64_t size = 0, read = 0, written = 0;
  };
  std::vector<Sums> sums;
  Sums all{"all"};
  for (const TracedLaunch& launch : launches) {
    for (const TracedTensor& tensor : launch.tensors) {
      auto found = std::find_if(sums.begin(), sums.end(), [&](const Sums& s) { return s.name == tensor.name; });
      if (found == sums.end()) found = sums.insert(sums.end(), Sums{tensor.name, tensor.bytes});
      for (Sums* sum : {&*found, &all}) {
        sum->read += tensor.read_bytes();
        sum->written += tensor.written_bytes();
      }
    }
  }
  sums.push_back(all);
  TraceTable table{{{"tensor", "size", "read", "written"}}};
  for (const Sums& sum : sums) {
    table.rows.push_back({sum.name, sum.size == 0 ? "" : book::bytes_text(double(sum.size)),
                          book::bytes_text(double(sum.read)), book::bytes_text(double(sum.written))});
  }
  return table;
}

TraceTable shared_table(const TracedLaunch& launch) {
  TraceTable table{{{"shared memory", "instructions", "of them LDSM, STSM", "wavefronts", "at least", "conflicts"}}};
  const auto add = [&](const char* what, std::int64_t instructions, std::int64_t matrix, std::int64_t wavefronts,
                       std::int64_t ideal) {
    if (instructions + matrix == 0) return;
    table.rows.push_back(
        {what, fmt::format("{}", instructions + matrix), fmt::format("{}", matrix), fmt::format("{}", wavefronts),
         fmt::format("{}", ideal),
         wavefronts == 0 ? "-" : fmt::format("{:.1f} %", 100. * double(wavefronts - ideal) / double(wavefronts))});
  };
  add("loads", launch.counter("shared.load_instructions"), launch.counter("shared.matrix_loads"),
      launch.counter("shared.load_wavefronts"), launch.counter("shared.load_ideal"));
  add("stores", launch.counter("shared.store_instructions"), launch.counter("shared.matrix_stores"),
      launch.counter("shared.store_wavefronts"), launch.counter("shared.store_ideal"));
  return table;
}

std::string occupancy_text(const simt::GpuClass& gpu, std::int64_t threads, std::int64_t shared_bytes,
                           std::int64_t registers) {
  const simt::Occupancy fits = simt::occupancy(gpu, int(threads), std::size_t(shared_bytes), int(registers));
  return fmt::format("{} {} per SM ({}), {} of {} warps, limited by {}", fits.blocks,
                     fits.blocks == 1 ? "block" : "blocks", gpu.title, fits.blocks * ((threads + 31) / 32),
                     gpu.threads_sm / 32, fits.limit);
}

std::vector<std::pair<std::string, std::string>> launch_facts(const TracedLaunch& launch) {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto count = [&](const char* name) { return launch.counter(name); };
  const std::string fits =
      occupancy_text(worker::simulated_gpu(), launch.threads(), launch.shared_bytes, launch.registers);
  facts.emplace_back("occupancy",
                     fits + (launch.registers > 0
                                 ? fmt::format("; with setmaxnreg a block has {} of 65536 registers", launch.registers)
                                 : "; the registers, which nvcc reports, may allow fewer"));
  const std::int64_t wgmma = launch.if_any("wgmma_instructions");
  facts.emplace_back("tensor cores", wgmma > 0 ? fmt::format("{} wgmma, counted once per warp", wgmma)
                                     : count("tensor_instructions") == 0
                                         ? "not used"
                                         : fmt::format("{} mma_sync, {} instructions", count("multiply_calls"),
                                                       count("tensor_instructions")));
  facts.emplace_back("cp.async", count("async_instructions") == 0
                                     ? "none"
                                     : fmt::format("{} instructions", count("async_instructions")));
  add_copy_engine(facts, launch);
  std::string barriers = fmt::format("{} __syncthreads, {} per block", count("block_barriers"),
                                     number_text(double(count("block_barriers")) / double(launch.blocks())));
  // Per tile of the tensor over which blocks loop: the one with most tile reads.
  const auto streamed = std::max_element(launch.tensors.begin(), launch.tensors.end(),
                                         [&](const auto& a, const auto& b) { return a.tile_reads() < b.tile_reads(); });
  if (streamed != launch.tensors.end() && streamed->tile_reads() > 0 && count("block_barriers") > 0) {
    barriers += fmt::format(", {} per tile of {} that is read",
                            number_text(double(count("block_barriers")) / streamed->tile_reads()), streamed->name);
  }
  if (count("named_barriers") > 0) barriers += fmt::format("; {} named barriers", count("named_barriers"));
  facts.emplace_back("barriers", fmt::format("{}; {} __syncwarp", barriers, count("warp_barriers")));
  if (count("shuffles") + count("votes") > 0) {
    facts.emplace_back("shuffles", fmt::format("{}, and {} votes", count("shuffles"), count("votes")));
  }
  if (const std::int64_t exponentials = launch.if_any("exponentials"); exponentials > 0)
    facts.emplace_back("exp2", fmt::format("{} by threads; an SM computes 16 per cycle", exponentials));
  if (count("shared.atomic_instructions") > 0) {
    facts.emplace_back("shared atomics", fmt::format("{} instructions", count("shared.atomic_instructions")));
  }
  for (const TracedTensor& tensor : launch.tensors) {
    if (!tensor.tiling) continue;
    const TraceTiling& tiling = *tensor.tiling;
    facts.emplace_back(
        "tiles of " + tensor.name,
        fmt::format("{} of {} rows, {} each{}; {} tile reads", tiling.matrices * tiling.tiles(), tiling.tile_rows,
                    book::bytes_text(double(tiling.tile_rows * tiling.row_bytes)),
                    tiling.rows % tiling.tile_rows == 0
                        ? ""
                        : fmt::format(" (the last of a head has {} rows)", tiling.rows % tiling.tile_rows),
                    number_text(tensor.tile_reads())));
  }
  for (const TracedNote& note : launch.notes) {
    facts.emplace_back(fmt::format("\"{}\"", note.label),
                       fmt::format("noted {} times (distinct pairs of block and value)", note.count()));
  }
  return facts;
}

TraceTable metrics_table(const TracedLaunch& launch) {
  TraceTable table{{{"counter", "Nsight Compute's metric", "count"}}, 2};
  for (const Metric& metric : metrics) {
    if (!launch.counters.contains(metric.counter)) continue;
    table.rows.push_back({metric.counter, *metric.metric == 0 ? "(none)" : metric.metric,
                          fmt::format("{}", launch.counter(metric.counter))});
  }
  return table;
}

std::size_t DrawnMap::width() const {
  std::size_t width = 1;
  for (const auto& row : cells) {
    for (const DrawnCell& cell : row) width = std::max(width, cell.text.size());
  }
  return width;
}

DrawnMap draw(const TileMap& map, std::int64_t scale) {
  const bool counts = map.most_reads() > 1;
  const auto step = std::size_t(scale);
  DrawnMap result;
  result.scale = scale;
  for (std::size_t top = 0; top < map.cells.size(); top += step) {
    std::vector<DrawnCell>& row = result.cells.emplace_back();
    for (std::size_t left = 0; left < map.columns(); left += step) {
      DrawnCell& cell = row.emplace_back(drawn(map.cells[top][left], counts));
      for (std::size_t i = top; i < std::min(top + step, map.cells.size()); ++i) {
        for (std::size_t j = left; j < std::min(left + step, map.columns()); ++j) {
          if (drawn(map.cells[i][j], counts).text != cell.text) cell = {DrawnCell::Kind::mixed, "+"};
        }
      }
    }
  }
  return result;
}

std::string map_title(const TileMap& map) {
  const std::string rows =
      map.row_tensor.empty() ? "blocks" : fmt::format("{} tiles of {} rows", map.row_tensor, map.row_tile_rows);
  return fmt::format("{} down, {} tiles of {} rows across; head{} {}{}", rows, fmt::join(map.tensors, " and "),
                     map.tile_rows, map.matrices.size() == 1 ? "" : "s", ranges_text(map.matrices),
                     map.matrices.size() == 1 ? "" : fmt::format(" alike, head {} is drawn", map.matrices[0]));
}

std::vector<std::pair<DrawnCell, std::string>> map_legend(const TileMap& map, const DrawnMap& drawn) {
  const bool counts = map.most_reads() > 1;
  const auto occurs = [&](DrawnCell::Kind kind) {
    return std::any_of(drawn.cells.begin(), drawn.cells.end(), [&](const auto& row) {
      return std::any_of(row.begin(), row.end(), [&](const DrawnCell& cell) { return cell.kind == kind; });
    });
  };
  using Kind = DrawnCell::Kind;
  std::vector<std::pair<DrawnCell, std::string>> legend;
  const auto add = [&](Kind kind, const char* text, const std::string& meaning) {
    if (occurs(kind)) legend.push_back({{kind, text}, meaning});
  };
  add(Kind::read, counts ? "a number:" : "#", counts ? "the number of reads" : "read");
  add(Kind::masked, counts ? "a number, m:" : "m", "read, and masked");
  add(Kind::part, "~", "read in part");
  add(Kind::never, ".", "never read");
  add(Kind::mixed, "+", "a group of tiles that differ");
  return legend;
}

std::string map_note(const TileMap& map, const DrawnMap& drawn) {
  std::string note;
  if (drawn.scale > 1) {
    note = fmt::format("one cell stands for {} x {} tiles; there are {} x {}", drawn.scale, drawn.scale,
                       map.rows.size(), map.columns());
  }
  if (map.divided) {
    note +=
        fmt::format("{}several blocks read the same tile, some more than once: its reads are divided evenly among them",
                    note.empty() ? "" : "; ");
  }
  return note;
}

}  // namespace workbook::judge
