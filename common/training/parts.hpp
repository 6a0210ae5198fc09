// The parts of the language model apart from attention and matmuls, each as a hand-written forward and backward
// function. Arrays are row-major; the name of a gradient is the tensor's name with the prefix d. All arithmetic is in T
// without rounding to a storage format, which the model does when it stores.
#pragma once

#include <cstdint>
#include <span>

namespace workbook::training {

inline constexpr std::int64_t kBytes = 256;  ///< the vocabulary

/// x (tokens, width) = rows of `embedding` (256, width) by byte, plus rows of `positions` (context, width) by the
/// position in the sequence.
template <class T>
void embed(std::span<const std::uint8_t> bytes, std::span<const T> embedding, std::span<const T> positions,
           std::span<T> x, std::int64_t context, std::int64_t width);
/// Adds to d_embedding (256, width) and d_positions (context, width).
template <class T>
void embed_backward(std::span<const std::uint8_t> bytes, std::span<const T> dx, std::span<T> d_embedding,
                    std::span<T> d_positions, std::int64_t context, std::int64_t width);

/// y (rows, width) = gain (width) · x / r, with r = sqrt(mean of x² over the row + 1e-5); inverse_r (rows) = 1/r is
/// kept for the backward pass. Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4.
template <class T>
void rms_norm(std::span<const T> x, std::span<const T> gain, std::span<T> y, std::span<T> inverse_r,
              std::int64_t width);
/// Accumulates into dx and d_gain, because the input also reaches the output through the residual stream.
template <class T>
void rms_norm_backward(std::span<const T> x, std::span<const T> gain, std::span<const T> inverse_r,
                       std::span<const T> dy, std::span<T> dx, std::span<T> d_gain, std::int64_t width);

/// y = x·Φ(x), with Φ the normal distribution. Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".
template <class T>
void gelu(std::span<const T> x, std::span<T> y);
/// dx = dy·(Φ(x) + x·φ(x)). dx may be dy.
template <class T>
void gelu_backward(std::span<const T> x, std::span<const T> dy, std::span<T> dx);

/// The mean over the rows of -log softmax(logits)[target], in nats. logits (rows, 256).
template <class T>
double cross_entropy(std::span<const T> logits, std::span<const std::uint8_t> targets);
/// d_logits (rows, 256) = factor·(softmax(logits) - 1 at the target). With factor = scale / tokens, this is the
/// gradient of scale times the mean over all tokens.
template <class T>
void cross_entropy_backward(std::span<const T> logits, std::span<const std::uint8_t> targets, T factor,
                            std::span<T> d_logits);

}  // namespace workbook::training
