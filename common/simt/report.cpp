#include "common/simt/report.hpp"

#include <bit>
#include <stdexcept>

namespace simt {

const char* name(Mistake mistake) {
  switch (mistake) {
    case Mistake::read_after_write:
      return "race: read after write";
    case Mistake::write_after_read:
      return "race: write after read";
    case Mistake::write_after_write:
      return "race: write after write";
    case Mistake::divergent_barrier:
      return "divergent barrier";
    case Mistake::divergent_collective:
      return "divergent warp function";
    case Mistake::inactive_lane:
      return "a lane that does not take part";
    case Mistake::deadlock:
      return "deadlock";
    case Mistake::outside_global:
      return "out of bounds, global memory";
    case Mistake::outside_shared:
      return "out of bounds, shared memory";
    case Mistake::outside_array:
      return "out of bounds, array";
    case Mistake::padding:
      return "access to padding";
    case Mistake::uninitialised_shared:
      return "read of uninitialised shared memory";
    case Mistake::uninitialised_global:
      return "read of uninitialised global memory";
    case Mistake::unseen_store:
      return "a store that the simulator does not see";
    case Mistake::misaligned:
      return "misaligned access";
    case Mistake::pending_copy:
      return "access to bytes of a pending cp.async";
    case Mistake::unset_fragment:
      return "fragment used before it was set";
    case Mistake::never_written:
      return "output never written";
    case Mistake::written_twice:
      return "output written twice";
    case Mistake::unfinished_copy:
      return "read before the copy is complete";
    case Mistake::overwritten_early:
      return "overwritten while it may be read";
    case Mistake::wrong_stage:
      return "another place is read than the one that was waited for";
    case Mistake::arrival_count:
      return "a phase of a barrier ends too early";
    case Mistake::wrong_phase:
      return "wait for the wrong phase of a barrier";
    case Mistake::barrier_bytes:
      return "bytes of a barrier do not add up";
    case Mistake::barrier_misuse:
      return "misuse of a barrier in shared memory";
    case Mistake::named_barrier:
      return "misuse of a named barrier";
    case Mistake::pending_registers:
      return "registers of a wgmma under way";
    case Mistake::wgmma_order:
      return "wgmma without fence, commit or wait";
    case Mistake::missing_proxy_fence:
      return "missing proxy fence";
    case Mistake::descriptor:
      return "descriptor that does not fit the memory";
    case Mistake::unfinished_store:
      return "bulk store not waited for";
    case Mistake::register_count:
      return "misuse of setmaxnreg";
    case Mistake::assertion:
      return "assertion";
    case Mistake::exception:
      return "exception";
  }
  return "?";
}

Mistake mistake_named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(kLastMistake); ++i) {
    if (simt::name(static_cast<Mistake>(i)) == name) return static_cast<Mistake>(i);
  }
  throw std::invalid_argument("\"" + std::string(name) + "\" is no kind of mistake");
}

namespace {

/// "lane 3", "lanes 0-15, 20"
std::string numbered(const std::string& what, std::uint32_t which) {
  std::string text;
  for (int first = 0; first < 32; ++first) {
    if (!(which >> first & 1)) continue;
    int last = first;
    while (last < 31 && (which >> (last + 1) & 1)) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(first);
    if (last > first) text.append("-").append(std::to_string(last));
    first = last;
  }
  return what + (std::popcount(which) == 1 ? " " : "s ") + text;
}

}  // namespace

std::string lanes_text(std::uint32_t lanes) {
  return lanes == ~0u ? "all lanes" : numbered("lane", lanes);
}
std::string warps_text(std::uint32_t warps) {
  return numbered("warp", warps);
}

namespace {

std::string place_text(const SourceLine& source) {
  if (!source.known_as.empty()) return source.known_as;
  return source.line == 0 ? "an unknown line" : source.file + ":" + std::to_string(source.line);
}

std::string side_text(const Side& side) {
  std::string text = "  ";
  text += side.action;
  text += " at ";
  text += place_text(side.source);
  if (side.warp >= 0) text += ", warp " + std::to_string(side.warp);
  if (side.lanes != 0) text += ", " + lanes_text(side.lanes);
  return text + "\n";
}

}  // namespace

std::string Report::text() const {
  std::string text = name(mistake);
  if (!variable.empty()) text += ": " + variable;
  text += "\n  " + what + "\n";
  if (other) text += side_text(*other);
  if (!side.action.empty()) {
    text += side_text(side);
    text += "  in block (" + std::to_string(block[0]) + ", " + std::to_string(block[1]) + ", " +
            std::to_string(block[2]) + ")" + (count > 1 ? ", " + std::to_string(count) + " times in all" : "") + "\n";
  }
  if (!advice.empty()) text += "  what to do: " + advice + "\n";
  return text;
}

std::string text(const std::vector<Report>& reports) {
  std::string text;
  for (const Report& report : reports) text += report.text();
  return text;
}

}  // namespace simt
