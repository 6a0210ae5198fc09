// The zoo: small kernels with known counters, correct kernels, and kernels with one planted mistake each. The same
// files compile for the simulator and for nvcc, so that the GPU's tools can be run on the same kernels.
#pragma once

#include <span>
#include <vector>

namespace zoo {

/// One kernel, launched on its own device memory. If the result can be checked, `run` throws std::logic_error when it
/// is wrong. For a kernel with a mistake: the kind of its report (report.hpp), and a prefix of the report's variable.
struct Case {
  const char* name;
  void (*run)();
  const char *mistake = "", *variable = "";
  const char* or_else = mistake;  ///< in another order of threads, this kind may be reported first
};

/// Kernels for the counters (counted.cu), among them an attention forward pass of 64x64 tiles and 4 warps.
std::span<const Case> counted_cases();
/// The attention kernel alone: N keys and queries, B*H heads, d = 64.
void attention(int N, int BH, bool causal);

/// One warp: lane i reads, writes, or adds 1 to element pattern[i]; a lane with a negative entry is inactive. Reads and
/// writes are in shared memory, 8 or 16 bytes per lane; additions in global memory, 4 bytes.
void read_by_pattern(int bytes, std::span<const int> pattern);
void write_by_pattern(int bytes, std::span<const int> pattern);
void add_by_pattern(std::span<const int> pattern);

/// The book's own kernels at several sizes, for the comparison with a GPU (compared.cu).
std::span<const Case> compared_cases();

/// Correct kernels of the instructions below WMMA, for results and counters (instructions.cu).
std::span<const Case> instruction_cases();

/// Correct kernels of Hopper's instructions, for results and counters (hopper_right.cu); kernels with one mistake each
/// (mistakes_hopper.cu). They need a GPU of compute capability 9.0.
std::span<const Case> hopper_cases();
std::span<const Case> hopper_attention();  ///< warp_specialised.cu
std::span<const Case> hopper_mistakes();
/// The same for the instructions that only a backward pass needs (hopper_lines_right.cu, mistakes_hopper_lines.cu).
std::span<const Case> line_cases();
std::span<const Case> line_mistakes();
/// Sums to which 24 blocks have added by TMA: in block order, or in any order.
std::vector<float> added_by_blocks(bool deterministic);

/// Correct kernels (right.cu): none has a report.
std::span<const Case> right_cases();

/// Kernels with one mistake (mistakes_*.cu). The line of the mistake has a comment `bug: NAME`, the line of the
/// conflicting access `other: NAME`.
std::span<const Case> race_cases();
std::span<const Case> memory_cases();
std::span<const Case> warp_cases();
std::span<const Case> instruction_mistakes();

}  // namespace zoo
