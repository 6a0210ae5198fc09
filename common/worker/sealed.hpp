// The worker's own system calls, and the operations that are restricted to them. The reader's code runs in the same
// process and can reach any function of the C library by its offset from a function that it may call. After seal(), the
// kernel refuses the following from any other code in the process:
//   - to send to, receive from or close the pipe, except by the one instruction in call_system();
//   - to change the access to the program's image, whose tables of functions were sealed when it was loaded;
//   - to map shared memory, which process limits do not include;
//   - to make memory executable, or to map over existing mappings.
// Without seccomp, or on a processor other than x86-64, the worker is an ordinary process.
#pragma once

#include <cstddef>
#include <string>

namespace workbook::worker {

/// Maps the file by the worker's own instruction; null on failure.
void* map_shared(int file, std::size_t bytes);

/// Like ::send and ::recv, with errno.
long send_by_own_call(int socket, const void* bytes, std::size_t count, int flags);
long receive_by_own_call(int socket, void* bytes, std::size_t count, int flags);

/// Called once, before the reader's code; applies to all existing threads. False if the kernel refused the filter.
bool seal();

}  // namespace workbook::worker
