// Which operations of streams and of the host are ordered, by vector clocks; and the accesses to device memory that
// they do not order. Internal, and for what else moves data between devices (common/nccl).
//
// A sequence is a stream, or a call of a group. Its operations are ordered among themselves; events, waits of the host
// and transfers order operations of different sequences. An operation is issued after what its host thread knows to be
// complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/simt/report.hpp"
#include "common/simt/streams.hpp"

namespace simt {

/// By sequence: the number of its operations that come before.
using Clock = std::map<int, std::uint64_t>;

struct Operation {
  std::string text;                 ///< "ncclRecv (device 1, the stream created at ring.hpp:31)"
  SourceLine source;                ///< of the call, unless there are `callers`
  std::vector<void*> callers = {};  ///< return addresses, innermost first
  int sequence = 0, device = 0;
  int stream = 0;    ///< the sequence of its stream: another one than its own for the calls of a group
  Clock clock = {};  ///< of what comes before it, and its own number in its sequence
};
using IssuedOperation = std::shared_ptr<const Operation>;

/// Whether the process uses streams or several devices: without them everything is ordered.
SIMT_API bool follows_streams();
/// Issues the stream's next operation.
SIMT_API IssuedOperation issue(Stream* stream, std::string text, Where where);
/// An operation that comes after the stream's earlier ones, but is not ordered with its later ones before after().
SIMT_API IssuedOperation issue_branch(Stream* stream, std::string text, Where where);
/// The same operation, which comes after the others as well.
SIMT_API IssuedOperation joined(const Operation& operation, const std::vector<IssuedOperation>& others);
IssuedOperation issue_launch(const std::string& kernel);
/// What the stream does after this comes after the operation.
SIMT_API void after(Stream* stream, const Operation& operation);

/// Lists the operations that are issued from now on, until take_operations().
SIMT_API void list_operations();
SIMT_API std::vector<IssuedOperation> take_operations();
/// Bytes that the rank on one device has sent to that on another in one call.
struct Transfer {
  int from, to;
  std::size_t bytes;
  int step;  ///< of the sender: how many groups, or calls outside of groups, it had completed
};
SIMT_API void add_transfer(const Transfer& transfer);
/// In the order of their completion, since clear_launches().
SIMT_API const std::vector<Transfer>& transfers();
/// Forgets transfers and operations, at clear_launches(). All operations must be complete; those of streams that still
/// exist are kept.
void forget_operations();

/// Neither comes before the other.
SIMT_API bool concurrent(const Operation& a, const Operation& b);

/// An access to bytes of one allocation; returns a report if an earlier conflicting access is not ordered before it.
SIMT_API std::vector<Report> access(const IssuedOperation& operation, const void* memory, std::size_t bytes,
                                    bool writes);
/// The accesses of the launch that has just ended.
std::vector<Report> accesses_of_launch(const IssuedOperation& operation);
/// A synchronous copy from or to the host. Throws KernelMistakes.
SIMT_API void copied_by_host(const void* memory, std::size_t bytes, bool writes);

/// What the calling host thread has issued or knows to be complete.
SIMT_API Clock host_clock();
/// What another host thread knows comes before what this one does next.
SIMT_API void join_host(const Clock& other);

}  // namespace simt
