#include "common/worker/calls.hpp"

#include <algorithm>

#include "common/attention/element.hpp"

namespace workbook::worker {

std::vector<float> floats(const Reply& reply, const std::string& name, const std::string& element) {
  return has_codes(element) ? from_codes(reply.output<std::uint16_t>(name), element) : reply.output<float>(name);
}

namespace {

Call call_of(const std::string& operation, const Problem& problem, const std::map<std::string, double>& numbers) {
  const Shape& shape = problem.shape;
  Call call(operation);
  call.number("B", double(shape.B)).number("H", double(shape.H)).number("Hkv", double(shape.Hkv));
  call.number("Nq", double(shape.Nq)).number("Nk", double(shape.Nk)).number("d", double(shape.d));
  call.number("scale", problem.scale).number("causal", problem.causal);
  for (const auto& [name, value] : numbers) call.number(name, value);
  return call;
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

AttentionResult forward(const Problem& problem, const std::string& element,
                        const std::map<std::string, double>& numbers, const std::function<Reply(const Call&)>& send) {
  const Shape& shape = problem.shape;
  Call call = call_of("forward", problem, numbers);
  std::map<std::string, std::vector<std::uint16_t>> codes;  // alive during the call
  for (const auto& [name, tensor] : {std::pair{"Q", &problem.Q}, {"K", &problem.K}, {"V", &problem.V}}) {
    if (has_codes(element)) {
      codes[name] = to_codes(tensor->values, element);
      call.input(name, codes[name]);
    } else {
      call.input(name, tensor->values);
    }
  }
  if (has_codes(element)) {
    call.output<std::uint16_t>("O", std::size_t(shape.q_size()));
  } else {
    call.output<float>("O", std::size_t(shape.q_size()));
  }
  call.output<float>("lse", std::size_t(shape.lse_size()));

  AttentionResult result;
  result.reply = send(call);
  result.O = Tensor<float>({shape.B, shape.H, shape.Nq, shape.d});
  result.O.values = floats(result.reply, "O", element);
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

BackwardResult backward(const std::string& operation, const BackwardProblem& given, const std::string& element,
                        const std::string& gradient_element, const std::map<std::string, double>& numbers,
                        const std::function<Reply(const Call&)>& send) {
  const Shape& shape = given.problem.shape;
  Call call = call_of(operation, given.problem, numbers);
  const std::map<std::string, std::vector<float>> inputs{{"Q", given.problem.Q.values},
                                                         {"K", given.problem.K.values},
                                                         {"V", given.problem.V.values},
                                                         {"O", floats(given.saved.O)},
                                                         {"dO", floats(given.dO)}};
  std::map<std::string, std::vector<std::uint16_t>> codes;  // alive during the call, as are the inputs
  for (const auto& [name, values] : inputs) {
    if (has_codes(element)) {
      codes[name] = to_codes(values, element);
      call.input(name, codes[name]);
    } else {
      call.input(name, values);
    }
  }
  const std::vector<float> lse = floats(given.saved.lse);
  call.input("lse", lse);

  BackwardResult result;
  const std::pair<const char*, Tensor<float>*> gradients[] = {
      {"dQ", &result.dQ}, {"dK", &result.dK}, {"dV", &result.dV}};
  for (const auto& [name, tensor] : gradients) {
    *tensor = std::string(name) == "dQ" ? Tensor<float>({shape.B, shape.H, shape.Nq, shape.d})
                                        : Tensor<float>({shape.B, shape.Hkv, shape.Nk, shape.d});
    if (has_codes(gradient_element)) {
      call.output<std::uint16_t>(name, tensor->values.size());
    } else {
      call.output<float>(name, tensor->values.size());
    }
  }
  result.reply = send(call);
  for (const auto& [name, tensor] : gradients) tensor->values = floats(result.reply, name, gradient_element);
  return result;
}

}  // namespace workbook::worker
