#include "common/training/storage.hpp"

#include <stdexcept>

#include "common/attention/half.hpp"

namespace workbook::training {

void round_to(Storage storage, std::span<float> values) {
  if (storage == Storage::fp16)
    for (float& value : values) value = rounded_to_half(value);
  else if (storage == Storage::bf16)
    for (float& value : values) value = rounded_to_bfloat16(value);
}

void round_to(Storage storage, std::span<double>) {
  if (storage != Storage::fp32) throw std::logic_error("a model in double does not support 16-bit storage");
}

float rounded(Storage storage, float value) {
  round_to(storage, {&value, 1});
  return value;
}

}  // namespace workbook::training
