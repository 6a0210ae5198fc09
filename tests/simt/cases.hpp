// The zoo: small kernels whose counters are known, right kernels, and kernels with one planted mistake each. The same
// files compile for the simulator and for nvcc, so that the GPU's tools can be asked about the same kernels.
#pragma once

#include <span>
#include <vector>

namespace zoo {

/// One kernel, launched on its own device memory. Where the answer can be checked, `run` throws std::logic_error if it
/// is wrong. Of a kernel with a mistake: what the simulator calls it (report.hpp), and what the report's variable
/// begins with.
struct Case {
  const char* name;
  void (*run)();
  const char *mistake = "", *variable = "";
  const char* or_else = mistake;  ///< in another order of threads another face of it may be seen first
};

/// Kernels for the counters (counted.cu), among them an attention forward pass of 64x64 tiles and 4 warps.
std::span<const Case> counted_cases();
/// The attention kernel alone: N keys and queries, B*H heads, d = 64.
void attention(int N, int BH, bool causal);

/// One warp: lane i reads, or writes, or adds 1 to, element pattern[i]; a lane with a negative one does nothing. Reads
/// and writes are in shared memory, 8 or 16 bytes a lane; additions in global memory, 4 bytes.
void read_by_pattern(int bytes, std::span<const int> pattern);
void write_by_pattern(int bytes, std::span<const int> pattern);
void add_by_pattern(std::span<const int> pattern);

/// The book's own kernels at several sizes, for the comparison with a GPU (compared.cu).
std::span<const Case> compared_cases();

/// Right kernels of the instructions below WMMA, for answers and counters (instructions.cu).
std::span<const Case> instruction_cases();

/// Right kernels of Hopper's instructions, for answers and counters (hopper_right.cu); kernels with one mistake each
/// (mistakes_hopper.cu). A GPU has to have compute capability 9.0 for them.
std::span<const Case> hopper_cases();
std::span<const Case> hopper_attention();  ///< warp_specialised.cu
std::span<const Case> hopper_mistakes();
/// The same for what a backward pass needs besides (hopper_lines_right.cu, mistakes_hopper_lines.cu).
std::span<const Case> line_cases();
std::span<const Case> line_mistakes();
/// Sums that 24 blocks have added to by TMA, each after the one before or as it comes.
std::vector<float> added_by_blocks(bool deterministic);

/// Right kernels (right.cu): no report on any.
std::span<const Case> right_cases();

/// Kernels with one mistake (mistakes_*.cu). The line of the mistake carries a comment `bug: NAME`, that of the access
/// it collides with, `other: NAME`.
std::span<const Case> race_cases();
std::span<const Case> memory_cases();
std::span<const Case> warp_cases();
std::span<const Case> instruction_mistakes();

}  // namespace zoo
