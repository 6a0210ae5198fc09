// The protocol between parent and worker. Requests and replies are JSON texts, each preceded by its length as 4 bytes.
//
//   request  {"id": NUMBER, "operation": "forward", "numbers": {"Nq": 200, …}, "size": BYTES,
//             "read_only": BYTES, "memory": BYTES (if it is limited),
//             "arrays": [{"name": "Q", "offset": BYTE, "bytes": COUNT, "element": 4}, …]}
//   reply    {"id": NUMBER, "message": "…", "seconds": 0.01, "extra_bytes": 4096, "counters": {…},
//             "status": "ok" | "todo" | "refused" | "unavailable" | "read_outside" | "reported" | "threw" |
//                       "out_of_memory",
//             "reports": [{…}, …], "reports_left_out": 0}      the simulator's, as reports.hpp has them
//
// The id is random for each call, so that a reply forged by the reader's code in advance cannot contain it, and a late
// reply is never taken for the answer to a later call. Non-finite numbers are sent as "inf", "-inf" and "nan".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace workbook::worker {

inline constexpr int kSocket = 3;        ///< the worker's end of the socket pair
inline constexpr int kSharedMemory = 4;  ///< the shared memory file
inline constexpr std::uint32_t kLongestMessage = 1u << 20;

/// Like ::send and ::recv; the worker has its own versions (sealed.hpp).
struct Transfer {
  long (*send)(int socket, const void* bytes, std::size_t count, int flags);
  long (*receive)(int socket, void* bytes, std::size_t count, int flags);
};
extern const Transfer kSystemTransfer;

/// Sends the length of `text`, then the text. False if the other side has closed the connection.
bool send_message(int socket, const std::string& text, const Transfer& by = kSystemTransfer);

/// Receives one message. Empty if the other side has closed the connection, sent more than kLongestMessage, or missed
/// the deadline (seconds from now, negative: none); `timed_out` reports the last case.
std::optional<std::string> receive_message(int socket, double deadline, bool& timed_out,
                                           const Transfer& by = kSystemTransfer);

}  // namespace workbook::worker
