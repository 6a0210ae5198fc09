// A launch: checks it as CUDA does, distributes its blocks over operating-system threads, and merges their results.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "common/simt/detect.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/program.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/stream_order.hpp"
#include "common/simt/tracer.hpp"

namespace simt {

namespace {

/// One operating-system thread. Its thread-local storage is the static shared memory of the blocks that it runs, so it
/// runs nothing else.
struct Worker {
  Stacks stacks;
  SharedMemory shared;
  GlobalObserver global;
  Block block;

  void run(LaunchState& launch) {
    block.launch = &launch;
    block.shared = &shared;
    block.global = &global;
    block.counters = {};
    block.notes.clear();
    block.intervals.clear();
    std::optional<Tracer> tracer;
    if (launch.options.trace && launch.observing) tracer.emplace();
    block.tracer = tracer ? &*tracer : nullptr;
    prepare_block(block, launch.grid, launch.block, stacks);
    shared.begin_launch(launch.shared_bytes);
    global.begin_launch();
    for (std::uint64_t number; (number = launch.next_block++) < launch.block_count && !interrupted;) {
      const std::uint64_t ends = launch.options.ends;
      if (ends > 0 && number >= ends && number + ends < launch.block_count) continue;
      if (number * launch.options.of < launch.options.skipped * launch.block_count) continue;
      run_block(block, number);
      ++launch.changes;
    }
    const std::lock_guard<std::mutex> lock(launch.mutex);
    launch.result.counters += block.counters;
    global.merge_into(launch.result);
    launch.result.notes.insert(launch.result.notes.end(), block.notes.begin(), block.notes.end());
    block.tracer = nullptr;
    if (tracer) tracer->merge_into(launch.result);
    if (!block.intervals.empty()) launch.result.intervals = std::move(block.intervals);
  }
};

/// The threads, kept between launches. They wait forever when the program ends: nothing here is destroyed.
class Pool {
 public:
  /// Runs `launch` on `count` threads, or on those that can be started, and waits.
  void run(LaunchState& launch, int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    try {
      for (; threads_ < count; ++threads_) std::thread(&Pool::serve, this, threads_).detach();
    } catch (const std::system_error& error) {
      if (threads_ == 0) throw std::runtime_error(words("the simulator cannot start a thread: ", error.what()));
      count = threads_;
    }
    launch_ = &launch;
    launch.running = std::size_t(count);
    wanted_ = count;
    left_ = count;
    ++round_;
    wake_.notify_all();
    done_.wait(lock, [&] { return left_ == 0; });
    launch_ = nullptr;
  }

 private:
  void serve(int number) {
    std::optional<Worker> worker;
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != seen && launch_ != nullptr; });
      seen = round_;
      if (number >= wanted_) continue;
      LaunchState& launch = *launch_;
      lock.unlock();
      try {
        if (!worker) worker.emplace();
        worker->run(launch);
      } catch (...) {  // not enough memory
        worker.reset();
        launch.fail();
      }
      {
        const std::lock_guard<std::mutex> changing(launch.mutex);
        --launch.running;
        ++launch.changes;
      }
      lock.lock();
      if (--left_ == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  LaunchState* launch_ = nullptr;
  int threads_ = 0, wanted_ = 0, left_ = 0;
  std::uint64_t round_ = 0;
};

/// What all launches share. A forked child has none of the pool's threads, and gets a new one.
struct Launcher {
  std::mutex one_at_a_time;
  Pool pool;
};

Launcher& launcher() {
  static std::atomic<Launcher*> the_launcher = [] {
    pthread_atfork(nullptr, nullptr, [] { the_launcher = new Launcher; });
    return new Launcher;
  }();
  return *the_launcher;
}

std::vector<Launch>& history() {
  static auto& list = *new std::vector<Launch>;
  return list;
}

std::string text(dim3 v) {
  return words("(", v.x, ", ", v.y, ", ", v.z, ")");
}

void check_configuration(const std::string& kernel, dim3 grid, dim3 block, std::size_t shared_bytes) {
  const auto refuse = [&](const std::string& why) { throw LaunchRefused(kernel + ": " + why); };
  const std::uint64_t threads = std::uint64_t(block.x) * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || block.z > 64) {
    refuse("a block of " + text(block) + " threads; allowed are 1 to 1024 in total, at most 64 in z");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) refuse("a grid of " + text(grid) + " blocks is empty");
  if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
    refuse("a grid of " + text(grid) + " blocks; allowed are at most 2147483647 in x and 65535 in y and z");
  }
  const std::size_t most = std::min(options().shared_limit, SharedMemory::kMostDynamic);
  if (shared_bytes > most) {
    refuse(words(shared_bytes, " bytes of dynamic shared memory; the maximum per block is ", most));
  }
}

