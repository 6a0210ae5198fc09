// What the files of a chapter with kernels include, for the simulator: parsed once for all workers, where g++ compiles
// them (common/worker/CMakeLists.txt). The same files are compiled without it by nvcc, by clang++, for a debugger and
// in grading, so each of them has to include what it uses.
#pragma once

#include "common/simt/copies.hpp"
// Nothing may stand before copies.hpp: it declares memcpy and its like as those that are observed.
#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "common/cuda/forward_operation.hpp"
#include "common/cuda/kernel.hpp"
#include "common/cuda/stage.hpp"
