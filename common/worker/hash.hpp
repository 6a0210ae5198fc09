// Hashes texts, to detect changes since they were built, tested or written.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace workbook::worker {

/// FNV-1a, 64 bits, as 16 hex digits. Distinguishes files; not a cryptographic hash.
inline std::string hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", value);
}

}  // namespace workbook::worker
