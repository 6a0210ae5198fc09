// Calls a stage with one attention problem: the operation "forward" of a forward stage, or "backward" of a chapter with
// pass = "backward".
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/attention/element.hpp"
#include "common/attention/oracle.hpp"
#include "common/worker/worker.hpp"

namespace workbook::worker {

/// The result of a forward stage.
struct AttentionResult {
  Tensor<float> O;    ///< (B, H, Nq, d)
  Tensor<float> lse;  ///< (B, H, Nq, 1)
  Reply reply;
};

/// The name of the operation for this pass and `element`, in a worker whose first stage of that pass is for
/// `first_element`: "forward", "forward_bfloat16" (common/cuda/description.hpp).
std::string operation_for(const std::string& pass, Element element, Element first_element);

/// Adds every number of a setting (for_numbers), and its mask's arrays, which must live until the call is sent.
void add_numbers(Call& call, const Setting& setting);

/// Sends the numbers of the problem's setting and `numbers` (Br, Bc, …), arrays Q, K, V -> O, lse, as floats or
/// as the element's codes. `send` calls the worker.
AttentionResult forward(const EncodedProblem& given, const std::map<std::string, double>& numbers,
                        const std::function<Reply(const Call&)>& send, const std::string& operation = "forward");

/// The inputs of a backward stage, after rounding.
struct BackwardProblem {
  Problem problem;
  Tensor<double> dO;  ///< (B, H, Nq, d)
  Saved saved;        ///< O and the LSE of the forward pass
};
/// The problem and dO rounded to the element, O and the LSE as a forward stage stores them.
BackwardProblem backward_problem(const Problem& problem, const Tensor<float>& dO, Element element);
/// The same with O and LSE from an existing oracle; `problem` is already rounded.
BackwardProblem backward_problem(const Problem& problem, const Tensor<float>& dO, Element element,
                                 const Forward& forward);

/// The encoded inputs, reusable for any number of calls.
struct EncodedBackward {
  Element element;
  Setting setting;
  std::map<std::string, std::vector<float>> floats;         ///< lse; without codes Q, K, V, O, dO too
  std::map<std::string, std::vector<std::uint16_t>> codes;  ///< Q, K, V, O, dO
};
EncodedBackward encoded(const BackwardProblem& given, Element element);

/// The result of a backward stage.
struct BackwardResult {
  Tensor<float> dQ, dK, dV;  ///< (B, H, Nq, d), (B, Hkv, Nk, d), (B, Hkv, Nk, d)
  Tensor<float> dsink;       ///< (1, H, 1, 1); empty: the mask has no sinks
  Reply reply;
};

/// Sends the numbers of forward(), arrays Q, K, V, O, dO as floats or as the element's codes and lse as floats to the
/// operation. It returns dQ, dK, dV as floats or as codes of gradient_element, and dsink as floats.
BackwardResult backward(const std::string& operation, const EncodedBackward& given, Element gradient_element,
                        const std::map<std::string, double>& numbers, const std::function<Reply(const Call&)>& send);

/// An output of a reply, as floats.
std::vector<float> floats(const Reply& reply, const std::string& name, Element element);

}  // namespace workbook::worker
