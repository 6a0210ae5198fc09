// Parallel work with bitwise identical results on any number of cores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace workbook::training {

/// Calls work(first, last) for consecutive parts of [0, count) in parallel, one per core. The lengths of all parts
/// except the last are multiples of `grain`. The result for an index must not depend on the begin of its part. The
/// first exception of a part is rethrown.
template <class Work>
void parallel(std::int64_t count, std::int64_t grain, const Work& work) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t parts = std::min(grains, cores);
  if (parts <= 1) {
    if (count > 0) work(std::int64_t{0}, count);
    return;
  }
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(parts));
  const auto part = [&](std::int64_t i) {
    try {
      work(grains * i / parts * grain, std::min(grains * (i + 1) / parts * grain, count));
    } catch (...) {
      failures[std::size_t(i)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    std::int64_t i = 1;
    try {
      for (; i < parts; ++i) others.emplace_back(part, i);
    } catch (const std::system_error&) {  // no further thread can be started
      for (; i < parts; ++i) part(i);
    }
    part(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace workbook::training