void clear_sectors() {
  for (const auto& tensor : all_tensors()) {
    if (follows_streams())
      tensor->elements_read = zeros(tensor->elements / 64 + 1),
      tensor->elements_written = zeros(tensor->elements / 64 + 1);
    const std::size_t words = tensor->sectors() / 64 + 1;
    for (std::size_t i = 0; i < words; ++i) {
      tensor->sectors_read[i].store(0, std::memory_order_relaxed);
      tensor->sectors_written[i].store(0, std::memory_order_relaxed);
    }
  }
}

/// Computes the totals over all tensors, the accessed tensors, and the sorted annotations.
void finish(Launch& launch) {
  std::erase_if(launch.tensors, [](const TensorTraffic& t) { return t.name.empty(); });
  for (const TensorTraffic& tensor : launch.tensors) launch.counters.global += tensor.counters;
  std::sort(launch.lines.begin(), launch.lines.end(), [](const TracedLine& a, const TracedLine& b) {
    return std::tie(a.source.file, a.source.line) < std::tie(b.source.file, b.source.line);
  });
  std::sort(launch.notes.begin(), launch.notes.end(), [](const Note& a, const Note& b) {
    return std::tie(a.block, a.label, a.value) < std::tie(b.block, b.label, b.value);
  });
}

}  // namespace

std::atomic<bool> interrupted = false;
void interrupt(bool on) {
  interrupted = on;
}

Options& options() {
  static Options the_options;
  return the_options;
}

const Launch& last_launch() {
  static const Launch none{};
  return history().empty() ? none : history().back();
}
const std::vector<Launch>& launches() {
  return history();
}
void clear_launches() {
  history().clear();
  forget_operations();
}

void require_host(const char* function) {
  if (in_kernel()) throw std::logic_error(words(function, " in a kernel: only host code may call it"));
}
bool in_kernel() {
  return running != nullptr;
}
void count_exponential() {
  if (running != nullptr) ++running->block->counters.exponentials;
}
uint3 thread_index() {
  return running->thread;
}
uint3 block_index() {
  return running->block->index;
}
uint3 block_size() {
  return running->block->size;
}
uint3 grid_size() {
  return running->block->grid;
}

void* dynamic_shared(std::size_t size, const SharedLayout* layout) {
  Lane& lane = *running;
  SharedMemory& shared = *lane.block->shared;
  shared.use_layout(lane, size, layout, __builtin_return_address(0));
  return shared.dynamic();
}

void run_grid(const void* function, dim3 grid, dim3 block, std::size_t shared_bytes, void (*body)(void*),
              void* parameters, std::size_t parameter_bytes) {
  const std::lock_guard<std::mutex> only(launcher().one_at_a_time);
  load_program();
  const std::string kernel = function_name(function);
  check_configuration(kernel, grid, block, shared_bytes);
  LaunchState launch{};
  launch.grid = grid;
  launch.block = block;
  launch.shared_bytes = shared_bytes;
  launch.body = body;
  launch.parameters = parameters;
  launch.parameter_bytes = parameter_bytes;
  launch.options = options();
  launch.observing = instrumented() && launch.options.count;
  launch.detecting = launch.observing && launch.options.detect;
  launch.block_count = std::uint64_t(grid.x) * grid.y * grid.z;
  Launch& result = launch.result;
  result.kernel = kernel;
  result.device = device();
  result.grid = grid;
  result.block = block;
  result.shared_bytes = shared_bytes;
  result.counted = launch.observing;
  const IssuedOperation operation = follows_streams() ? issue_launch(kernel) : nullptr;
  clear_sectors();
  begin_writers();

  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int workers = launch.options.workers > 0 ? launch.options.workers : cores;
  const auto start = std::chrono::steady_clock::now();
  {
    const OpenedMemory opened;
    launcher().pool.run(launch, static_cast<int>(std::min<std::uint64_t>(workers, launch.block_count)));
    if (launch.failure) std::rethrow_exception(launch.failure);
    add_late_sums(launch);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  finish(result);
  const bool open = !launch.open_exercise.empty();
  if (!open) result.reports = launch.findings.reports(grid);  // consequences of an open exercise are not reported
  if (operation && !open)
    for (Report& report : accesses_of_launch(operation)) result.reports.push_back(std::move(report));
  history().push_back(std::move(result));
  if (interrupted) throw Interrupted();
  if (open) throw OpenExercise(launch.open_exercise);
  const std::vector<Report>& reports = history().back().reports;
  if (!reports.empty() && launch.options.throw_on_mistakes) throw KernelMistakes(reports);
}

}  // namespace simt
