#include "common/attention/text.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/attention/inputs.hpp"

namespace workbook {
namespace {

/// A (width, width) matrix of normal numbers with variance 1/width, which preserves the norm of its operand.
std::vector<double> projection(std::int64_t width, std::uint64_t seed) {
  const std::vector<float> values = normal_values(std::size_t(width * width), seed);
  std::vector<double> result(values.begin(), values.end());
  for (double& value : result) value /= std::sqrt(double(width));
  return result;
}

/// factor·X W, (Nk, H·d) times (H·d, H·d), as a tensor (1, heads, rows, d): its last `rows` rows and, of each group of
/// H / heads consecutive heads, the first. In double.
Tensor<float> project(const std::vector<double>& X, const std::vector<double>& W, const Shape& shape,
                      std::int64_t heads, std::int64_t rows, double factor) {
  Tensor<float> result({1, heads, rows, shape.d});
  const std::int64_t width = shape.H * shape.d, first_row = shape.Nk - rows;
  std::vector<double> Y(shape.d);
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t first_column = h * (shape.H / heads) * shape.d;
      std::fill(Y.begin(), Y.end(), 0);
      for (std::int64_t k = 0; k < width; ++k) {
        const double x = X[(first_row + i) * width + k];
        for (std::int64_t c = 0; c < shape.d; ++c) Y[c] += x * W[k * width + first_column + c];
      }
      for (std::int64_t c = 0; c < shape.d; ++c) result(0, h, i, c) = float(factor * Y[c]);
    }
  return result;
}

}  // namespace

Problem embed_text(const std::string& text, const Shape& shape, const Mask& mask, float scale, std::uint64_t seed) {
  check(shape, /*any_d=*/true);
  if (shape.B != 1 || shape.Nq > shape.Nk)
    fail_input("B = {}, Nq = {}, Nk = {}: allowed for a text: B = 1 and Nq <= Nk", shape.B, shape.Nq, shape.Nk);
  if (std::int64_t(text.size()) < shape.Nk)
    fail_input("the text has only {} bytes; allowed: at least N = {} bytes (a token is a byte)", text.size(), shape.Nk);
  if (!std::isfinite(scale) || scale < 0)
    fail_input("scale = {}: allowed: positive numbers, or 0 for 1/sqrt(d)", scale);
  const std::int64_t N = shape.Nk, width = shape.H * shape.d;

  // X (N, width): the embedding of each byte, plus sinusoidal positions as in "Attention Is All You Need", section 3.5;
  // then each row divided by its root mean square.
  const std::vector<float> embedding = normal_values(std::size_t(256 * width), seed);
  std::vector<double> X(N * width);
  for (std::int64_t i = 0; i < N; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    double squares = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t even = c - c % 2;  // a sine and a cosine share a frequency
      const double angle = double(i) / std::pow(10000.0, double(even) / double(width));
      double& x = X[i * width + c];
      x = embedding[byte * width + c] + (c % 2 == 0 ? std::sin(angle) : std::cos(angle));
      squares += x * x;
    }
    for (std::int64_t c = 0; c < width; ++c) X[i * width + c] /= std::sqrt(squares / double(width));
  }

  // Makes the scores similar to a trained model's: the scaled scores have a standard deviation of 1 to 3, and a token
  // attends more to similar tokens (same byte, near position). Independent projections would give a standard deviation
  // of 1 and no such preference. Therefore the projection of K contains part of that of Q: K = x·(a·Wq + b·Wk) with a²
  // + b² = 1 keeps K's size, and the scaled score of two alike tokens gains gain·a·√d (3.6 at d = 64); `gain`
  // multiplies all scores.
  constexpr double a = 0.3, b = 0.953939201416946, gain = 1.5;
  const std::vector<double> Wq = projection(width, seed + 1);
  std::vector<double> Wk = projection(width, seed + 2);
  for (std::size_t i = 0; i < Wk.size(); ++i) Wk[i] = a * Wq[i] + b * Wk[i];
  const std::vector<double> Wv = projection(width, seed + 3);

  return {{shape, scale > 0 ? scale : default_scale(shape.d), mask},
          project(X, Wq, shape, shape.H, shape.Nq, gain),
          project(X, Wk, shape, shape.Hkv, N, 1),
          project(X, Wv, shape, shape.Hkv, N, 1)};
}

}  // namespace workbook
