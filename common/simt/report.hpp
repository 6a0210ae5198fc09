// The reports of the simulator about a kernel: one Report per error, with both accesses in the source and a sentence of
// advice. Plain data; kernels never include this.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/simt/api.hpp"

namespace simt {

/// Concatenates its arguments, converting numbers to text.
template <class... Parts>
std::string words(const Parts&... parts) {
  std::string text;
  const auto add = [&](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(part)>>)
      text += std::to_string(part);
    else
      text += part;
  };
  (add(parts), ...);
  return text;
}

/// The kinds of errors.
enum class Mistake {
  read_after_write,      ///< a race: the read does not wait for the write
  write_after_read,      ///< a race: the write does not wait for the read
  write_after_write,     ///< a race: two threads write, nothing says which comes last
  divergent_barrier,     ///< threads of one block wait at different __syncthreads
  divergent_collective,  ///< lanes of one mask execute different warp functions, or the caller is not in its mask
  inactive_lane,         ///< a shuffle reads from, or an mma needs, a lane that does not participate
  deadlock,              ///< no thread can continue
  outside_global,        ///< an access outside every allocation
  outside_shared,        ///< an access outside the launched shared memory, or outside its named member
  truncated_offset,      ///< an access outside every allocation, by an offset that has lost its upper 32 bits
  outside_array,         ///< an index outside a declared array
  padding,               ///< an access to the padding columns of a member
  uninitialised_shared,  ///< a read of shared memory that no thread has written
  uninitialised_global,  ///< a read of global memory that no kernel or copy has written
  missing_fence,         ///< a read of global memory that another block wrote without making it visible
  unseen_store,          ///< memory that no observed store has written but that holds a value
  misaligned,            ///< an address that is not a multiple of what the instruction needs
  pending_copy,          ///< an access to bytes that a cp.async is still writing
  unset_fragment,        ///< a fragment used before it was loaded or filled
  never_written,         ///< elements of an output that no thread has written
  written_twice,         ///< elements of an output that were written more than once
  unfinished_copy,       ///< an access to bytes of a TMA load that is incomplete or was not waited for
  overwritten_early,  ///< a write to bytes that the tensor cores or TMA may still read, or a copy to bytes that threads
                      ///< may still read
  wrong_stage,        ///< a read of another stage of a ring buffer than the one waited for
  arrival_count,      ///< an mbarrier phase that completes before all readers have arrived
  wrong_phase,        ///< a wait with the parity of another mbarrier phase
  barrier_bytes,      ///< transaction bytes that are expected but never arrive, or arrive unexpected
  barrier_misuse,     ///< an mbarrier that was not initialised, initialised twice, or not made visible
  surplus_arrival,    ///< an arrival at an mbarrier whose phase already has all arrivals
  named_barrier,      ///< a named barrier with a wrong number or thread count
  pending_registers,  ///< an access to registers of a wgmma in flight
  wgmma_order,        ///< a wgmma without its fence, commit or wait
  missing_proxy_fence,  ///< generic-proxy writes that may not be visible to the asynchronous proxy
  descriptor,           ///< a matrix descriptor that does not match the contents of shared memory
  unfinished_store,     ///< a bulk store that was not committed, or not waited for
  register_count,       ///< an invalid setmaxnreg
  unordered_streams,    ///< two accesses of different streams that no event orders
  other_device,         ///< an access to the memory of another device
  transfer_mismatch,    ///< ranks disagree on the size, the type or the order of a transfer
  waiting_ranks,        ///< no rank can continue
  assertion,            ///< assert() failed
  exception,            ///< a C++ exception left the kernel
};
inline constexpr Mistake kLastMistake = Mistake::exception;
SIMT_API const char* name(Mistake mistake);
/// Throws std::invalid_argument for an unknown name.
SIMT_API Mistake mistake_named(std::string_view name);

/// A source location.
struct SourceLine {
  std::string file;  ///< as passed to the compiler; empty: unknown
  int line = 0;
  std::string function;
  std::string known_as = {};  ///< replaces file and line in texts unless empty
};

/// One side of an error: the action and its location.
struct Side {
  std::string action;  ///< "reads", "writes", …; empty: this side does not exist
  SourceLine source;
  int warp = -1;            ///< in its block; -1: none
  std::uint32_t lanes = 0;  ///< mask
};

struct SIMT_API Report {
  Mistake mistake;
  std::string variable;                  ///< "K[3][16]", "tile + 128 bytes", "O (global), element 77"; empty: none
  std::string what;                      ///< one sentence: what happened
  std::string advice;                    ///< one sentence: what to do
  Side side;                             ///< the later access, or the only one
  std::optional<Side> other;             ///< the earlier one
  std::array<std::uint32_t, 3> block{};  ///< the first block in which it was seen
  std::uint64_t count = 0;               ///< how often; 0: not in a kernel

  /// Several lines for a person.
  std::string text() const;
};

/// The texts of all of them, one after the other.
SIMT_API std::string text(const std::vector<Report>& reports);
/// "lanes 0-7, 12"; "lane 3"; "all lanes".
SIMT_API std::string lanes_text(std::uint32_t lanes);
/// "warp 3", "warps 0-6": of a block.
SIMT_API std::string warps_text(std::uint32_t warps);

}  // namespace simt
