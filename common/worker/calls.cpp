#include "common/worker/calls.hpp"

#include <algorithm>

#include "common/attention/element.hpp"
#include "common/attention/tensors.hpp"

namespace workbook::worker {

std::vector<float> floats(const Reply& reply, const std::string& name, Element element) {
  return has_codes(element) ? from_codes(reply.output<std::uint16_t>(name), element) : reply.output<float>(name);
}

void add_numbers(Call& call, const Setting& setting) {
  for_numbers(setting, [&](const char* name, auto value) {
    // A larger one would arrive as another number.
    if constexpr (std::is_same_v<decltype(value), std::int64_t>) {
      if (value < -largest_number || value > largest_number)
        fail_input("{} = {}: allowed: whole numbers from {} to {}", name, value, -largest_number, largest_number);
    }
    call.number(name, double(value));
  });
  if (const auto& sink = setting.mask.sink; !sink.empty())
    call.number("sinks", double(sink.size())).input("sink", sink);
  if (const auto& lengths = setting.mask.lengths; !lengths.empty())
    call.number("sequences", double(lengths.size())).input("lengths", lengths);
  if (const auto& cache = setting.mask.cache; !cache.empty())
    call.number("requests", double(cache.size())).input("cache", cache);
}

namespace {

/// Sends a call of an operation with the inputs that `give(call, tensor)` adds, and returns the outputs, in the order
/// of their table, as floats.
template <class Table, class Give>
std::vector<Tensor<float>> outputs_of(const Table& table, const std::string& operation, const Setting& setting,
                                      const std::map<std::string, double>& numbers, Element element, Give give,
                                      const std::function<Reply(const Call&)>& send, Reply& reply) {
  Call call(operation);
  add_numbers(call, setting);
  for (const auto& [name, value] : numbers) call.number(name, value);
  const auto element_of = [&](const CallTensor& t) { return t.kind == CallTensor::of_rows ? float32 : element; };
  for (const CallTensor& tensor : table) {
    const auto count = std::size_t(tensor.count(setting.shape));
    if (!tensor.output)
      give(call, tensor);
    else if (has_codes(element_of(tensor)))
      call.output<std::uint16_t>(tensor.name, count);
    else
      call.output<float>(tensor.name, count);
  }
  reply = send(call);
  std::vector<Tensor<float>> outputs;
  for (const CallTensor& tensor : table) {
    if (!tensor.output) continue;
    outputs.emplace_back().sizes = tensor.sizes(setting.shape);
    outputs.back().values = floats(reply, tensor.name, element_of(tensor));
  }
  return outputs;
}

Tensor<double> as_stored(const std::vector<float>& values, const std::array<std::int64_t, 4>& sizes, Element element) {
  Tensor<double> stored(sizes);
  const std::vector<float> rounded = has_codes(element) ? from_codes(to_codes(values, element), element) : values;
  std::copy(rounded.begin(), rounded.end(), stored.values.begin());
  return stored;
}
std::vector<float> floats(const Tensor<double>& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

}  // namespace

std::string operation_for(const std::string& pass, Element element, Element first_element) {
  return element == first_element ? pass : pass + "_" + name(element);
}

AttentionResult forward(const EncodedProblem& given, const std::map<std::string, double>& numbers,
                        const std::function<Reply(const Call&)>& send, const std::string& operation) {
  const Problem& problem = given.problem;
  const auto give = [&, at = std::size_t(0)](Call& call, const CallTensor& tensor) mutable {
    if (has_codes(given.element))
      call.input(tensor.name, given.codes[at]);
    else
      call.input(tensor.name, std::array{&problem.Q, &problem.K, &problem.V}[at]->values);
    ++at;
  };
  AttentionResult result;
  auto outputs = outputs_of(forward_tensors, operation, problem, numbers, given.element, give, send, result.reply);
  result.O = std::move(outputs[0]);
  result.lse = std::move(outputs[1]);
  return result;
}

BackwardProblem backward_problem(const Problem& problem, const Tensor<float>& dO, Element element) {
  const Problem rounded = rounded_to(problem, element);
  return backward_problem(rounded, dO, element, forward_oracle(rounded));
}

BackwardProblem backward_problem(const Problem& problem, const Tensor<float>& dO, Element element,
                                 const Forward& forward) {
  return {problem,
          as_stored(dO.values, dO.sizes, element),
          {as_stored(floats(forward.O), forward.O.sizes, element),
           as_stored(floats(forward.lse), forward.lse.sizes, float32)}};
}

EncodedBackward encoded(const BackwardProblem& given, Element element) {
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

BackwardResult backward(const std::string& operation, const EncodedBackward& given, Element gradient_element,
                        const std::map<std::string, double>& numbers, const std::function<Reply(const Call&)>& send) {
  const auto give = [&](Call& call, const CallTensor& tensor) {
    if (const auto codes = given.codes.find(tensor.name); codes != given.codes.end())
      call.input(tensor.name, codes->second);
    else
      call.input(tensor.name, given.floats.at(tensor.name));
  };
  const std::size_t sinks = given.setting.mask.sink.size();
  const auto send_with_dsink = [&](const Call& call) {
    if (sinks == 0) return send(call);
    Call more = call;
    more.output<float>("dsink", sinks);
    return send(more);
  };
  BackwardResult result;
  auto outputs = outputs_of(backward_tensors, operation, given.setting, numbers, gradient_element, give,
                            send_with_dsink, result.reply);
  result.dQ = std::move(outputs[0]);
  result.dK = std::move(outputs[1]);
  result.dV = std::move(outputs[2]);
  if (sinks > 0) {
    result.dsink.sizes = sink_sizes(given.setting);
    result.dsink.values = result.reply.output<float>("dsink");
  }
  return result;
}

}  // namespace workbook::worker
