#include "common/simt/detect.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/asynchrony.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/program.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tracer.hpp"
#include "common/simt/visibility.hpp"

namespace simt {

namespace {

SourceLine source_of(const Where& where) {
  return {where.file, static_cast<int>(where.line), where.function};
}

}  // namespace

const char* action_of(Access access) {
  // In the order of Access.
  static constexpr const char* names[] = {
      "reads", "writes", "atomically updates", "copies asynchronously", "loads a matrix", "stores a matrix"};
  return names[std::size_t(access)];
}

const char* name_of(Collective operation) {
  // In the order of Collective.
  static constexpr const char* names[] = {"__syncwarp",      "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                          "__shfl_xor_sync", "a vote",      "mma_sync",       "ldmatrix",
                                          "stmatrix",        "mma",         "setmaxnreg",     "elect.sync"};
  return names[std::size_t(operation)];
}

Finding finding_of(const Lane& lane, Mistake mistake, const void* pc, const char* action, std::string what,
                   std::string advice, Variable variable) {
  return {mistake,
          {pc, action, lane.warp->index, lane.bit},
          {},
          std::move(variable),
          std::move(what),
          std::move(advice),
          lane.block->number};
}

void note_finding(const Lane& lane, Finding finding) {
  lane.block->launch->findings.add(std::move(finding));
}

void refuse(Lane& lane, Finding finding) {
  note_finding(lane, std::move(finding));
  lane.block->damaged = true;
  end_lane();
}

void begin_block(Block& block) {
  block.shared->begin_block(block);
  block.global->begin_block();
  begin_writes(block);
}

void end_interval(Block& block) {
  block.shared->end_interval(block);
}

void end_block(Block& block) {
  block.global->end_block(block.number);
}

void report_exception(const Lane& lane, const char* text) {
  Finding finding =
      finding_of(lane, Mistake::exception, nullptr, "throws", std::string("a C++ exception left the kernel: ") + text,
                 "kernels cannot throw on a GPU: return, or use assert");
  lane.block->damaged = true;
  note_finding(lane, std::move(finding));
}

void report_divergent_barrier(const Lane& lane, Where where) {
  Finding finding = finding_of(lane, Mistake::divergent_barrier, nullptr, "waits");
  finding.side.source = source_of(where);
  finding.other.source = source_of(lane.block->barrier_where);
  finding.other.action = "waits";
  if (finding.side.source.line <
      finding.other.source.line) {  // reported in the order of the source, not of the threads
    std::swap(finding.side.source, finding.other.source);
    finding.side.warp = -1;
    finding.side.lanes = 0;
  }
  finding.what = "threads of one block wait at different __syncthreads";
  finding.advice = "all threads of the block must reach the same __syncthreads: move it out of the branch";
  note_finding(lane, std::move(finding));
}

void report_divergent_collective(const Lane& lane, const Group& group, const void* pc) {
  Finding finding = finding_of(lane, Mistake::divergent_collective, pc, "calls");
  finding.other = {lane.warp->lanes[std::countr_zero(group.arrived)].waits_at, "calls", lane.warp->index,
                   group.arrived};
  if (finding.side.pc < finding.other.pc) {  // reported in the order of the code, not of the lanes
    std::swap(finding.side.pc, finding.other.pc);
    std::swap(finding.side.lanes, finding.other.lanes);
  }
  finding.what = "lanes of one mask call different warp functions";
  finding.advice =
      "all lanes of a mask must call the same function: move it out of the branch, or give each branch a mask of its "
      "own lanes";
  note_finding(lane, std::move(finding));
}

void report_not_in_mask(const Lane& lane, std::uint32_t mask, const void* pc) {
  note_finding(lane, finding_of(lane, Mistake::divergent_collective, pc, "calls",
                                "the calling lane is not in the mask, which contains " + lanes_text(mask),
                                "the mask must contain exactly the lanes that make the call"));
}

void report_inactive_source(const Warp& warp, int lane, int source, const void* pc) {
  if (warp.block->damaged) return;
  note_finding(warp.lanes[lane], finding_of(warp.lanes[lane], Mistake::inactive_lane, pc, "shuffles",
                                            words("reads the value of lane ", source,
                                                  ", which does not participate: the result is undefined"),
                                            "let all source lanes make the call, and include them in the mask"));
}

// --- Findings --------------------------------------------------------------------------------------------------------

void Findings::add(Finding finding) {
  const Key key{finding.mistake,          finding.side.pc,           finding.other.pc,
                finding.side.source.line, finding.other.source.line, finding.variable.name};
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, fresh] = found_.try_emplace(key);
  Entry& entry = at->second;
  ++entry.count;
  // Of several findings, report races between warps before races within one, because they need the stronger barrier;
  // then the lowest block.
  const auto rank = [](const Finding& f) { return std::pair(f.side.warp == f.other.warp, f.block); };
  if (fresh || rank(finding) < rank(entry.first)) {
    entry.first = std::move(finding);
  } else if (finding.block == entry.first.block && finding.side.warp == entry.first.side.warp &&
             finding.other.warp == entry.first.other.warp) {
    entry.first.side.lanes |= finding.side.lanes;
    entry.first.other.lanes |= finding.other.lanes;
  }
}

