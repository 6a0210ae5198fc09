// The launches of features.cu.
#pragma once

#include <cstddef>

namespace zoo {

void run_annotated();
void run_open_exercise(unsigned blocks = 1);
void run_with(unsigned grid_y, unsigned threads, std::size_t shared_bytes);
void run_scaled(float factor);
void run_long_loop(int n);
/// Passes block barriers until the launch is interrupted.
void run_endless_barriers();
void run_divergent_loop();
/// Writes a static variable of the kernel.
void run_write_of_static();
/// The same by a function of the mathematical library.
void run_integer_into_static();
/// Registers of ldmatrix, of mma and of WMMA in shared memory, which other lanes read.
void run_ldmatrix_into_shared();
void run_mma_in_shared();
void run_wmma_in_shared();
/// Formats texts: a GPU's printf returns the number of arguments, and neither writes memory nor shows errno.
void run_prints();
void run_errno();

}  // namespace zoo
