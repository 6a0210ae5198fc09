#include "tests/support/lab.hpp"

#include "common/attention/element.hpp"

namespace workbook::test {

AttentionResult expect_forward(const std::string& operation, const Input& given, const Numbers& numbers, Finds finds) {
  const Element element = float16;
  const Problem problem = rounded_to(given.problem, element);
  constexpr std::size_t most_of_record = std::size_t(1) << 20;
  std::map<std::string, double> with = numbers;
  if (finds == Finds::are_left) with["trace"] = 1;
  const auto send = [&](const worker::Call& request) {
    worker::Call recorded = request;
    if (finds == Finds::are_left) recorded.output<std::uint8_t>("trace", most_of_record);
    return call(recorded);
  };
  note_kinds(given.kind, problem);
  AttentionResult got = worker::forward(encoded(problem, element), with, send, operation);
  const Forward oracle = forward_oracle(problem);
  judge::Layout O_layout, lse_layout;
  O_layout.tensor = "O";
  lse_layout.tensor = "lse";
  lse_layout.axes[3] = "";
  const std::string about = describe(problem, given.name);
  expect_all_close({{got.O, {oracle.O, output_bounds(oracle, problem, precision_of(element)), O_layout, about}},
                    {got.lse, {oracle.lse, lse_bounds(oracle, problem, precision_of(element)), lse_layout, about}}});
  return got;
}

AttentionResult expect_lab(const Input& given, const Numbers& numbers, Finds finds) {
  return expect_forward("lab", given, numbers, finds);
}

}  // namespace workbook::test
