// Ranks as threads that run one at a time, so that a run always has the same result. Internal.
#pragma once

#include <functional>
#include <string>

namespace workbook::nccl {

/// What a rank waits for, for the report of a deadlock.
struct Waiting {
  std::string text;  ///< "ncclSend of 4096 bytes to rank 1 at ring.hpp:40"
  bool lone_send = false;
};

/// Lets other ranks run until may_continue() holds. Throws KernelMistakes if no rank can continue. On a thread that is
/// no rank, this is so at once.
void wait_until(const std::function<bool()>& may_continue, const std::function<Waiting()>& waiting);

}  // namespace workbook::nccl
