#include "common/training/model.hpp"

#include <fmt/format.h>

#include <cmath>

#include "common/attention/problem.hpp"
#include "common/attention/random.hpp"
#include "common/training/parts.hpp"
#include "common/training/product.hpp"

namespace workbook::training {
namespace {

// The order of parameters_of(): two, then kInBlock per block, then the last gain.
enum Which { kGain1, kWqkv, kWo, kGain2, kW1, kW2, kInBlock };
constexpr std::size_t kEmbedding = 0, kPositions = 1, kFirstBlock = 2;

/// The columns [first, first + H·d) of `wide` (tokens, wide_width) as (B, H, N, d), or back.
template <class T>
void split_heads(const std::vector<T>& wide, std::int64_t wide_width, std::int64_t first, std::vector<T>& split,
                 const Shape& s) {
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t n = 0; n < s.Nq; ++n)
        for (std::int64_t c = 0; c < s.d; ++c)
          split[std::size_t(((b * s.H + h) * s.Nq + n) * s.d + c)] =
              wide[std::size_t((b * s.Nq + n) * wide_width + first + h * s.d + c)];
}
template <class T>
void merge_heads(const std::vector<T>& split, std::vector<T>& wide, std::int64_t wide_width, std::int64_t first,
                 const Shape& s) {
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t n = 0; n < s.Nq; ++n)
        for (std::int64_t c = 0; c < s.d; ++c)
          wide[std::size_t((b * s.Nq + n) * wide_width + first + h * s.d + c)] =
              split[std::size_t(((b * s.H + h) * s.Nq + n) * s.d + c)];
}

template <class T>
void add(std::vector<T>& to, const std::vector<T>& what) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

}  // namespace

std::vector<Parameter> parameters_of(const ModelShape& shape) {
  const auto positive = [](const char* name, std::int64_t value) {
    if (value <= 0) fail_input("{} = {}: allowed: whole numbers from 1 on", name, value);
  };
  positive("context", shape.context);
  positive("heads", shape.heads);
  positive("head_dim", shape.head_dim);
  positive("blocks", shape.blocks);
  positive("expansion", shape.expansion);
  checked_size("the weights", {shape.width(), shape.width(), shape.expansion, shape.blocks});

  std::vector<Parameter> result;
  const auto put = [&](const std::string& name, std::int64_t rows, std::int64_t columns, double initial) {
    const std::int64_t offset = result.empty() ? 0 : result.back().offset + result.back().size;
    result.push_back({name, offset, rows * columns, rows, columns, initial});
  };
  const std::int64_t width = shape.width(), hidden = shape.expansion * width;
  // A matrix with variance 1/rows preserves the norm of its operand. Matrices that write to the residual stream are
  // scaled down by the number of parts that add to it (Radford et al. 2019, section 2.3).
  const double residual = 1 / std::sqrt(2.0 * double(shape.blocks));
  put("embedding", kBytes, width, 1 / std::sqrt(double(width)));
  put("positions", shape.context, width, 1 / std::sqrt(double(width)));
  for (std::int64_t i = 0; i < shape.blocks; ++i) {
    const std::string block = fmt::format("block {}: ", i);
    put(block + "gain 1", 1, width, 0);
    put(block + "Wqkv", width, 3 * width, 1 / std::sqrt(double(width)));
    put(block + "Wo", width, width, residual / std::sqrt(double(width)));
    put(block + "gain 2", 1, width, 0);
    put(block + "W1", width, hidden, 1 / std::sqrt(double(width)));
    put(block + "W2", hidden, width, residual / std::sqrt(double(hidden)));
  }
  put("last gain", 1, width, 0);
  return result;
}

std::int64_t weight_count(const ModelShape& shape) {
  const Parameter last = parameters_of(shape).back();
  return last.offset + last.size;
}

std::vector<float> initial_weights(const ModelShape& shape, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> weights;
  for (const Parameter& parameter : parameters_of(shape)) {
    for (std::int64_t i = 0; i < parameter.size; ++i) {
      weights.push_back(parameter.initial == 0 ? 1.0f : float(parameter.initial * random.normal()));
    }
  }
  return weights;
}

template <class T>
Model<T>::Model(const ModelShape& shape, Storage storage, AttentionCore<T>& attention)
    : shape_(shape),
      storage_(storage),
      attention_(attention),
      parameters_(parameters_of(shape)),
      blocks_(std::size_t(shape.blocks)) {}

