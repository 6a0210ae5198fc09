// The backend's interface to the worker's server (common/cuda/device.hpp) and to operations.
#pragma once

namespace workbook::cuda {

/// Marks the call's own tensors as complete: memory allocated from here on is the chapter's, and counters start at
/// zero.
void begin_chapter();

}  // namespace workbook::cuda
