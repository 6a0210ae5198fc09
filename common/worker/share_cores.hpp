// Runs tasks in parallel, one per core.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace workbook::worker {

/// Calls task(0) … task(count - 1), with one thread per core. The first exception stops the loop and propagates to the
/// caller.
template <class Task>
void share_cores(std::size_t count, const Task& task) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) task(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    try {
      for (std::size_t thread = 0; thread < std::min(cores, count); ++thread) threads.emplace_back(work);
    } catch (const std::system_error&) {  // no further thread can be started
      work();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace workbook::worker
