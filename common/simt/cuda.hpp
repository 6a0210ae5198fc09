// CUDA C++ for a host compiler: kernel files include this instead of cuda_runtime.h, cuda_fp16.h, cuda_bf16.h,
// cuda_pipeline.h and mma.h.
//
// Supported in kernels: raw pointers, `__shared__` variables in plain and template kernels, `__device__` functions,
// structs by value, `__constant__` tables, early exit, barriers, shuffles, votes, atomics, cp.async, WMMA, and the
// instructions of common/cuda/ptx.hpp. Not supported: `<<<>>>` (launch through the wrapper), inline PTX, spinning on a
// value that another thread of the block writes, C++ exceptions.
#pragma once

#include "common/simt/asynchronous.hpp"
#include "common/simt/intrinsics.hpp"
#include "common/simt/launch.hpp"
#include "common/simt/pipeline.hpp"
#include "common/simt/qualifiers.hpp"
#include "common/simt/registers.hpp"
#include "common/simt/shared.hpp"
#include "common/simt/vector_types.hpp"
#include "common/simt/wmma.hpp"
