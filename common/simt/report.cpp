#include "common/simt/report.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <stdexcept>

namespace simt {

// In the order of Mistake.
constexpr const char* names[] = {
    "race: read after write",
    "race: write after read",
    "race: write after write",
    "divergent barrier",
    "divergent warp function",
    "inactive lane in a warp function",
    "deadlock",
    "out of bounds, global memory",
    "out of bounds, shared memory",
    "offset computed in 32 bits",
    "out of bounds, array",
    "access to padding",
    "read of uninitialised shared memory",
    "read of uninitialised global memory",
    "write not visible to the other blocks",
    "store not observed by the simulator",
    "misaligned access",
    "access to bytes of a pending cp.async",
    "use of an uninitialised fragment",
    "output never written",
    "output written twice",
    "read before the copy is complete",
    "overwritten while it may be read",
    "read of another stage than the one waited for",
    "mbarrier phase completes too early",
    "wait for the wrong mbarrier phase",
    "mbarrier transaction bytes do not add up",
    "misuse of an mbarrier",
    "too many arrivals in an mbarrier phase",
    "misuse of a named barrier",
    "registers of a wgmma in flight",
    "wgmma without fence, commit or wait",
    "missing proxy fence",
    "matrix descriptor does not match shared memory",
    "bulk store not waited for",
    "misuse of setmaxnreg",
    "accesses of two streams without an order",
    "access to the memory of another device",
    "ranks disagree on a transfer",
    "deadlock of the ranks",
    "assertion",
    "exception",
};
static_assert(std::size(names) == std::size_t(kLastMistake) + 1);

const char* name(Mistake mistake) {
  return names[std::size_t(mistake)];
}

Mistake mistake_named(std::string_view name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found != std::end(names)) return static_cast<Mistake>(found - names);
  throw std::invalid_argument("unknown kind of report \"" + std::string(name) + "\"");
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

std::string location_text(const SourceLine& source) {
  if (!source.known_as.empty()) return source.known_as;
  return source.line == 0 ? "an unknown line" : words(source.file, ":", source.line);
}

std::string side_text(const Side& side) {
  std::string text = "  ";
  text += side.action;
  text += " at ";
  text += location_text(side.source);
  if (side.warp >= 0) text += words(", warp ", side.warp);
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
    if (count > 0)
      text += words("  in block (", block[0], ", ", block[1], ", ", block[2], ")",
                    count > 1 ? words(", ", count, " times in all") : "", "\n");
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
