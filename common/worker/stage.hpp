// One attention problem through a stage: the operation "forward", which every chapter that ends in one has.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/attention/problem.hpp"
#include "common/worker/worker.hpp"

namespace workbook::worker {

/// What an attention stage gave.
struct AttentionResult {
  Tensor<float> O;    ///< (B, H, Nq, d)
  Tensor<float> lse;  ///< (B, H, Nq, 1)
  Reply reply;
};

/// Sends numbers B, H, Hkv, Nq, Nk, d, scale, causal and `numbers` (Br, Bc, …), arrays Q, K, V -> O, lse, as floats or
/// as the element's codes. `send` calls the worker.
AttentionResult forward(const Problem& problem, const std::string& element,
                        const std::map<std::string, double>& numbers, const std::function<Reply(const Call&)>& send);

/// An output of a reply, as floats.
std::vector<float> floats(const Reply& reply, const std::string& name, const std::string& element);

}  // namespace workbook::worker
