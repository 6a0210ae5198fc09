// Ranks as threads of one process, each with a device and a communicator.
#pragma once

#include <functional>

#include "common/nccl/nccl.hpp"

namespace workbook::nccl {

/// Calls body(rank, communicator) for every rank, on a thread and a device of its own, and waits for all. If one
/// throws, the others end, and its exception is thrown here.
///
/// On the simulator one rank runs at a time, until it waits for others; if none can continue, that is reported. With
/// fewer GPUs than ranks, ranks share them, and copies replace NCCL.
///
/// The simulator lists the transfers (simt::transfers). A collective of R ranks counts as a ring: each rank sends to
/// the next one.
void run_ranks(int ranks, const std::function<void(int rank, ncclComm_t communicator)>& body);

}  // namespace workbook::nccl
