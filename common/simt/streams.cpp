#include "common/simt/streams.hpp"

#include <execinfo.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/simt/error.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/program.hpp"
#include "common/simt/stream_order.hpp"

namespace simt {

struct Stream {
  int sequence = 0, device = 0;
  bool waits_for_default_stream = true;
  std::string text;  ///< "the stream created at ring.hpp:31"
  Clock clock;       ///< of its operations so far
};
struct Event {
  Clock clock;
};

namespace {

std::mutex mutex;  // protects all of the following, and the history of tensors
std::atomic<bool> follows = false;
int sequences = 0;
bool lists = false;
std::vector<IssuedOperation> listed;
std::vector<Transfer> completed_transfers;

struct Device {
  Stream default_stream;
  std::vector<Stream*> streams;
};
std::map<int, Device>& devices() {
  static auto& all = *new std::map<int, Device>;
  return all;
}
Device& device_of(int number) {
  const auto [at, is_new] = devices().try_emplace(number);
  if (is_new) {
    Stream& stream = at->second.default_stream;
    stream.sequence = ++sequences, stream.device = number, stream.text = "the default stream";
  }
  return at->second;
}

/// A host thread: its current device and stream, and what it has issued or knows to be complete.
struct Host {
  int device = 0;
  Stream* stream = nullptr;
  Clock clock;
};
Host& host() {
  thread_local Host the_host;
  return the_host;
}

void join(Clock& to, const Clock& from) {
  for (const auto& [sequence, time] : from) {
    std::uint64_t& known = to[sequence];
    known = std::max(known, time);
  }
}

Stream& stream_of(Stream* stream) {
  return stream != nullptr ? *stream : device_of(host().device).default_stream;
}

/// The default stream and all others that wait for it are one sequence.
void join_default_stream(Stream& stream) {
  Device& device = device_of(stream.device);
  if (&stream != &device.default_stream) {
    if (stream.waits_for_default_stream) join(stream.clock, device.default_stream.clock);
    return;
  }
  for (const Stream* other : device.streams)
    if (other->waits_for_default_stream) join(stream.clock, other->clock);
}

IssuedOperation issued(Stream& stream, Operation operation) {
  join_default_stream(stream);
  join(stream.clock, host().clock);
  ++stream.clock[stream.sequence];
  operation.sequence = stream.sequence;
  operation.device = stream.device;
  operation.clock = stream.clock;
  operation.text += words(" (device ", stream.device, ", ", stream.text, ")");
  if (operation.stream == 0) operation.stream = stream.sequence;
  const auto made = std::make_shared<const Operation>(std::move(operation));
  if (lists) listed.push_back(made);
  return made;
}

/// An operation whose line is that of the book's or the reader's code that calls it.
IssuedOperation issue_here(Stream* stream, std::string text) {
  std::vector<void*> callers(16);
  callers.resize(std::size_t(backtrace(callers.data(), int(callers.size()))));
  const std::lock_guard<std::mutex> lock(mutex);
  return issued(stream_of(stream), {.text = std::move(text), .source = {}, .callers = std::move(callers)});
}

bool is_before(const Operation& a, const Operation& b) {
  const auto known = b.clock.find(a.sequence);
  return known != b.clock.end() && known->second >= a.clock.at(a.sequence);
}

/// The first element of both.
std::optional<std::size_t> overlap(const StreamAccess& a, const StreamAccess& b) {
  for (std::size_t i = 0; i < a.elements.size(); ++i)
    if (const std::uint64_t both = a.elements[i] & b.elements[i]) return 64 * i + std::size_t(std::countr_zero(both));
  return std::nullopt;
}
bool covers(const StreamAccess& a, const StreamAccess& b) {
  for (std::size_t i = 0; i < a.elements.size(); ++i)
    if ((b.elements[i] & ~a.elements[i]) != 0) return false;
  return true;
}

/// The innermost line outside common/.
SourceLine calling_line(const std::vector<void*>& callers) {
  for (const void* caller : callers) {
    SourceLine line = source_line(caller);
    if (line.line != 0 && !line.file.starts_with("common/") && !line.file.starts_with("./common/")) return line;
  }
  return {};
}

Side side_of(const StreamAccess& access) {
  const Operation& operation = *access.operation;
  return {operation.text + (access.writes ? " writes" : " reads"),
          operation.callers.empty() ? operation.source : calling_line(operation.callers)};
}

Report unordered(const Tensor& tensor, const StreamAccess& earlier, const StreamAccess& now, std::size_t element) {
  Report report{};
  report.mistake = Mistake::unordered_streams;
  report.variable = tensor.name;
  report.what =
      words("nothing orders two accesses to the same elements, e.g. to element ", element, " of ", tensor.name);
  report.advice =
      earlier.operation->stream == now.operation->stream
          ? "the calls of a group run at the same time: each needs memory of its own"
          : "record an event after the access that must come first, and let the other one's stream wait "
            "for it (cudaEventRecord, cudaStreamWaitEvent), unless one of the two should use another buffer";
  report.side = side_of(now);
  report.other = side_of(earlier);
  return report;
}

Report of_another_device(const Tensor& tensor, const StreamAccess& now) {
  Report report{};
  report.mistake = Mistake::other_device;
  report.variable = tensor.name;
  report.what = words(tensor.name, " is in the memory of device ", tensor.device);
  report.advice = "a device accesses its own memory; what another one holds must be received first";
  report.side = side_of(now);
  return report;
}

Report past_the_end(const Tensor& tensor, const StreamAccess& now, std::size_t offset, std::size_t bytes) {
  Report report{};
  report.mistake = Mistake::outside_global;
  report.variable = tensor.name;
  report.what = words(bytes / tensor.element_size, " elements from element ", offset / tensor.element_size, " of ",
                      tensor.name, " on, which has ", tensor.elements);
  report.advice = "the count must not exceed what the memory holds from there on";
  report.side = side_of(now);
  return report;
}

/// Compares an access with the earlier ones, and remembers it instead of those that it makes redundant: a later
/// conflict with one of these is also a conflict with this one.
std::vector<Report> remember(Tensor& tensor, StreamAccess now) {
  std::vector<Report> reports;
  if (tensor.device != now.operation->device) reports.push_back(of_another_device(tensor, now));
  std::erase_if(tensor.history, [&](const StreamAccess& earlier) {
    if (is_before(*earlier.operation, *now.operation)) return (now.writes || !earlier.writes) && covers(now, earlier);
    if (const auto both = overlap(now, earlier); both && (now.writes || earlier.writes) && reports.empty())
      reports.push_back(unordered(tensor, earlier, now, *both));
    return false;
  });
  tensor.history.push_back(std::move(now));
  return reports;
}

StreamAccess access_to(const Tensor& tensor, const IssuedOperation& operation, const void* memory, std::size_t bytes,
                       bool writes) {
  StreamAccess access{operation, writes, std::vector<std::uint64_t>(tensor.elements / 64 + 1)};
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(memory) - tensor.low;
  for (std::size_t i = offset / tensor.element_size; i <= (offset + bytes - 1) / tensor.element_size; ++i)
    access.elements[i / 64] |= std::uint64_t(1) << i % 64;
  return access;
}

Tensor& memory_of(const void* memory, const char* function) {
  Tensor* tensor = find_tensor(reinterpret_cast<std::uintptr_t>(memory));
  if (tensor == nullptr) throw std::invalid_argument(words(function, ": not device memory"));
  return *tensor;
}

SourceLine line_of(Where where) {
  return {where.file, int(where.line), where.function};
}

}  // namespace

// ---- Streams and events ---------------------------------------------------------------------------------------------

void set_device(int number) {
  host().device = number;
  if (number != 0) follows = true;
}
int device() {
  return host().device;
}
Stream*& current_stream() {
  return host().stream;
}

Stream* create_stream(bool waits_for_default_stream, Where where) {
  require_host("cudaStreamCreateWithFlags");
  const std::lock_guard<std::mutex> lock(mutex);
  follows = true;
  auto stream = std::make_unique<Stream>();
  stream->sequence = ++sequences;
  stream->device = host().device;
  stream->waits_for_default_stream = waits_for_default_stream;
  stream->text = words("the stream created at ", where.file, ":", where.line);
  device_of(stream->device).streams.push_back(stream.get());
  return stream.release();
}
void destroy(Stream* stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase(device_of(stream->device).streams, stream);
  delete stream;
}
Event* create_event() {
  return new Event;
}
void destroy(Event* event) {
  delete event;
}
void record(Event* event, Stream* stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  Stream& recorded = stream_of(stream);
  join_default_stream(recorded);
  join(recorded.clock, host().clock);
  event->clock = recorded.clock;
}
void wait(Stream* stream, const Event* event) {
  const std::lock_guard<std::mutex> lock(mutex);
  join(stream_of(stream).clock, event->clock);
}
void synchronize(Stream* stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  Stream& waited = stream_of(stream);
  join_default_stream(waited);
  join(host().clock, waited.clock);
}
void synchronize(const Event* event) {
  const std::lock_guard<std::mutex> lock(mutex);
  join(host().clock, event->clock);
}
void synchronize_device() {
  if (!follows) return;
  const std::lock_guard<std::mutex> lock(mutex);
  const Device& device = device_of(host().device);
  join(host().clock, device.default_stream.clock);
  for (const Stream* stream : device.streams) join(host().clock, stream->clock);
}

void copy_on(Stream* stream, void* to, const void* from, std::size_t bytes, Where where, bool between_devices) {
  require_host("cudaMemcpyAsync");
  if (bytes == 0) return;
  const IssuedOperation copy = issue(stream, between_devices ? "cudaMemcpyPeerAsync" : "cudaMemcpyAsync", where);
  std::vector<Report> reports = access(copy, from, bytes, false);
  for (Report& report : access(copy, to, bytes, true)) reports.push_back(std::move(report));
  if (between_devices) std::erase_if(reports, [](const Report& r) { return r.mistake == Mistake::other_device; });
  if (!reports.empty()) throw KernelMistakes(std::move(reports));
  copy_in(to, from, bytes);
}
void fill_on(Stream* stream, void* to, int byte, std::size_t bytes, Where where) {
  require_host("cudaMemsetAsync");
  if (bytes == 0) return;
  if (follows) {
    std::vector<Report> reports = access(issue(stream, "cudaMemsetAsync", where), to, bytes, true);
    if (!reports.empty()) throw KernelMistakes(std::move(reports));
  }
  copy_in(to, std::vector<std::byte>(bytes, std::byte(byte)).data(), bytes);
}

// ---- Operations -----------------------------------------------------------------------------------------------------

bool follows_streams() {
  return follows;
}

IssuedOperation issue(Stream* stream, std::string text, Where where) {
  const std::lock_guard<std::mutex> lock(mutex);
  return issued(stream_of(stream), {.text = std::move(text), .source = line_of(where)});
}
IssuedOperation issue_branch(Stream* stream, std::string text, Where where) {
  const std::lock_guard<std::mutex> lock(mutex);
  join_default_stream(stream_of(stream));
  Stream branch = stream_of(stream);
  const int of_stream = std::exchange(branch.sequence, ++sequences);
  return issued(branch, {.text = std::move(text), .source = line_of(where), .stream = of_stream});
}
IssuedOperation joined(const Operation& operation, const std::vector<IssuedOperation>& others) {
  Operation later = operation;
  for (const IssuedOperation& other : others) join(later.clock, other->clock);
  return std::make_shared<const Operation>(std::move(later));
}
IssuedOperation issue_launch(const std::string& kernel) {
  return issue_here(host().stream, "kernel " + kernel);
}
void add_transfer(const Transfer& transfer) {
  const std::lock_guard<std::mutex> lock(mutex);
  completed_transfers.push_back(transfer);
}
const std::vector<Transfer>& transfers() {
  return completed_transfers;
}
void forget_operations() {
  const std::lock_guard<std::mutex> lock(mutex);
  completed_transfers.clear();
  for (const auto& [number, device] : devices())
    if (!device.streams.empty()) return;
  host().clock.clear();
  for (auto& [number, device] : devices()) device.default_stream.clock.clear();
  for (const auto& tensor : all_tensors()) tensor->history.clear();
}
void list_operations() {
  const std::lock_guard<std::mutex> lock(mutex);
  lists = true;
  listed.clear();
}
std::vector<IssuedOperation> take_operations() {
  const std::lock_guard<std::mutex> lock(mutex);
  lists = false;
  return std::exchange(listed, {});
}
bool concurrent(const Operation& a, const Operation& b) {
  return !is_before(a, b) && !is_before(b, a);
}
void after(Stream* stream, const Operation& operation) {
  const std::lock_guard<std::mutex> lock(mutex);
  join(stream_of(stream).clock, operation.clock);
}

std::vector<Report> access(const IssuedOperation& operation, const void* memory, std::size_t bytes, bool writes) {
  if (bytes == 0) return {};
  Tensor& tensor = memory_of(memory, operation->text.c_str());
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(memory) - tensor.low;
  if (bytes > tensor.high - tensor.low - offset) return {past_the_end(tensor, {operation, writes, {}}, offset, bytes)};
  const std::lock_guard<std::mutex> lock(mutex);
  return remember(tensor, access_to(tensor, operation, memory, bytes, writes));
}

std::vector<Report> accesses_of_launch(const IssuedOperation& operation) {
  std::vector<Report> reports;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& tensor : all_tensors()) {
    for (const bool writes : {false, true}) {
      StreamAccess access{operation, writes, std::vector<std::uint64_t>(tensor->elements / 64 + 1)};
      const auto& elements = writes ? tensor->elements_written : tensor->elements_read;
      if (!elements) continue;
      bool any = false;
      for (std::size_t i = 0; i < access.elements.size(); ++i)
        any |= (access.elements[i] = elements[i].load(std::memory_order_relaxed)) != 0;
      if (!any) continue;
      for (Report& report : remember(*tensor, std::move(access))) reports.push_back(std::move(report));
    }
  }
  return reports;
}

void copied_by_host(const void* memory, std::size_t bytes, bool writes) {
  if (!follows || bytes == 0) return;
  const IssuedOperation copy = issue_here(nullptr, writes ? "an upload" : "a download");
  std::vector<Report> reports = access(copy, memory, bytes, writes);
  const std::lock_guard<std::mutex> lock(mutex);
  join(host().clock, copy->clock);
  if (!reports.empty()) throw KernelMistakes(std::move(reports));
}

Clock host_clock() {
  const std::lock_guard<std::mutex> lock(mutex);
  return host().clock;
}
void join_host(const Clock& of) {
  const std::lock_guard<std::mutex> lock(mutex);
  join(host().clock, of);
}

}  // namespace simt
