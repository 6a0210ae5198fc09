// Launching a kernel: the same call for both backends.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime.h>

#include <string>

#include "common/cuda/error.hpp"
#else
#include "common/simt/launch.hpp"
#include "common/simt/streams.hpp"
#endif

#include "common/cuda/open_exercise.hpp"

namespace workbook::cuda {

#if defined(__CUDACC__)
using Stream = cudaStream_t;
#else
using Stream = simt::Stream*;
#endif

namespace detail {
/// The stream of this thread's launches: the default stream, unless an OnStream is alive.
inline Stream& stream() {
#if defined(__CUDACC__)
  static thread_local Stream of_thread = nullptr;
  return of_thread;
#else
  return simt::current_stream();
#endif
}
}  // namespace detail

/// During its lifetime, this thread's launches use this stream.
class OnStream {
 public:
  explicit OnStream(void* stream) : before_(std::exchange(detail::stream(), static_cast<Stream>(stream))) {}
  ~OnStream() { detail::stream() = before_; }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Stream before_;
};

#if defined(__CUDACC__)

template <class Work>
void call_host(Work&& work) {
  work();
}

namespace detail {
/// Makes synchronize() check whether a kernel of this file reached an open exercise (gpu_backend.cu).
void watch_open_exercise(void (*read)(char (&id)[32]));
}  // namespace detail

/// kernel<<<grid, block, shared_bytes>>>(arguments…). Throws Error if the launch is refused. The next synchronize()
/// reports errors in the kernel.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, Arguments&&... arguments) {
  static const bool watched = [] {
    detail::watch_open_exercise([](char(&id)[32]) {
      cudaMemcpyFromSymbol(id, open_exercise_id, sizeof id);
      const char none[32] = {};
      if (id[0] != 0) cudaMemcpyToSymbol(open_exercise_id, none, sizeof none);
    });
    return true;
  }();
  (void)watched;
  constexpr std::size_t kWithoutAsking = 48 * 1024;  // more dynamic shared memory needs an attribute
  cudaError_t error = cudaSuccess;
  if (shared_bytes > kWithoutAsking) {
    error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes));
  }
  if (error == cudaSuccess) {
    kernel<<<grid, block, shared_bytes, detail::stream()>>>(
        static_cast<Parameters>(std::forward<Arguments>(arguments))...);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // clears the error, so that the next launch is checked on its own
    const auto text = [](dim3 v) {
      return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
    };
    throw Error("a launch of grid " + text(grid) + ", block " + text(block) + " with " + std::to_string(shared_bytes) +
                " bytes of shared memory was refused: " + cudaGetErrorString(error));
  }
}

#else

namespace detail {
/// Converts the simulator's reports about host code, such as transfers, to this namespace's Error.
void translated(void (*run)(void*), void* call);
/// Runs one launch and converts the simulator's exceptions to this namespace's (simulator_backend.cpp).
void guarded(void (*run)(void*), void* launch);
}  // namespace detail

/// Calls host code of a chapter that launches kernels.
template <class Work>
void call_host(Work&& work) {
  detail::translated([](void* call) { (*static_cast<std::remove_reference_t<Work>*>(call))(); }, &work);
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, Arguments&&... arguments) {
  auto run = [&] { simt::launch(kernel, grid, block, shared_bytes, std::forward<Arguments>(arguments)...); };
  detail::guarded([](void* call) { (*static_cast<decltype(run)*>(call))(); }, &run);
}

#endif

}  // namespace workbook::cuda
