// A small byte-level language model with a hand-written backward pass: embedding and positions, blocks of attention and
// MLP on a residual stream, each after a normalisation, and an output tied to the embedding.
//
//   x = E[byte] + positions                          (tokens, width)
//   x += attention(norm(x)·Wqkv)·Wo                  in every block
//   x += gelu(norm(x)·W1)·W2
//   logits = norm(x)·Eᵀ                              (tokens, 256)
//   loss = mean of -log softmax(logits)[next byte]
//
// Source: Vaswani et al. 2017; Radford et al. 2019 (normalisation before each part, tied output). No biases.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/training/attention_core.hpp"

namespace workbook::training {

/// The sizes of a model.
struct ModelShape {
  std::int64_t context = 128;  ///< N: tokens per sequence
  std::int64_t heads = 2, head_dim = 32;
  std::int64_t blocks = 2;
  std::int64_t expansion = 4;  ///< width of the MLP over that of the residual stream

  std::int64_t width() const { return heads * head_dim; }
  bool operator==(const ModelShape&) const = default;
};

/// One weight matrix or gain within the flat array of all weights.
struct Parameter {
  std::string name;            ///< "block 0: Wqkv"
  std::int64_t offset, size;   ///< in elements
  std::int64_t rows, columns;  ///< gains: 1 row
  double initial;              ///< initial standard deviation; 0 for gains, which start at 1
};

/// The location of each parameter. InputError naming a size that is not positive.
std::vector<Parameter> parameters_of(const ModelShape& shape);
/// The number of all weights.
std::int64_t weight_count(const ModelShape& shape);

/// The initial weights: normal numbers with each parameter's standard deviation, gains 1. Identical on every platform.
std::vector<float> initial_weights(const ModelShape& shape, std::uint64_t seed);

/// One model's computation. It stores no weights, only the forward pass's values that the backward pass needs.
template <class T>
class Model {
 public:
  /// Tensors written to memory (activations and their gradients) are rounded to `storage`. The attention core is not
  /// owned.
  Model(const ModelShape& shape, Storage storage, AttentionCore<T>& attention);

  /// The mean loss over all tokens, in nats. weights: all weights, already in the storage format. bytes and targets
  /// (sequences · context): a target is the next byte.
  double forward(std::span<const T> weights, std::span<const std::uint8_t> bytes,
                 std::span<const std::uint8_t> targets);

  /// The logits (bytes, 256) of one sequence, or of a part of one whose first byte has the position `first`. The
  /// attention core gets Q, K and V of these bytes only.
  std::span<const T> logits(std::span<const T> weights, std::span<const std::uint8_t> bytes, std::int64_t first);

  /// After forward() with the same arguments: adds the gradients of factor · (sum of the losses of all tokens) to
  /// `gradients`, which are in T. With factor = scale / tokens, this is scale times the gradient of the mean.
  void backward(std::span<const T> weights, std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> targets,
                T factor, std::span<T> gradients);

  /// dO of the first block's attention in the last backward(), (sequences, heads, context, head_dim).
  std::span<const T> first_dO() const { return dO_; }

 private:
  /// The values that one block stores for its backward pass.
  struct Block {
    std::vector<T> x, inverse_r1, a, Q, K, V, O, lse, merged;  // attention; merged is O as (tokens, width)
    std::vector<T> y, inverse_r2, b, h, g;                     // MLP
  };
  void resize(std::int64_t tokens);
  void compute_logits(std::span<const T> weights, std::span<const std::uint8_t> bytes, std::int64_t sequences,
                      std::int64_t first);
  std::span<const T> weight(std::span<const T> weights, std::size_t block, int which) const;

  ModelShape shape_;
  Storage storage_;
  AttentionCore<T>& attention_;
  std::vector<Parameter> parameters_;
  std::int64_t sequences_ = 0, tokens_ = 0;
  std::vector<Block> blocks_;
  std::vector<T> x_, inverse_r_, f_, logits_;
  // Scratch of both passes.
  std::vector<T> wide_, dx_, d_, dqkv_, dQ_, dK_, dV_, dO_;
};

}  // namespace workbook::training
