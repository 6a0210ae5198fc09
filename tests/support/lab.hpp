// A forward pass in fp16 as an operation beside a chapter's stage; and a chapter's lab, a kernel that is wrong in a way
// that only tools show, as the operation "lab".
#pragma once

#include "tests/support/forward_stage.hpp"

namespace workbook::test {

/// Whether what the simulator finds ends the call, as it does in every other test, or is left to whoever looks at the
/// trace.
enum class Finds { end_the_call, are_left };

/// Fails unless O and the LSE of this operation are right, for d = 64.
AttentionResult expect_forward(const std::string& operation, const Input& given, const Numbers& numbers = {},
                               Finds finds = Finds::end_the_call);

/// Fails unless the lab's O and LSE are right, for d = 64. `numbers`: lane_seed.
AttentionResult expect_lab(const Input& given, const std::map<std::string, double>& numbers = {},
                           Finds finds = Finds::end_the_call);

}  // namespace workbook::test