std::vector<Report> Findings::reports(dim3 grid) const {
  std::vector<Report> reports;
  std::vector<std::string> names;  // of the variables in the reports
  for (const auto& [key, entry] : found_) {
    const Finding& f = entry.first;
    Report report{};
    report.mistake = f.mistake;
    report.variable = f.variable.name + f.variable.part;
    report.what = f.what;
    report.advice = f.advice;
    report.side = {f.side.action, f.side.pc != nullptr ? source_line(f.side.pc) : f.side.source, f.side.warp,
                   f.side.lanes};
    if (f.other.pc != nullptr || f.other.source.line != 0) {
      report.other = Side{f.other.action, f.other.pc != nullptr ? source_line(f.other.pc) : f.other.source,
                          f.other.warp, f.other.lanes};
    }
    report.block = {static_cast<unsigned>(f.block % grid.x), static_cast<unsigned>(f.block / grid.x % grid.y),
                    static_cast<unsigned>(f.block / grid.x / grid.y)};
    report.count = entry.count;
    // Unrolled and duplicated code: the same lines are the same error.
    const auto line = [](const std::optional<Side>& s) { return s ? s->source.line : 0; };
    std::size_t i = 0;
    for (; i < reports.size(); ++i) {
      const Report& r = reports[i];
      if (r.mistake == report.mistake && r.side.source.line == report.side.source.line &&
          r.side.source.file == report.side.source.file && line(r.other) == line(report.other) &&
          names[i] == f.variable.name) {
        break;
      }
    }
    if (i < reports.size()) {
      reports[i].count += report.count;
    } else {
      reports.push_back(std::move(report));
      names.push_back(f.variable.name);
    }
  }
  std::stable_sort(reports.begin(), reports.end(), [](const Report& a, const Report& b) {
    return std::tie(a.side.source.file, a.side.source.line, a.mistake) <
           std::tie(b.side.source.file, b.side.source.line, b.mistake);
  });
  return reports;
}

// --- Called by kernels -----------------------------------------------------------------------------------------------

void assertion_failed(const char* expression, Where where) {
  if (running == nullptr) {
    std::fprintf(stderr, "%s:%u: assertion failed: %s\n", where.file, where.line, expression);
    std::abort();
  }
  Lane& lane = *running;
  Finding finding = finding_of(lane, Mistake::assertion, nullptr, "asserts");
  finding.side.source = source_of(where);
  finding.what = std::string("assertion failed: ") + expression;
  finding.advice = "check the condition";
  refuse(lane, std::move(finding));
}

void end_thread_open(const char* exercise) {
  Lane& lane = *running;
  {
    LaunchState& launch = *lane.block->launch;
    const std::lock_guard<std::mutex> lock(launch.mutex);
    if (launch.open_exercise.empty()) launch.open_exercise = exercise;
    launch.next_block = launch.block_count;  // the launch fails: no further block starts
  }
  lane.block->damaged = true;
  end_lane();
}

void note(const char* label, long long value) {
  if (running == nullptr) return;
  Block& block = *running->block;
  // The lanes of a block make the same annotation one after another: it is usually among the last few.
  for (auto n = block.notes.rbegin(); n != block.notes.rend() && n->block == block.number; ++n) {
    if (n->value == value && n->label == label) {
      ++n->threads;
      return;
    }
  }
  block.notes.push_back({block.number, label, value, 1});
}

void note_value(const char* label, long long row, float value) {
  if (running == nullptr || running->block->tracer == nullptr) return;
  running->block->tracer->note_value(*running->block, label, row, value);
}

}  // namespace simt
