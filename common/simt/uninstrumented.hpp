// The accesses of a kernel file that the compiler does not instrument, read from the compiler's own dumps: of the code
// with the instrumentation (-fdump-tree-tsan-uid), and of the variables (-fdump-ipa-visibility). No part of the
// simulator's library: graders use it.
#pragma once

#include <filesystem>
#include <string>

namespace simt {

/// What the simulator could not observe: a call that stores its result in memory other than a local variable, or takes
/// a struct from it, since the compiler instruments assignments alone; a constant in shared memory, whose reads are not
/// instrumented. The first one in the dumps beside an object file; empty: there is none.
std::string uninstrumented(const std::filesystem::path& object);

}  // namespace simt
