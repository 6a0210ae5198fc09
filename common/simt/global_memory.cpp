#include "common/simt/global_memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "common/simt/asynchrony.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/program.hpp"
#include "common/simt/streams.hpp"
#include "common/simt/visibility.hpp"

namespace simt {

namespace {

constexpr std::size_t kGuard = std::size_t(64) * 1024;  // bytes on either side
constexpr std::uint64_t kByHost = 1, kByThread = std::uint64_t(1) << 63;

std::mutex tensors_mutex;
std::vector<std::unique_ptr<Tensor>>& tensors() {
  static auto& list = *new std::vector<std::unique_ptr<Tensor>>;  // outlives every worker thread
  return list;
}
std::size_t next_index = 0;

/// Whether an element holds anything other than the initial pattern of memory. The memory must be open.
bool holds_something(const Tensor& tensor, std::size_t i) {
  const auto* bytes = at_address<const std::uint8_t>(tensor.low + i * tensor.element_size);
  return tensor.fresh && std::any_of(bytes, bytes + tensor.element_size, [](std::uint8_t b) { return b != 0xff; });
}

Tensor& tensor_of(const void* memory, const char* function) {
  Tensor* tensor = find_tensor(reinterpret_cast<std::uintptr_t>(memory));
  if (tensor == nullptr) throw std::invalid_argument(std::string(function) + ": not device memory");
  return *tensor;
}

void let(const Tensor& tensor, bool accessible) {
  mprotect(tensor.memory, tensor.mapped, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/// Opens one tensor to the host during its lifetime.
class Opened {
 public:
  explicit Opened(const Tensor* tensor) : tensor_(tensor) {
    if (tensor_ != nullptr) let(*tensor_, true);
  }
  ~Opened() {
    if (tensor_ != nullptr) let(*tensor_, false);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  const Tensor* tensor_;
};

/// If the host accesses device memory, the program ends, as it would on a machine with a GPU, but first reports the
/// cause.
void report_host_access(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const auto& tensor : tensors()) {
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(tensor->memory);
    if (in_kernel() || offset >= tensor->mapped) continue;
    for (const char* text : {"the host accesses ", tensor->name.c_str(),
                             ", which is device memory: only kernels and copies (upload, download) may access it\n"}) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
    }
  }
  ::signal(signal, SIG_DFL);  // and the access is retried
}

/// Does not replace an existing handler (of a debugger, a sanitizer, a test).
void watch_device_memory() {
  struct sigaction now {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_sigaction = report_host_access;
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace

std::unique_ptr<std::atomic<std::uint64_t>[]> zeros(std::size_t count) {
  return std::make_unique<std::atomic<std::uint64_t>[]>(count);
}

OpenedMemory::OpenedMemory() {
  for (const auto& tensor : tensors()) let(*tensor, true);
}
OpenedMemory::~OpenedMemory() {
  for (const auto& tensor : tensors()) let(*tensor, false);
}

void* allocate(std::size_t bytes, std::string name, std::size_t element_size, Role role) {
  auto tensor = std::make_unique<Tensor>();
  tensor->mapped = (bytes + 2 * kGuard + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, tensor->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  tensor->memory = static_cast<std::byte*>(memory);
  std::byte* data = tensor->memory + kGuard;
  std::memset(data - 256, 0xff, bytes + 512);
  tensor->low = reinterpret_cast<std::uintptr_t>(data);
  tensor->high = tensor->low + bytes;
  tensor->name = std::move(name);
  tensor->element_size = std::max<std::size_t>(1, element_size);
  tensor->role = role;
  tensor->device = device();
  tensor->elements = bytes / tensor->element_size;
  if (role != Role::input) tensor->writers = zeros(tensor->elements);
  tensor->sectors_read = zeros(tensor->sectors() / 64 + 1);
  tensor->sectors_written = zeros(tensor->sectors() / 64 + 1);
  let(*tensor, false);
  watch_device_memory();
  const std::lock_guard<std::mutex> lock(tensors_mutex);
  tensor->index = next_index++;
  auto& list = tensors();
  list.insert(std::upper_bound(list.begin(), list.end(), tensor, [](auto& a, auto& b) { return a->low < b->low; }),
              std::move(tensor));
  return data;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard<std::mutex> lock(tensors_mutex);
  auto& list = tensors();
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](auto& t) { return t->low == reinterpret_cast<std::uintptr_t>(memory); });
  if (at == list.end()) return;
  munmap((*at)->memory, (*at)->mapped);
  list.erase(at);
  if (list.empty()) next_index = 0;
}

void copy_in(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  Tensor& tensor = tensor_of(device, "copy_in");
  const Tensor* other = find_tensor(reinterpret_cast<std::uintptr_t>(host));  // device to device
  const Opened to(&tensor), from(other == &tensor ? nullptr : other);
  std::memcpy(device, host, bytes);
  if (!tensor.writers) return;
  const std::size_t first = (reinterpret_cast<std::uintptr_t>(device) - tensor.low) / tensor.element_size;
  for (std::size_t i = first; i < first + bytes / tensor.element_size && i < tensor.elements; ++i) {
    tensor.writers[i].store(kByHost, std::memory_order_relaxed);
  }
}

void begin_writers() {
  for (const auto& tensor : tensors()) {
    if (tensor->role != Role::scratch) continue;
    for (std::size_t i = 0; i < tensor->elements; ++i)
      if (tensor->writers[i].load(std::memory_order_relaxed) & kByThread)
        tensor->writers[i].store(kByHost, std::memory_order_relaxed);
  }
}

void copy_out(void* host, const void* device, std::size_t bytes) {
  const Opened opened(find_tensor(reinterpret_cast<std::uintptr_t>(device)));
  std::memcpy(host, device, bytes);
}

void set_tiles(void* memory, std::size_t tile_bytes) {
  tensor_of(memory, "set_tiles").tile_bytes = tile_bytes;
}

void expect_output(void* memory) {
  Tensor& tensor = tensor_of(memory, "expect_output");
  tensor.role = Role::output;
  tensor.writers = zeros(tensor.elements);
  tensor.fresh = false;  // it may hold data of an earlier launch
}

std::vector<Report> check_output(const void* memory) {
  const Tensor& tensor = tensor_of(memory, "check_output");
  std::size_t missing = 0, first = 0;
  for (std::size_t i = 0; tensor.writers && i < tensor.elements; ++i) {
    if (tensor.writers[i].load(std::memory_order_relaxed) != 0) continue;
    if (missing++ == 0) first = i;
  }
  if (missing == 0) return {};
  std::size_t unseen = 0;
  {
    const OpenedMemory opened;
    for (std::size_t i = first; i < tensor.elements; ++i)
      unseen += tensor.writers[i].load(std::memory_order_relaxed) == 0 && holds_something(tensor, i);
  }
  Report report{};
  if (unseen > 0) {
    report.mistake = Mistake::unseen_store;
    report.variable = tensor.name;
    report.what = kUnseenStore;
    report.advice = kUnseenStoreAdvice;
    report.count = unseen;
    return {report};
  }
  report.mistake = Mistake::never_written;
  report.variable = words(tensor.name, ", from element ", first);
  report.what = words(missing, " of ", tensor.elements, " elements of ", tensor.name, " were never written");
  report.advice = "check the grid size and the loop bounds, in particular for the tail";
  report.count = missing;
  return {report};
}

Tensor* find_tensor(std::uintptr_t address) {
  const auto& list = tensors();
  auto after = std::upper_bound(list.begin(), list.end(), address,
                                [](std::uintptr_t a, const std::unique_ptr<Tensor>& t) { return a < t->low; });
  if (after == list.begin()) return nullptr;
  Tensor* tensor = (after - 1)->get();
  return tensor->contains(address) ? tensor : nullptr;
}

const std::vector<std::unique_ptr<Tensor>>& all_tensors() {
  return tensors();
}

std::string describe_stray(std::uintptr_t address) {
  for (const auto& tensor : tensors()) {
    const std::string size = words(tensor->name, ", which has ", tensor->elements, " elements: it would be element ");
    const auto element = std::ptrdiff_t(tensor->element_size);
    if (address >= tensor->high && address - tensor->high < kGuard) {
      const std::uintptr_t past = address - tensor->high;
      return words(past == 0 ? "just" : words(past, " bytes"), " past the end of ", size,
                   (address - tensor->low) / tensor->element_size);
    }
    if (address < tensor->low && tensor->low - address <= kGuard) {
      const auto before = std::ptrdiff_t(tensor->low - address);
      return words(before, " bytes before the beginning of ", size, -((before + element - 1) / element));
    }
  }
  if (address < 4096) return "the null pointer" + (address ? words(" + ", address) : std::string());
  return "not near any allocation (host memory, or another thread's local variable?)";
}

// --- Observing -------------------------------------------------------------------------------------------------------

void GlobalObserver::begin_launch() {
  traffic_.assign(next_index, {});
  for (const auto& tensor : tensors()) {
    if (tensor->tile_bytes == 0) continue;
    const std::size_t tiles = (tensor->high - tensor->low + tensor->tile_bytes - 1) / tensor->tile_bytes;
    traffic_[tensor->index].tile_bytes.assign(tiles, 0);
    traffic_[tensor->index].tile_seen.assign(tiles, 0);
  }
  serial_ = 0;
}

void GlobalObserver::read_tile(const Tensor& tensor, std::uint64_t address, std::size_t bytes) {
  Traffic& traffic = of(tensor);
  const std::size_t tile = (address - tensor.low) / tensor.tile_bytes;
  traffic.tile_bytes[tile] += bytes;
  if (traffic.tile_seen[tile] == serial_) return;
  traffic.tile_seen[tile] = serial_;
  traffic.tiles_now.push_back(static_cast<std::uint32_t>(tile));
}

void GlobalObserver::end_block(std::uint64_t number) {
  for (Traffic& traffic : traffic_) {
    if (traffic.tiles_now.empty()) continue;
    std::sort(traffic.tiles_now.begin(), traffic.tiles_now.end());
    traffic.tiles_of_block[number] = std::move(traffic.tiles_now);
    traffic.tiles_now.clear();
  }
}

std::map<std::string, Interval::Tensor> GlobalObserver::tensors_so_far() const {
  std::map<std::string, Interval::Tensor> so_far;
  for (const auto& tensor : tensors()) {
    const Traffic& traffic = traffic_[tensor->index];
    if (traffic.touched) so_far[tensor->name] = {traffic.counters, traffic.arrived_bytes};
  }
  return so_far;
}

void GlobalObserver::merge_into(Launch& launch) const {
  std::vector<const Tensor*> by_index(traffic_.size(), nullptr);
  for (const auto& tensor : tensors()) by_index[tensor->index] = tensor.get();
  if (launch.tensors.empty()) launch.tensors.resize(traffic_.size());
  for (std::size_t i = 0; i < traffic_.size(); ++i) {
    if (by_index[i] == nullptr || !traffic_[i].touched) continue;
    TensorTraffic& total = launch.tensors[i];
    total.name = by_index[i]->name;
    total.counters += traffic_[i].counters;
    total.tile_bytes.resize(traffic_[i].tile_bytes.size());
    for (std::size_t t = 0; t < total.tile_bytes.size(); ++t) total.tile_bytes[t] += traffic_[i].tile_bytes[t];
    total.tiles_of_block.insert(traffic_[i].tiles_of_block.begin(), traffic_[i].tiles_of_block.end());
  }
}

// --- Checking --------------------------------------------------------------------------------------------------------

namespace {

[[noreturn]] void end_outside(Lane& lane, std::uintptr_t address, std::size_t size, Access access, const void* pc,
                              Variable variable, const std::string& where) {
  std::string advice = address < 4096 ? "check which pointer was passed to the launch"
                                      : "the index must be at least 0 and less than the number of elements";
  if (access == Access::async && address >= 4096)
    advice += "; an asynchronous copy does not read the bytes that it zero-fills";
  refuse(lane, finding_of(lane, Mistake::outside_global, pc, action_of(access), words(size, " bytes, ", where),
                          std::move(advice), std::move(variable)));
}

/// The tensor that the address is in, but for a multiple of 2^32 bytes; otherwise null.
const Tensor* tensor_beyond_32_bits(std::uintptr_t address) {
  for (std::uintptr_t away = std::uintptr_t(1) << 32; away <= std::uintptr_t(1) << 38; away += std::uintptr_t(1) << 32)
    for (const std::uintptr_t meant : {address + away, address - away})
      if (const Tensor* tensor = find_tensor(meant)) return tensor;
  return nullptr;
}
[[noreturn]] void end_truncated(Lane& lane, const Tensor& meant, std::size_t size, Access access, const void* pc) {
  refuse(lane,
         finding_of(
             lane, Mistake::truncated_offset, pc, action_of(access),
             words(size, " bytes, a multiple of 2^32 bytes away from ", meant.name,
                   ": the offset has lost its upper bits"),
             "keep the offset in std::int64_t, in variables and shuffles as well as in the multiplication: two ints "
             "multiplied are an int, whatever it is assigned to",
             {meant.name, ""}));
}

Variable element_of(const Tensor& tensor, std::uintptr_t address) {
  return {tensor.name, words(" (global), element ", (address - tensor.low) / tensor.element_size)};
}

/// The writer of an element, as recorded beside the code address.
struct Writer {
  static constexpr std::uint64_t kMostBlocks = (1 << 20) - 1;  ///< blocks with a larger number are not distinguished
  std::uint64_t block;
  int thread;
  auto operator<=>(const Writer&) const = default;

  static Writer of(const Lane& lane) { return {std::min(lane.block->number, kMostBlocks), lane.linear}; }
  static Writer from(std::uint64_t bits) { return {bits >> 43 & kMostBlocks, int(bits >> 32 & 0x7ff)}; }
  std::uint64_t bits() const { return block << 43 | std::uint64_t(thread) << 32; }
  std::string text() const {
    const std::string of_block = block == kMostBlocks ? words("a later block") : words("block ", block);
    return words(of_block, ", warp ", thread / kWarpSize, ", lane ", thread % kWarpSize);
  }
};

void note_write(Lane& lane, Tensor& tensor, std::uintptr_t address, std::size_t size, Access access, const void* pc) {
  const std::size_t first = (address - tensor.low) / tensor.element_size;
  const std::size_t last = (address + size - 1 - tensor.low) / tensor.element_size;
  const std::uint64_t mine = kByThread | Writer::of(lane).bits() | code_of(pc);
  for (std::size_t i = first; i <= last && i < tensor.elements; ++i) {
    const std::uint64_t before = tensor.writers[i].exchange(mine, std::memory_order_relaxed);
    if (!(before & kByThread) || tensor.role != Role::output || access == Access::atomic) continue;
    // Which of the two writes came first may depend on the distribution of the blocks: reported in the order of the
    // code.
    const auto before_code = static_cast<std::uint32_t>(before), mine_code = code_of(pc);
    Finding finding = finding_of(lane, Mistake::written_twice, pc, "writes");
    finding.other = {address_of_code(before_code), "writes"};
    if (mine_code < before_code) std::swap(finding.side.pc, finding.other.pc);
    finding.variable.name = tensor.name;
    const auto [first_writer, second_writer] = std::minmax({Writer::of(lane), Writer::from(before)});
    finding.what = words("an element of ", tensor.name, " is written more than once, e.g. element ", i, ": by ",
                         first_writer.text(), " and by ", second_writer.text());
    finding.advice =
        first_writer != second_writer ? "let one thread of one block write each element once: a second write adds "
                                        "traffic, and is a race if the values differ"
        : mine_code == before_code
            ? "one thread writes it in two loop iterations: the index must depend on every loop variable"
            : "one thread writes it at two lines of the code: the second range must start where the first ends";
    note_finding(lane, std::move(finding));
    return;
  }
}

/// "; the last written element before it is 37": the end of the written range, if it is near; otherwise empty.
std::string written_before(const Tensor& tensor, std::size_t i) {
  constexpr std::size_t kNear = 64;
  for (std::size_t back = 1; back <= std::min(i, kNear); ++back)
    if (tensor.writers[i - back].load(std::memory_order_relaxed) != 0)
      return words("; the last written element before it is ", i - back);
  return "";
}

void check_was_written(Lane& lane, const Tensor& tensor, std::uintptr_t address, std::size_t size, const void* pc) {
  const std::size_t first = (address - tensor.low) / tensor.element_size;
  const std::size_t last = (address + size - 1 - tensor.low) / tensor.element_size;
  for (std::size_t i = first; i <= last && i < tensor.elements; ++i) {
    if (tensor.writers[i].load(std::memory_order_relaxed) != 0) continue;
    const bool unseen = holds_something(tensor, i);
    const std::string before = written_before(tensor, i);
    Finding finding = finding_of(lane, unseen ? Mistake::unseen_store : Mistake::uninitialised_global, pc, "reads");
    finding.variable.name = tensor.name;
    finding.what =
        unseen ? kUnseenStore
               : words("element ", i, " of ", tensor.name, " has not been written by any kernel or copy", before);
    finding.advice = unseen           ? kUnseenStoreAdvice
                     : before.empty() ? "write it first: outputs and scratch memory hold NaN until then"
                                      : "either the read extends too far, or the write stops too early";
    note_finding(lane, std::move(finding));
    return;
  }
}

}  // namespace

void follow_scratch(Lane& lane, const Tensor& tensor, std::uintptr_t address, std::size_t size, Access access,
                    const void* pc) {
  if (access == Access::write) note_scratch_write(lane);
  if (access != Access::read) return;
  const Writer reader = Writer::of(lane);
  const std::size_t first = (address - tensor.low) / tensor.element_size;
  const std::size_t last = (address + size - 1 - tensor.low) / tensor.element_size;
  for (std::size_t i = first; i <= last && i < tensor.elements; ++i) {
    const std::uint64_t word = tensor.writers[i].load(std::memory_order_relaxed);
    const Writer writer = Writer::from(word);
    if (!(word & kByThread) || writer.block == reader.block || writer.block == Writer::kMostBlocks) continue;
    const Visible visible = visible_write(*lane.block, writer.block, writer.thread);
    if (visible == Visible::yes && lane.block->second_fence != Block::SecondFence::missing) continue;
    const bool not_written = visible == Visible::not_signalled;
    Finding finding =
        finding_of(lane, not_written ? Mistake::uninitialised_global : Mistake::missing_fence, pc, "reads");
    finding.other = {address_of_code(static_cast<std::uint32_t>(word)), "writes"};
    finding.variable.name = tensor.name;
    const std::string element = words("element ", i, " of ", tensor.name),
                      by = words(writer.text(), ", wrote it, and ");
    if (not_written) {
      finding.what = words(element, " may not be written yet: ", by, "this block has not seen a signal of it since");
      finding.advice =
          "read what another block has written only when that block has signalled, by an atomic operation after the "
          "write and a barrier";
    } else if (visible == Visible::no) {
      finding.what = words(element, " may not be visible: ", by,
                           "no __threadfence() and barrier order that before the block's signal");
      finding.advice =
          "the writing threads reach a barrier, then one thread calls __threadfence(), and only then the atomic "
          "operation that signals the other blocks";
    } else {
      finding.what = words(element, " may be read too early: ", by,
                           "this block has called no __threadfence() since it has seen the signal");
      finding.advice = "call __threadfence() between the atomic operation and the reads";
    }
    note_finding(lane, std::move(finding));
    return;
  }
}

Tensor* check_global(Lane& lane, std::uintptr_t address, std::size_t size, Access access, const void* pc,
                     Tensor* guess) {
  Tensor* tensor = guess != nullptr && guess->contains(address) ? guess : find_tensor(address);
  if (tensor == nullptr) [[unlikely]] {
    const LaunchState& launch = *lane.block->launch;
    if (address - reinterpret_cast<std::uintptr_t>(launch.parameters) < launch.parameter_bytes) return nullptr;
    const bool is_static = in_static_storage(address);
    if (is_static && access == Access::read) return nullptr;  // constants
    if (const Tensor* meant = tensor_beyond_32_bits(address)) end_truncated(lane, *meant, size, access, pc);
    end_outside(lane, address, size, access, pc, {},
                is_static ? "in a static variable, which a kernel may only read" : describe_stray(address));
  }
  if (address + size > tensor->high) [[unlikely]] {
    end_outside(lane, address, size, access, pc, element_of(*tensor, address), "which extend past the end");
  }
  if (!lane.block->launch->detecting) return tensor;
  if (lane.block->asynchrony != nullptr && !check_against_stores(lane, *tensor, address, size, access, pc)) [[unlikely]]
    return tensor;
  if (tensor->writers) {
    if (access == Access::write || access == Access::atomic || access == Access::matrix_write) {
      if (access == Access::atomic) check_was_written(lane, *tensor, address, size, pc);
      note_write(lane, *tensor, address, size, access, pc);
    } else {
      check_was_written(lane, *tensor, address, size, pc);
    }
  }
  return tensor;
}

}  // namespace simt
