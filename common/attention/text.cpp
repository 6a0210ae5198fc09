#include "common/attention/text.hpp"

#include <cmath>
#include <vector>

#include "common/attention/inputs.hpp"

namespace workbook {
namespace {

/// Y (rows, columns) = X (rows, inner) · W (inner, columns), in double.
std::vector<double> multiply(const std::vector<double>& X, const std::vector<double>& W, std::int64_t rows,
                             std::int64_t inner, std::int64_t columns) {
  std::vector<double> Y(rows * columns);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < inner; ++k) {
      const double x = X[i * inner + k];
      for (std::int64_t c = 0; c < columns; ++c) Y[i * columns + c] += x * W[k * columns + c];
    }
  return Y;
}

/// A (width, width) matrix of normal numbers with variance 1/width: it keeps the size of what it multiplies.
std::vector<double> projection(std::int64_t width, std::uint64_t seed) {
  const std::vector<float> values = normal_values(std::size_t(width * width), seed);
  std::vector<double> result(values.begin(), values.end());
  for (double& value : result) value /= std::sqrt(double(width));
  return result;
}

/// (N, width) to the tensor (1, H, N, d): head h takes columns [h·d, (h+1)·d).
Tensor<float> split_heads(const std::vector<double>& X, const Shape& shape, double factor) {
  Tensor<float> result({1, shape.H, shape.Nq, shape.d});
  for (std::int64_t h = 0; h < shape.H; ++h)
    for (std::int64_t i = 0; i < shape.Nq; ++i)
      for (std::int64_t c = 0; c < shape.d; ++c)
        result(0, h, i, c) = float(factor * X[(i * shape.H + h) * shape.d + c]);
  return result;
}

}  // namespace

Problem embed_text(const std::string& text, const Shape& shape, const Mask& mask, float scale, std::uint64_t seed) {
  check(shape, /*any_d=*/true);
  if (shape.B != 1 || shape.Nq != shape.Nk || shape.H != shape.Hkv)
    fail_input("a text gives B = 1, Nq = Nk and Hkv = H; asked for were B = {}, Nq = {}, Nk = {}, H = {}, Hkv = {}",
               shape.B, shape.Nq, shape.Nk, shape.H, shape.Hkv);
  if (std::int64_t(text.size()) < shape.Nq)
    fail_input("the text has {} bytes; N = {} needs as many (a token is a byte)", text.size(), shape.Nq);
  if (!std::isfinite(scale) || scale < 0)
    fail_input("scale = {}: allowed are positive numbers, or 0 for 1/sqrt(d)", scale);
  const std::int64_t N = shape.Nq, width = shape.H * shape.d;

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

  // Scores as a trained model's: the scaled scores have a standard deviation of 1 to 3, and a token looks more at
  // tokens like it (same byte, near position). Independent projections alone give a standard deviation of 1 and no
  // such preference. So the projection of K is partly that of Q: K = x·(a·Wq + b·Wk) with a² + b² = 1 keeps K's size,
  // and the scaled score of two alike tokens gains gain·a·√d (3.6 at d = 64); `gain` multiplies all scores.
  constexpr double a = 0.3, b = 0.953939201416946, gain = 1.5;
  const std::vector<double> Wq = projection(width, seed + 1);
  std::vector<double> Wk = projection(width, seed + 2);
  for (std::size_t i = 0; i < Wk.size(); ++i) Wk[i] = a * Wq[i] + b * Wk[i];
  const std::vector<double> Wv = projection(width, seed + 3);

  return {{shape, scale > 0 ? scale : default_scale(shape.d), mask},
          split_heads(multiply(X, Wq, N, width, width), shape, gain),
          split_heads(multiply(X, Wk, N, width, width), shape, 1),
          split_heads(multiply(X, Wv, N, width, width), shape, 1)};
}

}  // namespace workbook
