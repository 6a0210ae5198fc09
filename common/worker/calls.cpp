#include "common/worker/calls.hpp"

#include <algorithm>

#include "common/attention/element.hpp"

namespace workbook::worker {

std::vector<float> floats(const Reply& reply, const std::string& name, const std::string& element) {
  return has_codes(element) ? from_codes(reply.output<std::uint16_t>(name), element) : reply.output<float>(name);
}

void add_numbers(Call& call, const Setting& setting) {
  for_numbers(setting, [&](const char* name, auto value) { call.number(name, double(value)); });
}

namespace {

Call call_of(const std::string& operation, const Setting& setting, const std::map<std::string, double>& numbers) {
  Call call(operation);
  add_numbers(call, setting);
  for (const auto& [name, value] : numbers) call.number(name, value);
  return call;
}

void add_output(Call& call, const char* name, std::int64_t count, const std::string& element) {
  if (has_codes(element))
    call.output<std::uint16_t>(name, std::size_t(count));
  else
    call.output<float>(name, std::size_t(count));
}

std::vector<float> floats(const Tensor<double>& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}
Tensor<double> as_stored(const std::vector<float>& values, const std::array<std::int64_t, 4>& sizes,
                         const std::string& element) {
  Tensor<double> stored(sizes);
  const std::vector<float> rounded = has_codes(element) ? from_codes(to_codes(values, element), element) : values;
  std::copy(rounded.begin(), rounded.end(), stored.values.begin());
  return stored;
}

}  // namespace

std::string operation_for(const std::string& pass, const std::string& element, const std::string& first_element) {
  return element == first_element ? pass : pass + "_" + element;
}

AttentionResult forward(const EncodedProblem& given, const std::map<std::string, double>& numbers,
                        const std::function<Reply(const Call&)>& send, const std::string& operation) {
  const Problem& problem = given.problem;
  const Shape& shape = problem.shape;
  Call call = call_of(operation, problem, numbers);
  if (has_codes(given.element))
    call.input("Q", given.Q).input("K", given.K).input("V", given.V);
  else
    call.input("Q", problem.Q.values).input("K", problem.K.values).input("V", problem.V.values);
  add_output(call, "O", shape.q_size(), given.element);
  call.output<float>("lse", std::size_t(shape.lse_size()));

  AttentionResult result;
  result.reply = send(call);
  result.O = Tensor<float>({shape.B, shape.H, shape.Nq, shape.d});
  result.O.values = floats(result.reply, "O", given.element);
  result.lse = Tensor<float>({shape.B, shape.H, shape.Nq, 1});
  result.lse.values = result.reply.output<float>("lse");
  return result;
}

BackwardProblem backward_problem(const Problem& problem, const Tensor<float>& dO, const std::string& element) {
  const Problem rounded = rounded_to(problem, element);
  return backward_problem(rounded, dO, element, forward_oracle(rounded));
}

BackwardProblem backward_problem(const Problem& problem, const Tensor<float>& dO, const std::string& element,
                                 const Forward& forward) {
  return {problem,
          as_stored(dO.values, dO.sizes, element),
          {as_stored(floats(forward.O), forward.O.sizes, element),
           as_stored(floats(forward.lse), forward.lse.sizes, "float32")}};
}

EncodedBackward encoded(const BackwardProblem& given, const std::string& element) {
  const Problem& problem = given.problem;
  EncodedBackward result{element, problem, {}, {}};
  result.floats = {{"Q", problem.Q.values},
                   {"K", problem.K.values},
                   {"V", problem.V.values},
                   {"O", floats(given.saved.O)},
                   {"dO", floats(given.dO)}};
  if (has_codes(element)) {
    for (const auto& [name, values] : result.floats) result.codes[name] = to_codes(values, element);
    result.floats.clear();
  }
  result.floats["lse"] = floats(given.saved.lse);
  return result;
}

BackwardResult backward(const std::string& operation, const EncodedBackward& given, const std::string& gradient_element,
                        const std::map<std::string, double>& numbers, const std::function<Reply(const Call&)>& send) {
  const Shape& shape = given.setting.shape;
  Call call = call_of(operation, given.setting, numbers);
  for (const auto& [name, values] : given.codes) call.input(name, values);
  for (const auto& [name, values] : given.floats) call.input(name, values);
  for (const char* name : {"dQ", "dK", "dV"})
    add_output(call, name, std::string_view(name) == "dQ" ? shape.q_size() : shape.kv_size(), gradient_element);

  BackwardResult result;
  result.reply = send(call);
  const auto take = [&](const char* name, std::int64_t heads, std::int64_t rows) {
    Tensor<float> tensor({shape.B, heads, rows, shape.d});
    tensor.values = floats(result.reply, name, gradient_element);
    return tensor;
  };
  result.dQ = take("dQ", shape.H, shape.Nq);
  result.dK = take("dK", shape.Hkv, shape.Nk);
  result.dV = take("dV", shape.Hkv, shape.Nk);
  return result;
}

}  // namespace workbook::worker
