#include "common/simt/tracer.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <type_traits>

#include "common/simt/banks.hpp"
#include "common/simt/program.hpp"
#include "common/simt/shared_memory.hpp"

namespace simt {

namespace {

constexpr std::size_t kMostWaits = 20000, kMostValues = 100000;  // of block 0: limits the size of a record

/// Finds the bank with most different words, and the lanes that access it.
void find_busiest_bank(WorstAccess& access) {
  std::set<std::uint64_t> words[kBanks];
  const auto for_each_word = [&](const auto& take) {
    for (std::size_t i = 0; i < access.addresses.size(); ++i) {
      for (std::uint64_t a = access.addresses[i]; a < access.addresses[i] + access.bytes; a += kBankBytes)
        take(i, a / kBankBytes, bank_of(a));
    }
  };
  for_each_word([&](std::size_t, std::uint64_t word, int bank) { words[bank].insert(word); });
  const auto busiest =
      std::max_element(std::begin(words), std::end(words), [](auto& a, auto& b) { return a.size() < b.size(); });
  access.bank = static_cast<int>(busiest - std::begin(words));
  for_each_word([&](std::size_t i, std::uint64_t, int bank) {
    if (bank == access.bank) access.in_bank.push_back(static_cast<int>(i));
  });
  access.in_bank.erase(std::unique(access.in_bank.begin(), access.in_bank.end()), access.in_bank.end());
}

/// Counters consists only of 64-bit counts.
void subtract(Counters& from, const Counters& other) {
  static_assert(std::is_trivially_copyable_v<Counters> && sizeof(Counters) % sizeof(std::uint64_t) == 0);
  auto* to = reinterpret_cast<std::uint64_t*>(&from);
  const auto* less = reinterpret_cast<const std::uint64_t*>(&other);
  for (std::size_t i = 0; i < sizeof from / sizeof *to; ++i) to[i] -= less[i];
}

void take_worse(std::optional<WorstAccess>& worst, const std::optional<WorstAccess>& other) {
  const auto more = [](const WorstAccess& access) { return access.wavefronts - access.ideal; };
  if (!other) return;
  if (!worst || more(*other) > more(*worst) || (more(*other) == more(*worst) && other->block < worst->block))
    worst = other;  // the same one, whichever operating-system thread ran its block
}

}  // namespace

Counters Tracer::sum(const Block& block) {
  Counters counters = block.counters;
  counters.global = block.global->sum();
  return counters;
}

void Tracer::enter(const Block& block, const void* pc, const Counters& before) {
  Counters now = sum(block);
  subtract(now, before);
  lines_[pc].counters += now;
}

void Tracer::consider(Block& block, const void* pc, const std::uint64_t* address, std::uint32_t mask, unsigned bytes,
                      int lanes_per_wavefront, bool rows) {
  std::optional<WorstAccess>& worst = lines_[pc].worst;
  for (int first = 0; first < kWarpSize; first += lanes_per_wavefront) {
    const std::uint32_t group =
        mask & (lanes_per_wavefront == kWarpSize ? ~0u : ((1u << lanes_per_wavefront) - 1) << first);
    if (group == 0) continue;
    const Wavefronts pass = wavefronts(address, group, bytes, lanes_per_wavefront);
    if (pass.actual == pass.ideal) continue;
    if (worst && pass.actual - pass.ideal <= worst->wavefronts - worst->ideal) continue;
    WorstAccess access;
    access.wavefronts = pass.actual;
    access.ideal = pass.ideal;
    access.block = block.number;
    access.bytes = bytes;
    access.rows = rows;
    for (std::uint32_t m = group; m != 0; m &= m - 1) {
      const int lane = std::countr_zero(m);
      const Variable variable = block.shared->variable(address[lane]);
      access.lanes.push_back(lane);
      access.addresses.push_back(address[lane]);
      access.banks.push_back(bank_of(address[lane]));
      access.places.push_back(variable.name + variable.part);
    }
    find_busiest_bank(access);
    worst = std::move(access);
  }
}

void Tracer::begin_wait(const Warp& warp, const void* pc, const std::string& what) {
  if (warp.block->number != 0 || waiting_.contains(warp.index) || waits_.size() >= kMostWaits) return;
  waiting_[warp.index] = waits_.size();
  waits_.push_back({pc, {warp.index, what, {}, time_, 0, warp.block->intervals.size()}});
  ++time_;
}

void Tracer::end_wait(const Warp& warp) {
  const auto waiting = waiting_.find(warp.index);
  if (warp.block->number != 0 || waiting == waiting_.end()) return;
  waits_[waiting->second].wait.end = time_;
  waiting_.erase(waiting);
}

std::size_t Tracer::begin_copy(const Lane& lane, const std::string& what, const std::string& barrier) {
  if (lane.block->number != 0 || flights_.size() >= kMostWaits) return 0;
  flights_.push_back({lane.warp->index, what, barrier, time_, 0, lane.block->intervals.size()});
  return flights_.size();
}

void Tracer::note_value(const Block& block, const char* label, long long row, float value) {
  if (block.number == 0 && values_.size() < kMostValues) values_.push_back({label, row, value, block.intervals.size()});
}

void Tracer::cut(Block& block) {
  if (block.number == 0) block.intervals.push_back({block.counters, block.global->tensors_so_far()});
}

void Tracer::merge_into(Launch& launch) const {
  launch.registers = std::max(launch.registers, registers_);
  for (const auto& [pc, line] : lines_) {
    const SourceLine source = source_line(pc);
    const auto same = std::find_if(launch.lines.begin(), launch.lines.end(), [&](const TracedLine& other) {
      return other.source.file == source.file && other.source.line == source.line;
    });
    TracedLine& to = same != launch.lines.end() ? *same : launch.lines.emplace_back();
    to.source = source;
    to.counters += line.counters;
    take_worse(to.worst, line.worst);
  }
  for (const PlacedWait& placed : waits_) {
    Wait& wait = launch.waits.emplace_back(placed.wait);
    wait.source = source_line(placed.pc);
    if (wait.end == 0) wait.end = time_;  // it never ends
  }
  for (const Flight& flight : flights_) {
    launch.flights.push_back(flight);
    if (flight.end == 0) launch.flights.back().end = time_;  // it was not waited for
  }
  launch.values.insert(launch.values.end(), values_.begin(), values_.end());
}

}  // namespace simt
