// The precompiled header of kernel files for the simulator, parsed once for all workers that g++ compiles
// (common/worker/CMakeLists.txt). nvcc, clang++ and debugger builds compile the same files without it. It therefore
// contains almost nothing that a kernel file does not include itself, so that a file that compiles here compiles there.
// (Three files of small kernels do not include calls.hpp and what follows it. Within kernels, nvcc refuses standard
// library functions anyway.)
#pragma once

#include "common/simt/copies.hpp"
// copies.hpp must come first: it declares the observed versions of memcpy and similar functions.
#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

// The includes of dispatch.hpp and instances.hpp, which themselves differ between builds.
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