template <class T>
void Model<T>::resize(std::int64_t count) {
  if (count == tokens_) return;
  tokens_ = count;
  const auto tokens = std::size_t(count), width = std::size_t(shape_.width()),
             hidden = width * std::size_t(shape_.expansion);
  for (Block& block : blocks_) {
    for (auto* tensor : {&block.x, &block.a, &block.Q, &block.K, &block.V, &block.O, &block.merged, &block.y, &block.b})
      tensor->resize(tokens * width);
    for (auto* tensor : {&block.h, &block.g}) tensor->resize(tokens * hidden);
    for (auto* tensor : {&block.inverse_r1, &block.inverse_r2}) tensor->resize(tokens);
    block.lse.resize(tokens * std::size_t(shape_.heads));
  }
  for (auto* tensor : {&x_, &f_, &dx_, &d_, &dQ_, &dK_, &dV_, &dO_}) tensor->resize(tokens * width);
  inverse_r_.resize(tokens);
  logits_.resize(tokens * std::size_t(kBytes));
  wide_.resize(tokens * std::max({hidden, 3 * width, std::size_t(kBytes)}));
  dqkv_.resize(tokens * 3 * width);
}

template <class T>
std::span<const T> Model<T>::weight(std::span<const T> weights, std::size_t block, int which) const {
  const Parameter& parameter = parameters_[kFirstBlock + block * kInBlock + std::size_t(which)];
  return weights.subspan(std::size_t(parameter.offset), std::size_t(parameter.size));
}

template <class T>
double Model<T>::forward(std::span<const T> weights, std::span<const std::uint8_t> bytes,
                         std::span<const std::uint8_t> targets) {
  if (bytes.empty() || std::ssize(bytes) % shape_.context != 0 || bytes.size() != targets.size())
    fail_input("{} bytes and {} targets; allowed: equal numbers, multiples of the sequence length {}", bytes.size(),
               targets.size(), shape_.context);
  compute_logits(weights, bytes, std::ssize(bytes) / shape_.context, 0);
  return cross_entropy<T>(logits_, targets);
}

template <class T>
std::span<const T> Model<T>::logits(std::span<const T> weights, std::span<const std::uint8_t> bytes,
                                    std::int64_t first) {
  if (bytes.empty() || first < 0 || first + std::ssize(bytes) > shape_.context)
    fail_input("{} bytes from position {} on; allowed: at least one byte, positions from 0 to {}", bytes.size(), first,
               shape_.context - 1);
  compute_logits(weights, bytes, 1, first);
  return logits_;
}

template <class T>
void Model<T>::compute_logits(std::span<const T> weights, std::span<const std::uint8_t> bytes, std::int64_t sequences,
                              std::int64_t first) {
  const std::int64_t tokens = std::ssize(bytes), length = tokens / sequences;
  const std::int64_t width = shape_.width(), hidden = shape_.expansion * width;
  sequences_ = sequences;
  resize(tokens);
  const Shape attention{sequences, shape_.heads, shape_.heads, length, length, shape_.head_dim};
  const float scale = default_scale(shape_.head_dim);
  const auto part = [&](std::size_t i) {
    return weights.subspan(std::size_t(parameters_[i].offset), std::size_t(parameters_[i].size));
  };
  const auto store = [&](std::vector<T>& tensor) { round_to(storage_, std::span<T>(tensor)); };
  const auto view = [&](std::span<const T> tensor, std::int64_t columns) {
    return matrix(tensor.data(), std::ssize(tensor) / columns, columns);
  };

  const auto positions = part(kPositions).subspan(std::size_t(first * width), std::size_t(length * width));
  embed<T>(bytes, part(kEmbedding), positions, x_, length, width);
  store(x_);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    // x += attention(norm(x)·Wqkv)·Wo
    block.x = x_;
    rms_norm<T>(block.x, weight(weights, i, kGain1), block.a, block.inverse_r1, width);
    store(block.a);
    dqkv_.resize(std::size_t(tokens * 3 * width));
    multiply(dqkv_.data(), view(block.a, width), view(weight(weights, i, kWqkv), 3 * width));
    store(dqkv_);
    split_heads(dqkv_, 3 * width, 0, block.Q, attention);
    split_heads(dqkv_, 3 * width, width, block.K, attention);
    split_heads(dqkv_, 3 * width, 2 * width, block.V, attention);
    attention_.forward({{attention, scale, Mask::causal}, block.Q, block.K, block.V, block.O, block.lse});
    merge_heads(block.O, block.merged, width, 0, attention);
    multiply(d_.data(), view(block.merged, width), view(weight(weights, i, kWo), width));
    store(d_);
    add(x_, d_);
    store(x_);
    // x += gelu(norm(x)·W1)·W2
    block.y = x_;
    rms_norm<T>(block.y, weight(weights, i, kGain2), block.b, block.inverse_r2, width);
    store(block.b);
    multiply(block.h.data(), view(block.b, width), view(weight(weights, i, kW1), hidden));
    store(block.h);
    gelu<T>(block.h, block.g);
    store(block.g);
    multiply(d_.data(), view(block.g, hidden), view(weight(weights, i, kW2), width));
    store(d_);
    add(x_, d_);
    store(x_);
  }
  rms_norm<T>(x_, part(parameters_.size() - 1), f_, inverse_r_, width);
  store(f_);
  multiply(logits_.data(), view(f_, width), view(part(kEmbedding), width).transposed());
  store(logits_);
}

