// The backend as the worker's server sees it (common/cuda/device.hpp), and what an operation says to it.
#pragma once

namespace workbook::cuda {

/// Says that the call's own tensors are on the device: what is allocated from here on is the chapter's, and counters
/// start at zero.
void begin_chapter();

}  // namespace workbook::cuda
