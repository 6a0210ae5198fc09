#include "common/cli/run_numbers.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace workbook::cli {

using nlohmann::json;

namespace {

constexpr std::array kNames{"fp16", "bf16", "TF32", "FP8 E4M3", "FP8 E5M2"};
constexpr std::size_t kColumns = 7;

/// "2^16", "1"
std::string power_of_two(int exponent) {
  return exponent == 0 ? "1" : fmt::format("2^{}", exponent);
}

}  // namespace

NumberTables number_tables(const Session& session, worker::Worker& worker) {
  NumberTables tables;
  worker::Call request("ranges");
  request.output<double>("numbers", kNames.size() * kColumns);
  const std::vector<double> numbers = worker.call(request).output<double>("numbers");
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const double* row = &numbers[i * kColumns];
    tables.formats.push_back({kNames[i], int(row[0]), int(row[1]), int(row[2]), row[3], row[4], row[5], row[6]});
  }
  session.progress("what fp16 loses of a backward pass, for N up to 4096");
  tables.underflow = training::underflow_table();
  session.progress("");
  return tables;
}

void print_number_tables(const NumberTables& tables) {
  fmt::print("\nNumber formats, as exercise 7.1 has them:\n\n");
  fmt::print("  {:<9} {:>4} {:>6} {:>10} {:>15} {:>18} {:>8}\n", "format", "bits", "e, m", "largest", "smallest normal",
             "smallest subnormal", "epsilon");
  for (const FormatRow& row : tables.formats) {
    fmt::print("  {:<9} {:>4} {:>6} {:>10} {:>15.2e} {:>18.2e} {:>8}\n", row.name, row.bits,
               fmt::format("{}, {}", row.exponent_bits, row.mantissa_bits),
               row.largest < 1e6 ? fmt::format("{}", row.largest) : fmt::format("{:.3e}", row.largest),
               row.smallest_normal, row.smallest_subnormal, power_of_two(int(std::log2(row.epsilon))));
  }
  const training::UnderflowOptions options;
  fmt::print(
      "\nWhat fp16 loses of a backward pass: one head, d = {}, no mask, Q, K, V normal; the loss is the mean over {} "
      "tokens,\nand dO normal, {} a token before the mean is taken. Elements that become 0, and relative errors of the "
      "gradients:\n\n",
      options.d, options.tokens, options.gradient);
  fmt::print("  {:>5} {:>6} {:>8} {:>8} {:>8} {:>10} {:>9} {:>9} {:>9}\n", "N", "scale", "dO zero", "dP zero",
             "dS zero", "infinite", "dQ error", "dK error", "dV error");
  for (const training::UnderflowRow& row : tables.underflow) {
    fmt::print("  {:>5} {:>6} {:>7.1f}% {:>7.1f}% {:>7.1f}% {:>9.1f}% {:>9.1e} {:>9.1e} {:>9.1e}\n", row.N,
               power_of_two(row.scale_exponent), 100 * row.zero_dO, 100 * row.zero_dP, 100 * row.zero_dS,
               100 * row.infinite, row.error_dQ, row.error_dK, row.error_dV);
  }
}

json to_json(const NumberTables& tables) {
  json formats = json::array(), underflow = json::array();
  for (const FormatRow& row : tables.formats) {
    formats.push_back({{"name", row.name},
                       {"bits", row.bits},
                       {"exponent_bits", row.exponent_bits},
                       {"mantissa_bits", row.mantissa_bits},
                       {"largest", row.largest},
                       {"smallest_normal", row.smallest_normal},
                       {"smallest_subnormal", row.smallest_subnormal},
                       {"epsilon", row.epsilon}});
  }
  for (const training::UnderflowRow& row : tables.underflow) {
    underflow.push_back({{"N", row.N},
                         {"scale", std::ldexp(1.0, row.scale_exponent)},
                         {"zero_dO", row.zero_dO},
                         {"zero_dP", row.zero_dP},
                         {"zero_dS", row.zero_dS},
                         {"infinite", row.infinite},
                         {"error_dQ", number_json(row.error_dQ)},
                         {"error_dK", number_json(row.error_dK)},
                         {"error_dV", number_json(row.error_dV)}});
  }
  return {{"formats", formats}, {"underflow", underflow}};
}

}  // namespace workbook::cli
