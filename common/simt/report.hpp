// What the simulator has to say about a kernel: one Report for each mistake, with both sides of it in the source, and a
// sentence on what to do. Data alone, which whoever passes it on keeps whole; kernels never see this.
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

/// A text from its parts, numbers among them.
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

/// The kinds of mistakes.
enum class Mistake {
  read_after_write,      ///< a race: the read does not wait for the write
  write_after_read,      ///< a race: the write does not wait for the read
  write_after_write,     ///< a race: two threads write, nothing says which comes last
  divergent_barrier,     ///< threads of one block wait at different __syncthreads
  divergent_collective,  ///< lanes of one mask execute different warp functions, or one that is not in the mask
  inactive_lane,         ///< a shuffle reads from, or an mma needs, a lane that does not take part
  deadlock,              ///< no thread can go on
  outside_global,        ///< an access outside every allocation
  outside_shared,        ///< an access outside the shared memory that was asked for, or outside its named member
  outside_array,         ///< an index outside a declared array
  padding,               ///< an access to the padding columns of a member
  uninitialised_shared,  ///< a read of shared memory that nobody has written
  uninitialised_global,  ///< a read of global memory that nobody has written
  unseen_store,          ///< memory that no store was seen to write, and that holds something all the same
  misaligned,            ///< an address that is not a multiple of what the instruction needs
  pending_copy,          ///< a touch of bytes that a cp.async is still writing
  unset_fragment,        ///< a fragment used before it was loaded or filled
  never_written,         ///< elements of an output that no thread wrote
  written_twice,         ///< elements of an output that were written more than once
  unfinished_copy,       ///< a touch of bytes that TMA has not brought yet, or that were not waited for
  overwritten_early,     ///< a write to what the tensor cores or TMA may still read, or a copy to what threads
                         ///< do
  wrong_stage,           ///< a read of another place of a ring than the one whose copy has come
  arrival_count,         ///< a phase of a barrier that ends before all who read have arrived
  wrong_phase,           ///< a wait for another phase of a barrier than the one that was meant
  barrier_bytes,         ///< bytes that a barrier expects and that never come, or that come unexpected
  barrier_misuse,        ///< a barrier in shared memory that was not made, made twice, or not made visible
  surplus_arrival,       ///< an arrival at a barrier whose phase has all of them already
  named_barrier,         ///< a numbered barrier with the wrong number or count
  pending_registers,     ///< registers of a wgmma that is under way
  wgmma_order,           ///< a wgmma without its fence, commit or wait
  missing_proxy_fence,   ///< ordinary writes that the asynchronous proxy may not see
  descriptor,            ///< a wgmma descriptor that does not fit what lies in shared memory
  unfinished_store,      ///< a bulk store that was not committed, or not waited for
  register_count,        ///< setmaxnreg that cannot be
  assertion,             ///< assert() failed
  exception,             ///< a C++ exception left the kernel
};
inline constexpr Mistake kLastMistake = Mistake::exception;
SIMT_API const char* name(Mistake mistake);
/// std::invalid_argument for another text.
SIMT_API Mistake mistake_named(std::string_view name);

/// A place in the source.
struct SourceLine {
  std::string file;  ///< as the compiler was given it; empty: unknown
  int line = 0;
  std::string function;
  std::string known_as = {};  ///< what stands in texts in place of file and line; empty: they do
};

/// One side of a mistake: who did what, and where.
struct Side {
  std::string action;  ///< "reads", "writes", …; empty: there is no such side
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
  std::uint64_t count = 0;               ///< how often

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
