// Text from a trained model, byte by byte, with or without a cache of K and V.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "common/training/model.hpp"

namespace workbook::training {

struct GenerateRequest {
  std::string prompt;
  std::int64_t bytes = 0;  ///< to generate; with the prompt, at most the model's context
  double temperature = 0;  ///< 0: always the likeliest byte
  std::uint64_t seed = 1;
  bool cache = true;  ///< false: K and V of all bytes are computed again for each new one
};

struct Generated {
  std::string text;                        ///< without the prompt
  double prompt_seconds = 0, seconds = 0;  ///< for the first byte, including the whole prompt; for all others
};

/// Attention for one sequence whose K and V are kept: each call appends its K and V to the cache of its block, and
/// attends to all that the cache has. Calls come block by block. One query: `decode`, several: `prefill`.
class CachedAttention : public AttentionCore<float> {
 public:
  CachedAttention(std::int64_t blocks, AttentionCore<float>& prefill, AttentionCore<float>& decode);
  void forward(const AttentionCall& call) override;
  void backward(const GradientCall& call) override;  ///< std::logic_error

 private:
  struct Cache {
    std::vector<float> K, V;  ///< (H, keys, d)
    std::int64_t keys = 0;
  };
  AttentionCore<float>&prefill_, &decode_;
  std::vector<Cache> caches_;
  std::size_t block_ = 0;  ///< of the next call
};

/// Generates text. weights: in the storage format. `show` gets each new byte. InputError if the prompt is empty, or the
/// prompt and the new bytes do not fit the context.
Generated generate(const ModelShape& shape, Storage storage, std::span<const float> weights,
                   AttentionCore<float>& prefill, AttentionCore<float>& decode, const GenerateRequest& request,
                   const std::function<void(char)>& show);

}  // namespace workbook::training
