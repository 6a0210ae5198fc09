#include "common/simt/report.hpp"

#include "common/simt/detect.hpp"

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
    case Mistake::assertion:
      return "assertion";
    case Mistake::exception:
      return "exception";
  }
  return "?";
}

namespace {

std::string side_text(const Side& side) {
  std::string text = "  ";
  text += side.action;
  text += " at ";
  text += side.source.line == 0 ? "an unknown line" : side.source.file + ":" + std::to_string(side.source.line);
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
  if (side.action[0] != 0) {
    text += side_text(side);
    text += "  in block (" + std::to_string(block.x) + ", " + std::to_string(block.y) + ", " + std::to_string(block.z) +
            ")" + (count > 1 ? ", " + std::to_string(count) + " times in all" : "") + "\n";
  }
  if (!advice.empty()) text += "  what to do: " + advice + "\n";
  return text;
}

namespace {

std::string all_texts(const std::vector<Report>& reports) {
  std::string text;
  for (const Report& report : reports) text += report.text();
  return text;
}

}  // namespace

KernelMistakes::KernelMistakes(std::vector<Report> reports)
    : std::runtime_error(all_texts(reports)), reports_(std::move(reports)) {}

}  // namespace simt
