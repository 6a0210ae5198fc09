// Launches a kernel on the simulator.
#pragma once

#include <cstddef>
#include <utility>

#include "common/simt/runtime.hpp"

namespace simt {

/// Runs kernel(arguments…) once for every thread of the grid and waits for completion. The arguments are converted to
/// the parameter types, as in a CUDA launch. Throws LaunchRefused, OpenExercise, KernelMistakes (error.hpp).
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, Arguments&&... arguments) {
  auto call = [kernel, ... parameters = static_cast<Parameters>(std::forward<Arguments>(arguments))] {
    kernel(parameters...);
  };
  run_grid(
      reinterpret_cast<const void*>(kernel), grid, block, shared_bytes,
      [](void* c) { (*static_cast<decltype(call)*>(c))(); }, &call, sizeof call);
}

/// An annotation in the launch's record, without effect on the GPU. E.g. note("masked tile", j).
inline void annotate(const char* label, long long value) {
  note(label, value);
}

}  // namespace simt
