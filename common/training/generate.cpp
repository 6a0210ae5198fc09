#include "common/training/generate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "common/attention/error.hpp"
#include "common/attention/random.hpp"
#include "common/training/parts.hpp"

namespace workbook::training {
namespace {

/// rows (H, keys, d) with `more` (H, new keys, d) after each head's.
void append(std::vector<float>& rows, std::span<const float> more, std::int64_t H) {
  const auto before = std::ptrdiff_t(rows.size()) / H, added = std::ssize(more) / H;
  std::vector<float> all;
  all.reserve(rows.size() + more.size());
  for (std::int64_t h = 0; h < H; ++h) {
    all.insert(all.end(), rows.begin() + h * before, rows.begin() + (h + 1) * before);
    all.insert(all.end(), more.begin() + h * added, more.begin() + (h + 1) * added);
  }
  rows = std::move(all);
}

/// A byte drawn from softmax(logits / temperature).
std::uint8_t sample(std::span<const float> logits, double temperature, Random& random) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return std::uint8_t(likeliest - logits.begin());
  std::vector<double> sums;
  double sum = 0;
  for (const float logit : logits) sums.push_back(sum += std::exp((double(logit) - double(*likeliest)) / temperature));
  const auto drawn = std::upper_bound(sums.begin(), sums.end() - 1, random.uniform() * sum);
  return std::uint8_t(drawn - sums.begin());
}

}  // namespace

CachedAttention::CachedAttention(std::int64_t blocks, AttentionCore<float>& prefill, AttentionCore<float>& decode)
    : prefill_(prefill), decode_(decode), caches_(std::size_t(blocks)) {}

void CachedAttention::forward(const AttentionCall& call) {
  Cache& cache = caches_[block_];
  block_ = (block_ + 1) % caches_.size();
  append(cache.K, call.K, call.shape.Hkv);
  append(cache.V, call.V, call.shape.Hkv);
  cache.keys += call.shape.Nk;
  AttentionCall with_cache = call;
  with_cache.shape.Nk = cache.keys;  // the causal mask is aligned with the last key
  with_cache.K = cache.K, with_cache.V = cache.V;
  (call.shape.Nq == 1 ? decode_ : prefill_).forward(with_cache);
}

void CachedAttention::backward(const GradientCall&) {
  throw std::logic_error("a cache has no backward pass");
}

Generated generate(const ModelShape& shape, Storage storage, std::span<const float> weights,
                   AttentionCore<float>& prefill, AttentionCore<float>& decode, const GenerateRequest& request,
                   const std::function<void(char)>& show) {
  if (request.prompt.empty()) fail_input("the prompt is empty; allowed: at least one byte");
  if (request.bytes < 1 || request.bytes > shape.context - std::ssize(request.prompt))
    fail_input("a prompt of {} bytes and {} new ones; allowed: together at most the model's context, {}",
               request.prompt.size(), request.bytes, shape.context);
  std::optional<CachedAttention> cache;
  if (request.cache) cache.emplace(shape.blocks, prefill, decode);
  Model<float> model(shape, storage, cache ? static_cast<AttentionCore<float>&>(*cache) : prefill);
  std::vector<std::uint8_t> bytes(request.prompt.begin(), request.prompt.end());
  std::size_t done = 0;  // bytes whose K and V are in the cache
  Random random(request.seed);
  Generated generated;
  for (std::int64_t i = 0; i < request.bytes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const std::span<const std::uint8_t> now = std::span(bytes).subspan(done);
    const std::span<const float> logits = model.logits(weights, now, std::int64_t(done));
    if (cache) done = bytes.size();
    bytes.push_back(sample(logits.last(std::size_t(kBytes)), request.temperature, random));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    (i == 0 ? generated.prompt_seconds : generated.seconds) += seconds.count();
    generated.text += char(bytes.back());
    show(char(bytes.back()));
  }
  return generated;
}

}  // namespace workbook::training
