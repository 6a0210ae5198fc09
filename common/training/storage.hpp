// The format that a training run stores its tensors in. Arithmetic stays in float; what is written to memory is
// rounded, as in Micikevicius et al. 2018, "Mixed Precision Training", figure 1.
#pragma once

#include <span>

namespace workbook::training {

enum class Storage { fp32, fp16, bf16 };

/// Rounds every value to the format: nearest even, subnormals kept, infinite above the largest. The same numbers as
/// common/attention/half.hpp gives there and back. fp32: nothing.
void round_to(Storage storage, std::span<float> values);
/// For the model in double, which stores nothing: std::logic_error unless the format is fp32.
void round_to(Storage storage, std::span<double> values);

/// One value.
float rounded(Storage storage, float value);

}  // namespace workbook::training
