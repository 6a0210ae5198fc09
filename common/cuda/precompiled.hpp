// What the files of kernels include, for the simulator: parsed once for all workers, where g++ compiles them
// (common/worker/CMakeLists.txt). The same files are compiled without it by nvcc, by clang++ and for a debugger. So
// little stands here that a file of kernels does not include by itself: what compiles here compiles there. (Three files
// of small kernels include calls.hpp and what follows it not at all; within kernels nvcc refuses functions of the
// standard library in any case.)
#pragma once

#include "common/simt/copies.hpp"
// Nothing may stand before copies.hpp: it declares memcpy and its like as those that are observed.
#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

// What dispatch.hpp and instances.hpp include: they themselves are not the same in every build.
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
