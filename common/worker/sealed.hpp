// The worker's own calls of the system, and what only they may do. The reader's code lies in the same process: it can
// reach any function of the C library, by the distance from one that it may call. From seal() on the kernel refuses,
// wherever in the process they come from,
//   - to send to, receive from or close the pipe, but by the one instruction in call_system();
//   - to change the access to the program's image, whose tables of functions were sealed when it was loaded;
//   - to share memory, which no limit of a process counts, likewise;
//   - to make memory executable, and to map over other memory.
// Where there is no seccomp, or on another processor than x86-64, it is an ordinary process.
#pragma once

#include <cstddef>
#include <string>

namespace workbook::worker {

/// The file, mapped by the worker's own instruction; null where it cannot be.
void* map_shared(int file, std::size_t bytes);

/// As ::send and ::recv, with errno.
long send_by_own_call(int socket, const void* bytes, std::size_t count, int flags);
long receive_by_own_call(int socket, void* bytes, std::size_t count, int flags);

/// Once, before the first call of the reader's code; for all threads that there are. False where the kernel did not
/// take it.
bool seal();

}  // namespace workbook::worker
