// Text by a model: with and without a cache of K and V.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "common/attention/error.hpp"
#include "common/training/generate.hpp"

using namespace workbook;
using namespace workbook::training;

namespace {

constexpr ModelShape kShape{24, 2, 8, 2, 4};

/// Counts the keys that its calls get.
class Counted : public PlainAttention<float> {
 public:
  using PlainAttention::PlainAttention;
  void forward(const AttentionCall& call) override {
    keys += call.shape.Nk;
    queries += call.shape.Nq;
    PlainAttention::forward(call);
  }
  std::int64_t keys = 0, queries = 0;
};

struct Made {
  Generated generated;
  Counted prefill, decode;
};
Made made(Storage storage, const GenerateRequest& request, std::string* shown = nullptr) {
  std::vector<float> weights = initial_weights(kShape, 3);
  round_to(storage, weights);
  Made all{{}, Counted(storage), Counted(storage)};
  all.generated = generate(kShape, storage, weights, all.prefill, all.decode, request, [&](char byte) {
    if (shown != nullptr) *shown += byte;
  });
  return all;
}

}  // namespace

TEST_CASE("generated text is the same with and without a cache") {
  for (const Storage storage : {Storage::fp32, Storage::fp16, Storage::bf16})
    for (const double temperature : {0.0, 0.8})
      for (const std::string prompt : {"a", "attention"}) {
        GenerateRequest request{prompt, 24 - std::ssize(prompt), temperature, 7, true};
        std::string shown;
        const Made with = made(storage, request, &shown);
        request.cache = false;
        CHECK(made(storage, request).generated.text == with.generated.text);
        CHECK(std::ssize(shown) == request.bytes);
        CHECK(shown == with.generated.text);
      }
}

TEST_CASE("with a cache, each byte is computed once") {
  const std::int64_t n = 5, more = 19, blocks = kShape.blocks;
  const Made with = made(Storage::fp32, {"first", more, 0, 1, true});
  // The prompt in one call, then one query for each byte but the last: it attends to all bytes before it and itself.
  CHECK(with.prefill.queries == blocks * n);
  CHECK(with.decode.queries == blocks * (more - 1));
  std::int64_t keys = 0;
  for (std::int64_t i = 1; i < more; ++i) keys += n + i;
  CHECK(with.decode.keys == blocks * keys);
  const Made without = made(Storage::fp32, {"first", more, 0, 1, false});
  CHECK(without.decode.queries == 0);
  CHECK(without.prefill.queries == with.prefill.queries + with.decode.keys);
}

TEST_CASE("the seed and the temperature choose the text") {
  const auto text = [](double temperature, std::uint64_t seed) {
    return made(Storage::fp32, {"x", 20, temperature, seed, true}).generated.text;
  };
  CHECK(text(1, 1) == text(1, 1));
  CHECK(text(1, 1) != text(1, 2));
  CHECK(text(0, 1) == text(0, 2));
}

TEST_CASE("a prompt and new bytes must fit the context") {
  CHECK_THROWS_AS(made(Storage::fp32, {"", 1, 0, 1, true}), InputError);
  CHECK_THROWS_AS(made(Storage::fp32, {"x", 24, 0, 1, true}), InputError);
  CHECK_THROWS_AS(made(Storage::fp32, {"x", 0, 0, 1, true}), InputError);
  CHECK(made(Storage::fp32, {"x", 23, 0, 1, true}).generated.text.size() == 23);
}
