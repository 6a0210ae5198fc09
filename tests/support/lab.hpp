// A chapter's lab: a kernel that is wrong in a way that only tools show, as the operation "lab", a forward pass in
// fp16.
#pragma once

#include "tests/support/kernel_stage.hpp"

namespace workbook::test {

/// Whether what the simulator finds ends the call, as it does in every other test, or is left to whoever looks at the
/// trace.
enum class Finds { end_the_call, are_left };

/// Fails unless the lab's O and LSE are right, for d = 64. `numbers`: lane_seed.
AttentionResult expect_lab(const Input& given, const std::map<std::string, double>& numbers = {},
                           Finds finds = Finds::end_the_call);

}  // namespace workbook::test
