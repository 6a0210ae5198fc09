// CUDA's streams and events for the host code of kernel files (cuda_streams.hpp: under CUDA's names). An operation is
// executed when it is issued; what a stream, an event or a wait orders is followed beside that, and two accesses to
// memory that nothing orders are reported. So the result of a program with a missing event is right, and its report
// does not depend on luck.
//
// One device per rank: memory, streams and events belong to the device that is current when they are created.
#pragma once

#include <cstddef>

#include "common/simt/api.hpp"
#include "common/simt/runtime.hpp"

namespace simt {

struct Stream;
struct Event;

/// The device of this host thread's next calls; 0 at first.
SIMT_API void set_device(int number);
SIMT_API int device();
/// The stream of this thread's launches; null, the default stream, at first.
SIMT_API Stream*& current_stream();

SIMT_API Stream* create_stream(bool waits_for_default_stream, Where where);
SIMT_API void destroy(Stream* stream);
SIMT_API Event* create_event();
SIMT_API void destroy(Event* event);
SIMT_API void record(Event* event, Stream* stream);
/// Later operations of the stream wait for the event's last record; an event without one is complete.
SIMT_API void wait(Stream* stream, const Event* event);
/// The host waits for all operations of a stream, of an event's last record, of the current device.
SIMT_API void synchronize(Stream* stream);
SIMT_API void synchronize(const Event* event);
SIMT_API void synchronize_device();
SIMT_API void copy_on(Stream* stream, void* to, const void* from, std::size_t bytes, Where where,
                      bool between_devices = false);
SIMT_API void fill_on(Stream* stream, void* to, int byte, std::size_t bytes, Where where);

}  // namespace simt
