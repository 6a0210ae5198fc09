// What every file of kernels includes, for the simulator: parsed once for all workers, where g++ compiles them
// (common/worker/CMakeLists.txt). The same files are compiled without it by nvcc, by clang++ and for a debugger. So
// nothing stands here that a file of kernels does not include by itself: what compiles here compiles there.
#pragma once

#include "common/simt/copies.hpp"
// Nothing may stand before copies.hpp: it declares memcpy and its like as those that are observed.
#include "common/cuda/kernel.hpp"
