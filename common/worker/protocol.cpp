#include "common/worker/protocol.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

namespace workbook::worker {
namespace {

bool send_all(int socket, const char* bytes, std::size_t count, const Transfer& by) {
  while (count > 0) {
    const long sent = by.send(socket, bytes, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    count -= std::size_t(sent);
  }
  return true;
}

using Clock = std::chrono::steady_clock;

bool receive_all(int socket, char* bytes, std::size_t count, const std::optional<Clock::time_point>& until,
                 bool& timed_out, const Transfer& by) {
  while (count > 0) {
    int wait = -1;
    if (until) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*until - Clock::now()).count();
      wait = int(left > 0 ? left : 0);
    }
    pollfd descriptor{socket, POLLIN, 0};
    const int ready = ::poll(&descriptor, 1, wait);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      timed_out = true;
      return false;
    }
    const long received = by.receive(socket, bytes, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    bytes += received;
    count -= std::size_t(received);
  }
  return true;
}

}  // namespace

const Transfer kSystemTransfer{
    [](int socket, const void* bytes, std::size_t count, int flags) -> long {
      return ::send(socket, bytes, count, flags);
    },
    [](int socket, void* bytes, std::size_t count, int flags) -> long { return ::recv(socket, bytes, count, flags); }};

bool send_message(int socket, const std::string& text, const Transfer& by) {
  const std::uint32_t length = std::uint32_t(text.size());
  return send_all(socket, reinterpret_cast<const char*>(&length), sizeof length, by) &&
         send_all(socket, text.data(), text.size(), by);
}

std::optional<std::string> receive_message(int socket, double deadline, bool& timed_out, const Transfer& by) {
  timed_out = false;
  std::optional<Clock::time_point> until;
  if (deadline >= 0) {
    until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadline));
  }
  std::uint32_t length = 0;
  if (!receive_all(socket, reinterpret_cast<char*>(&length), sizeof length, until, timed_out, by)) return {};
  if (length > kLongestMessage) return {};
  std::string text(length, '\0');
  if (!receive_all(socket, text.data(), text.size(), until, timed_out, by)) return {};
  return text;
}

}  // namespace workbook::worker
