// NumPy's .npy files (format versions 1.0 to 3.0), for tensors that enter and leave the book.
#pragma once

#include <filesystem>

#include "common/attention/problem.hpp"

namespace workbook {

/// Reads a 3-D (H, N, d) or 4-D (B, H, N, d) array of little-endian float16, float32 or float64 in C order; 3-D gets
/// B = 1. Or one of rank 1, (n), if that is asked for: its sizes are {1, 1, 1, n}. InputError naming the file and what
/// is wrong: missing, unreadable, truncated, too long, wrong magic, Fortran order, big-endian, another type, a header
/// longer than the file, another rank, a size that is 0 or overflows, a float64 value too large for float. Infinities
/// and NaN are read as they are: the caller decides.
Tensor<float> read_npy(const std::filesystem::path& path, bool rank_1 = false);

/// Writes float32 in C order: to a temporary file beside `path`, then renamed, so that nothing is ever half-written.
/// `rank` 3 drops a leading size of 1; for the LSE, `rank` 3 with sizes (B, H, N, 1) writes (B, H, N) (a last size of
/// 1 goes first). InputError when that cannot be; then `path` is as it was, and no other file is left.
void write_npy(const std::filesystem::path& path, const Tensor<float>& tensor, int rank = 4);

}  // namespace workbook