template <class T>
void Model<T>::backward(std::span<const T> weights, std::span<const std::uint8_t> bytes,
                        std::span<const std::uint8_t> targets, T factor, std::span<T> gradients) {
  const std::int64_t width = shape_.width(), hidden = shape_.expansion * width;
  const Shape attention{sequences_, shape_.heads, shape_.heads, shape_.context, shape_.context, shape_.head_dim};
  const float scale = default_scale(shape_.head_dim);
  const auto part = [&](auto all, std::size_t i) {
    return all.subspan(std::size_t(parameters_[i].offset), std::size_t(parameters_[i].size));
  };
  const auto gradient = [&](std::size_t block, int which) {
    return part(gradients, kFirstBlock + block * kInBlock + std::size_t(which));
  };
  const auto store = [&](std::span<T> tensor) { round_to(storage_, tensor); };
  const auto view = [&](std::span<const T> tensor, std::int64_t columns) {
    return matrix(tensor.data(), std::ssize(tensor) / columns, columns);
  };
  const std::size_t tokens = bytes.size();
  const auto wide = [&](std::int64_t columns) { return std::span<T>(wide_).first(tokens * std::size_t(columns)); };
  /// y = x·W: dW += xᵀ·dy, and dx = dy·Wᵀ.
  const auto multiply_backward = [&](std::span<const T> x, std::span<const T> W, std::span<const T> dy, std::span<T> dx,
                                     std::span<T> dW, std::int64_t inner, std::int64_t columns) {
    multiply(dW.data(), view(x, inner).transposed(), view(dy, columns), Into::add);
    multiply(dx.data(), view(dy, columns), view(W, columns).transposed());
    store(dx);
  };

  const auto d_logits = wide(kBytes);
  cross_entropy_backward<T>(logits_, targets, factor, d_logits);
  store(d_logits);
  // logits = f·Eᵀ: dE += d_logitsᵀ·f, df = d_logits·E
  multiply(part(gradients, kEmbedding).data(), view(d_logits, kBytes).transposed(), view(f_, width), Into::add);
  multiply(d_.data(), view(d_logits, kBytes), view(part(weights, kEmbedding), width));
  store(d_);
  std::fill(dx_.begin(), dx_.end(), T(0));
  rms_norm_backward<T>(x_, part(weights, parameters_.size() - 1), inverse_r_, d_, dx_,
                       part(gradients, parameters_.size() - 1), width);
  store(dx_);

  for (std::size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    // x += gelu(norm(x)·W1)·W2: dx passes through the residual connection and through the MLP.
    const auto dh = wide(hidden);
    multiply_backward(block.g, weight(weights, i, kW2), dx_, dh, gradient(i, kW2), hidden, width);
    gelu_backward<T>(block.h, dh, dh);
    store(dh);
    multiply_backward(block.b, weight(weights, i, kW1), dh, d_, gradient(i, kW1), width, hidden);
    rms_norm_backward<T>(block.y, weight(weights, i, kGain2), block.inverse_r2, d_, dx_, gradient(i, kGain2), width);
    store(dx_);
    // x += attention(norm(x)·Wqkv)·Wo
    multiply_backward(block.merged, weight(weights, i, kWo), dx_, d_, gradient(i, kWo), width, width);
    split_heads(d_, width, 0, dO_, attention);
    attention_.backward(
        {{attention, scale, Mask::causal}, block.Q, block.K, block.V, block.O, dO_, block.lse, dQ_, dK_, dV_});
    merge_heads(dQ_, dqkv_, 3 * width, 0, attention);
    merge_heads(dK_, dqkv_, 3 * width, width, attention);
    merge_heads(dV_, dqkv_, 3 * width, 2 * width, attention);
    multiply_backward(block.a, weight(weights, i, kWqkv), dqkv_, d_, gradient(i, kWqkv), width, 3 * width);
    rms_norm_backward<T>(block.x, weight(weights, i, kGain1), block.inverse_r1, d_, dx_, gradient(i, kGain1), width);
    store(dx_);
  }
  embed_backward<T>(bytes, dx_, part(gradients, kEmbedding), part(gradients, kPositions), shape_.context, width);
}

template class Model<float>;
template class Model<double>;

}  // namespace workbook::training
