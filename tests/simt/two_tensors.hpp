// The launch of two_tensors.cu.
#pragma once

namespace zoo {

/// One load instruction of a warp: lanes 0 to 7 read from "a", the others from "b".
void run_two_tensors();

}  // namespace zoo
