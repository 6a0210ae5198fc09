// Reads and writes tensors as NumPy's .npy files (format versions 1.0 to 3.0).
#pragma once

#include <filesystem>

#include "common/attention/problem.hpp"

namespace workbook {

/// Reads a 3-D (H, N, d) or 4-D (B, H, N, d) array of little-endian float16, float32 or float64 in C order; a 3-D array
/// gets B = 1. With `rank_1`, reads an array (n) of rank 1 instead, whose sizes are {1, 1, 1, n}. InputError names the
/// file and what is wrong: missing, unreadable, truncated, too long, wrong magic, Fortran order, big-endian, another
/// type, a header longer than the file, another rank, a size that is 0 or overflows, a float64 value too large for
/// float. Infinities and NaN are accepted; the caller must check them.
Tensor<float> read_npy(const std::filesystem::path& path, bool rank_1 = false);

/// Writes float32 in C order to a temporary file next to `path` and renames it, so that no partial file appears. `rank`
/// 3 drops a leading size of 1; for the LSE, `rank` 3 with sizes (B, H, N, 1) writes (B, H, N) (a last size of 1 goes
/// first). InputError on failure; then `path` is unchanged and no temporary file remains.
void write_npy(const std::filesystem::path& path, const Tensor<float>& tensor, int rank = 4);

}  // namespace workbook
