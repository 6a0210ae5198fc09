#include "common/worker/stage.hpp"

#include "common/attention/element.hpp"

namespace workbook::worker {

std::vector<float> floats(const Reply& reply, const std::string& name, const std::string& element) {
  return has_codes(element) ? from_codes(reply.output<std::uint16_t>(name), element) : reply.output<float>(name);
}

AttentionResult forward(const Problem& problem, const std::string& element,
                        const std::map<std::string, double>& numbers, const std::function<Reply(const Call&)>& send) {
  const Shape& shape = problem.shape;
  Call call("forward");
  call.number("B", double(shape.B)).number("H", double(shape.H)).number("Hkv", double(shape.Hkv));
  call.number("Nq", double(shape.Nq)).number("Nk", double(shape.Nk)).number("d", double(shape.d));
  call.number("scale", problem.scale).number("causal", problem.causal);
  for (const auto& [name, value] : numbers) call.number(name, value);
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

}  // namespace workbook::worker
