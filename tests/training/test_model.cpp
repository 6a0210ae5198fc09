// The whole model's gradients against central differences, and that the future has no influence.
#include "common/attention/error.hpp"
#include "common/training/model.hpp"
#include "tests/training/differences.hpp"

using namespace workbook;
using namespace workbook::training;

namespace {

const ModelShape tiny{5, 2, 3, 2, 2};  // context 5, 2 heads of 3, 2 blocks, MLP twice as wide

std::vector<double> start(const ModelShape& shape) {
  const std::vector<float> weights = initial_weights(shape, 3);
  std::vector<double> result(weights.begin(), weights.end());
  // Different gains, since a gain of 1 everywhere would hide an omitted gain.
  const std::vector<double> noise = normal_doubles(result.size(), 4, 0.1);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] += noise[i];
  return result;
}

const std::vector<std::uint8_t> bytes{1, 2, 3, 1, 2, 200, 1, 7, 7, 255}, targets{2, 3, 1, 2, 9, 1, 7, 7, 255, 0};

}  // namespace

TEST_CASE("the gradient of every weight of the model agrees with differences") {
  PlainAttention<double> attention(Storage::fp32);
  Model<double> model(tiny, Storage::fp32, attention);
  std::vector<double> weights = start(tiny), gradients(weights.size());
  model.forward(weights, bytes, targets);
  const double scale = 1024;
  model.backward(weights, bytes, targets, scale / 10, gradients);
  for (double& gradient : gradients) gradient /= scale;

  for (const Parameter& parameter : parameters_of(tiny)) {
    // Only the rows of the embedding that occur, and one that does not, because each difference runs the whole model.
    std::vector<double> part, part_gradient;
    std::vector<std::size_t> places;
    for (std::int64_t i = 0; i < parameter.size; ++i) {
      const std::int64_t row = i / parameter.columns;
      if (parameter.name == "embedding" && row != 1 && row != 7 && row != 255 && row != 100) continue;
      places.push_back(std::size_t(parameter.offset + i));
      part.push_back(weights[places.back()]);
      part_gradient.push_back(gradients[places.back()]);
    }
    expect_gradient(parameter.name, part, part_gradient, [&] {
      std::vector<double> changed = weights;
      for (std::size_t i = 0; i < places.size(); ++i) changed[places[i]] = part[i];
      return model.forward(changed, bytes, targets);
    });
  }
}

TEST_CASE("gradients are accumulated") {
  PlainAttention<double> attention(Storage::fp32);
  Model<double> model(tiny, Storage::fp32, attention);
  const std::vector<double> weights = start(tiny);
  std::vector<double> once(weights.size()), twice(weights.size());
  model.forward(weights, bytes, targets);
  model.backward(weights, bytes, targets, 0.1, once);
  model.backward(weights, bytes, targets, 0.1, twice);
  model.backward(weights, bytes, targets, 0.1, twice);
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(std::abs(twice[i] - 2 * once[i]) <= 1e-14);
}

TEST_CASE("a byte has no influence on the losses before it") {
  PlainAttention<double> attention(Storage::fp32);
  const ModelShape one_sequence{5, 2, 3, 2, 2};
  Model<double> model(one_sequence, Storage::fp32, attention);
  const std::vector<double> weights = start(one_sequence);
  // The sum of the losses up to byte n is a difference of means over targets that differ only there.
  const auto loss_with_target = [&](const std::vector<std::uint8_t>& input, std::size_t at, std::uint8_t target) {
    std::vector<std::uint8_t> changed(targets.begin(), targets.begin() + 5);
    changed[at] = target;
    return model.forward(weights, input, changed);
  };
  const auto logit_difference = [&](const std::vector<std::uint8_t>& input, std::size_t at) {
    return loss_with_target(input, at, 10) - loss_with_target(input, at, 20);
  };
  const std::vector<std::uint8_t> before(bytes.begin(), bytes.begin() + 5);
  std::vector<std::uint8_t> after = before;
  after[3] = 77;
  for (std::size_t n = 0; n < 3; ++n) CHECK(std::abs(logit_difference(before, n) - logit_difference(after, n)) < 1e-12);
  for (std::size_t n = 3; n < 5; ++n) CHECK(std::abs(logit_difference(before, n) - logit_difference(after, n)) > 1e-6);
}

TEST_CASE("a model refuses sizes and bytes that do not fit") {
  CHECK_THROWS_AS(parameters_of({0, 2, 32, 2, 4}), InputError);
  CHECK_THROWS_AS(parameters_of({128, 2, 32, 0, 4}), InputError);
  PlainAttention<double> attention(Storage::fp32);
  Model<double> model(tiny, Storage::fp32, attention);
  const std::vector<double> weights = start(tiny);
  const std::vector<std::uint8_t> seven(7), ten(10);
  CHECK_THROWS_AS(model.forward(weights, seven, seven), InputError);
  CHECK_THROWS_AS(model.forward(weights, ten, seven), InputError);
}
