// Shared by the oracle and the error bounds: distributing rows over the cores, and sums along a row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace workbook {

/// Σ_c a_c b_c with eight partial sums in a fixed order: fast, and identical on every platform.
inline double dot(const double* a, const double* b, std::int64_t d) {
  double sums[8] = {};
  std::int64_t c = 0;
  for (; c + 8 <= d; c += 8)
    for (int k = 0; k < 8; ++k) sums[k] += a[c + k] * b[c + k];
  for (; c < d; ++c) sums[c % 8] += a[c] * b[c];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// y += factor * x, over d elements.
inline void add_scaled(double* __restrict y, double factor, const double* __restrict x, std::int64_t d) {
  for (std::int64_t c = 0; c < d; ++c) y[c] += factor * x[c];
}

inline std::vector<double> to_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}
inline std::vector<double> absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

/// Calls work(row) for every row in [0, rows) on several threads, each with its own copy of `work`. If each row writes
/// only its own results and sums in its own order, the result does not depend on the number of threads (0: all cores).
template <class Work>
void for_every_row(std::int64_t rows, unsigned threads, const Work& work) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto run = [&] {
    try {
      Work own = work;  // per-thread scratch space
      for (std::int64_t row; (row = next.fetch_add(1)) < rows;) own(row);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (unsigned i = 1; i < threads && i < rows; ++i) others.emplace_back(run);
    } catch (const std::system_error&) {  // no further thread can be started
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace workbook
