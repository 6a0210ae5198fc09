#include "common/training/parts.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "common/training/threads.hpp"

namespace workbook::training {
namespace {

/// Approximate number of elements that justify starting a thread.
constexpr std::int64_t kGrain = 16384;

template <class Work>
void parallel_rows(std::int64_t rows, std::int64_t width, const Work& work) {
  parallel(rows, std::max<std::int64_t>(1, kGrain / width), work);
}

}  // namespace

template <class T>
void embed(std::span<const std::uint8_t> bytes, std::span<const T> embedding, std::span<const T> positions,
           std::span<T> x, std::int64_t context, std::int64_t width) {
  for (std::int64_t t = 0; t < std::ssize(bytes); ++t) {
    const T *byte = &embedding[std::size_t(bytes[std::size_t(t)] * width)],
            *position = &positions[std::size_t(t % context * width)];
    for (std::int64_t c = 0; c < width; ++c) x[std::size_t(t * width + c)] = byte[c] + position[c];
  }
}

template <class T>
void embed_backward(std::span<const std::uint8_t> bytes, std::span<const T> dx, std::span<T> d_embedding,
                    std::span<T> d_positions, std::int64_t context, std::int64_t width) {
  for (std::int64_t t = 0; t < std::ssize(bytes); ++t) {
    T *byte = &d_embedding[std::size_t(bytes[std::size_t(t)] * width)],
      *position = &d_positions[std::size_t(t % context * width)];
    for (std::int64_t c = 0; c < width; ++c) {
      byte[c] += dx[std::size_t(t * width + c)];
      position[c] += dx[std::size_t(t * width + c)];
    }
  }
}

template <class T>
void rms_norm(std::span<const T> x, std::span<const T> gain, std::span<T> y, std::span<T> inverse_r,
              std::int64_t width) {
  parallel_rows(std::ssize(x) / width, width, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const T* row = &x[std::size_t(i * width)];
      T squares = 0;
      for (std::int64_t c = 0; c < width; ++c) squares += row[c] * row[c];
      const T inverse = 1 / std::sqrt(squares / T(width) + T(1e-5));
      inverse_r[std::size_t(i)] = inverse;
      for (std::int64_t c = 0; c < width; ++c) y[std::size_t(i * width + c)] = gain[std::size_t(c)] * row[c] * inverse;
    }
  });
}

template <class T>
void rms_norm_backward(std::span<const T> x, std::span<const T> gain, std::span<const T> inverse_r,
                       std::span<const T> dy, std::span<T> dx, std::span<T> d_gain, std::int64_t width) {
  const std::int64_t rows = std::ssize(x) / width;
  parallel_rows(rows, width, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const T *x_row = &x[std::size_t(i * width)], *dy_row = &dy[std::size_t(i * width)];
      const T inverse = inverse_r[std::size_t(i)];
      // With g = gain·dy and y = x/r: dx = (g - x/r · mean(g·x/r)) / r.
      T mean = 0;
      for (std::int64_t c = 0; c < width; ++c) mean += gain[std::size_t(c)] * dy_row[c] * (x_row[c] * inverse);
      mean /= T(width);
      for (std::int64_t c = 0; c < width; ++c) {
        dx[std::size_t(i * width + c)] += (gain[std::size_t(c)] * dy_row[c] - x_row[c] * inverse * mean) * inverse;
      }
    }
  });
  for (std::int64_t i = 0; i < rows; ++i) {
    const T inverse = inverse_r[std::size_t(i)];
    for (std::int64_t c = 0; c < width; ++c) {
      d_gain[std::size_t(c)] += dy[std::size_t(i * width + c)] * (x[std::size_t(i * width + c)] * inverse);
    }
  }
}

template <class T>
void gelu(std::span<const T> x, std::span<T> y) {
  parallel(std::ssize(x), kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const T value = x[std::size_t(i)];
      y[std::size_t(i)] = value * (1 + std::erf(value / std::numbers::sqrt2_v<T>)) / 2;
    }
  });
}

template <class T>
void gelu_backward(std::span<const T> x, std::span<const T> dy, std::span<T> dx) {
  parallel(std::ssize(x), kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const T value = x[std::size_t(i)];
      const T probability = (1 + std::erf(value / std::numbers::sqrt2_v<T>)) / 2;
      const T density = std::exp(-value * value / 2) * std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
      dx[std::size_t(i)] = dy[std::size_t(i)] * (probability + value * density);
    }
  });
}

template <class T>
double cross_entropy(std::span<const T> logits, std::span<const std::uint8_t> targets) {
  const std::int64_t rows = std::ssize(targets);
  std::vector<double> losses(targets.size());
  parallel_rows(rows, kBytes, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto row = logits.subspan(std::size_t(i * kBytes), std::size_t(kBytes));
      const T m = *std::max_element(row.begin(), row.end());
      T l = 0;
      for (const T logit : row) l += std::exp(logit - m);
      losses[std::size_t(i)] = double(m + std::log(l) - row[targets[std::size_t(i)]]);
    }
  });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum / double(rows);
}

template <class T>
void cross_entropy_backward(std::span<const T> logits, std::span<const std::uint8_t> targets, T factor,
                            std::span<T> d_logits) {
  parallel_rows(std::ssize(targets), kBytes, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto row = logits.subspan(std::size_t(i * kBytes), std::size_t(kBytes));
      const auto d_row = d_logits.subspan(std::size_t(i * kBytes), std::size_t(kBytes));
      const T m = *std::max_element(row.begin(), row.end());
      T l = 0;
      for (std::size_t j = 0; j < row.size(); ++j) {
        d_row[j] = std::exp(row[j] - m);
        l += d_row[j];
      }
      for (T& d_logit : d_row) d_logit *= factor / l;
      d_row[targets[std::size_t(i)]] -= factor;
    }
  });
}

#define WORKBOOK_PARTS(T)                                                                                         \
  template void embed(std::span<const std::uint8_t>, std::span<const T>, std::span<const T>, std::span<T>,        \
                      std::int64_t, std::int64_t);                                                                \
  template void embed_backward(std::span<const std::uint8_t>, std::span<const T>, std::span<T>, std::span<T>,     \
                               std::int64_t, std::int64_t);                                                       \
  template void rms_norm(std::span<const T>, std::span<const T>, std::span<T>, std::span<T>, std::int64_t);       \
  template void rms_norm_backward(std::span<const T>, std::span<const T>, std::span<const T>, std::span<const T>, \
                                  std::span<T>, std::span<T>, std::int64_t);                                      \
  template void gelu(std::span<const T>, std::span<T>);                                                           \
  template void gelu_backward(std::span<const T>, std::span<const T>, std::span<T>);                              \
  template double cross_entropy(std::span<const T>, std::span<const std::uint8_t>);                               \
  template void cross_entropy_backward(std::span<const T>, std::span<const std::uint8_t>, T, std::span<T>);
WORKBOOK_PARTS(float)
WORKBOOK_PARTS(double)
#undef WORKBOOK_PARTS

}  // namespace workbook::training
