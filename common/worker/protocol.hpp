// What travels between parent and worker. Requests and replies are JSON texts, each after its length as 4 bytes.
//
//   request  {"id": NUMBER, "operation": "forward", "numbers": {"Nq": 200, …}, "size": BYTES,
//             "read_only": BYTES, "memory": BYTES (where it is limited),
//             "arrays": [{"name": "Q", "offset": BYTE, "bytes": COUNT, "element": 4}, …]}
//   reply    {"id": NUMBER, "message": "…", "seconds": 0.01, "extra_bytes": 4096, "counters": {…},
//             "status": "ok" | "todo" | "refused" | "unavailable" | "read_outside" | "reported" | "threw" |
//                       "out_of_memory",
//             "reports": [{…}, …], "reports_left_out": 0}      the simulator's, as reports.hpp has them
//
// The id is drawn at random for each call: a reply that the reader's code wrote in advance cannot know it, and is never
// taken for the answer to a later call. Numbers that are not finite travel as "inf", "-inf" and "nan".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace workbook::worker {

inline constexpr int kSocket = 3;        ///< the worker's end of the socket pair
inline constexpr int kSharedMemory = 4;  ///< the shared memory file
inline constexpr std::uint32_t kLongestMessage = 1u << 20;

/// As ::send and ::recv: the worker has its own (sealed.hpp).
struct Transfer {
  long (*send)(int socket, const void* bytes, std::size_t count, int flags);
  long (*receive)(int socket, void* bytes, std::size_t count, int flags);
};
extern const Transfer kSystemTransfer;

/// Sends all of `text`, its length first. False if the other side is gone.
bool send_message(int socket, const std::string& text, const Transfer& by = kSystemTransfer);

/// Receives one message; empty if the other side is gone, sent more than kLongestMessage, or (deadline in seconds from
/// now, negative: none) did not send in time; `timed_out` tells which.
std::optional<std::string> receive_message(int socket, double deadline, bool& timed_out,
                                           const Transfer& by = kSystemTransfer);

}  // namespace workbook::worker
