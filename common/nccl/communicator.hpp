// Communicators on the simulator. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/nccl/nccl.hpp"

namespace workbook::nccl {

/// The ranks' communicators, connected to each other.
std::vector<std::unique_ptr<Communicator>> connect(int ranks);
/// Throws KernelMistakes if this thread's last ncclGroupStart has no ncclGroupEnd.
void require_no_open_group();

}  // namespace workbook::nccl
