// Chapter 7, master weights: the update in fp32, and the cast to fp16.
//
// Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.1.
// Test it: ./workbook test 7.6
#include "master_weights.hpp"

#include "common/cuda/todo.hpp"
#include "formats.hpp"

namespace ch07 {

void update_weights(std::span<float> master, std::span<std::uint16_t> weights, std::span<const float> gradients,
                    float learning_rate) {
  // TODO(7.6) Every weight: the update in fp32, then the copy in fp16 (about 4 lines).
  // BEGIN 7.6
  for (std::size_t i = 0; i < master.size(); ++i) {
    master[i] -= learning_rate * gradients[i];
    weights[i] = std::uint16_t(encode(master[i], fp16));
  }
  // END 7.6
}

}  // namespace ch07
