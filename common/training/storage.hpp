// The format in which a training run stores its tensors. Arithmetic stays in float; values are rounded when they are
// written to memory, as in Micikevicius et al. 2017, "Mixed Precision Training", figure 1.
#pragma once

#include <span>

namespace workbook::training {

enum class Storage { fp32, fp16, bf16 };

/// Rounds every value to the format: to nearest even, with subnormals, and to infinity above the largest number, as in
/// common/attention/half.hpp. No effect for fp32.
void round_to(Storage storage, std::span<float> values);
/// For a model in double, which does not round: std::logic_error unless the format is fp32.
void round_to(Storage storage, std::span<double> values);

/// One value.
float rounded(Storage storage, float value);

}  // namespace workbook::training
