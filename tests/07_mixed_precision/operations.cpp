// The tables of `./workbook run --stage 7`: the number formats, computed by the chapter's code, and the underflow of a
// backward pass in fp16.
#include "common/cuda/operations.hpp"

#include <cmath>
#include <cstdio>
#include <string>

#include "formats.hpp"
#include "tests/07_mixed_precision/underflow.hpp"

namespace {

using namespace ch07_tests;
using workbook::cuda::Arguments, workbook::cuda::Operations;

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[512];
  return {text, std::size_t(std::snprintf(text, sizeof text, format, values...))};
}

/// "2^16", "1"
std::string power_of_two(int exponent) {
  return exponent == 0 ? "1" : "2^" + std::to_string(exponent);
}

/// A number as JSON; notes/json.md defines the text of numbers that are not finite.
std::string number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return print("%.17g", value);
}

/// A table as text and as a JSON list of objects.
struct Table {
  std::string text, json;
  void add(const std::string& line, const std::string& object) {
    text += line;
    json += (json.empty() ? "" : ", ") + object;
  }
};

Table formats_table() {
  Table table;
  table.text = "\nNumber formats, as exercise 7.1 has them:\n\n" +
               print("  %-9s %4s %6s %10s %15s %18s %8s\n", "format", "bits", "e, m", "largest", "smallest normal",
                     "smallest subnormal", "epsilon");
  for (const ch07::Format& format : {ch07::fp16, ch07::bf16, ch07::tf32, ch07::e4m3, ch07::e5m2}) {
    const ch07::Range range = ch07::range_of(format);
    const std::string sizes = print("%d, %d", format.exponent_bits, format.mantissa_bits);
    const std::string largest = print(range.largest < 1e6 ? "%g" : "%.3e", range.largest);
    table.add(
        print("  %-9s %4d %6s %10s %15.2e %18.2e %8s\n", format.name, format.bits(), sizes.c_str(), largest.c_str(),
              range.smallest_normal, range.smallest_subnormal, power_of_two(int(std::log2(range.epsilon))).c_str()),
        print("{\"name\": \"%s\", \"bits\": %d, \"exponent_bits\": %d, \"mantissa_bits\": %d", format.name,
              format.bits(), format.exponent_bits, format.mantissa_bits) +
            ", \"largest\": " + number(range.largest) + ", \"smallest_normal\": " + number(range.smallest_normal) +
            ", \"smallest_subnormal\": " + number(range.smallest_subnormal) +
            ", \"epsilon\": " + number(range.epsilon) + "}");
  }
  return table;
}

Table underflow() {
  const UnderflowOptions options;
  Table table;
  table.text = print(
                   "\nWhat fp16 loses of a backward pass: one head, d = %d, no mask, Q, K, V normal; the loss is the "
                   "mean over %d tokens,\nand dO normal, %g a token before the mean is taken. Elements that become "
                   "0, and relative errors of the gradients:\n\n",
                   int(options.d), int(options.tokens), options.gradient) +
               print("  %5s %6s %8s %8s %8s %10s %9s %9s %9s\n", "N", "scale", "dO zero", "dP zero", "dS zero",
                     "infinite", "dQ error", "dK error", "dV error");
  for (const UnderflowRow& row : underflow_table(options)) {
    table.add(print("  %5d %6s %7.1f%% %7.1f%% %7.1f%% %9.1f%% %9.1e %9.1e %9.1e\n", int(row.N),
                    power_of_two(row.scale_exponent).c_str(), 100 * row.zero_dO, 100 * row.zero_dP, 100 * row.zero_dS,
                    100 * row.infinite, row.error_dQ, row.error_dK, row.error_dV),
              print("{\"N\": %d, \"scale\": ", int(row.N)) + number(std::ldexp(1.0, row.scale_exponent)) +
                  ", \"zero_dO\": " + number(row.zero_dO) + ", \"zero_dP\": " + number(row.zero_dP) +
                  ", \"zero_dS\": " + number(row.zero_dS) + ", \"infinite\": " + number(row.infinite) +
                  ", \"error_dQ\": " + number(row.error_dQ) + ", \"error_dK\": " + number(row.error_dK) +
                  ", \"error_dV\": " + number(row.error_dV) + "}");
  }
  return table;
}

/// A JSON text: quoted, with line ends escaped; the tables have no other character that needs it.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '\n' ? std::string("\\n") : std::string(1, c);
  return result + "\"";
}

// -> text: {"text": what is printed, "json": {"formats": […], "underflow": […]}}, as notes/json.md documents them
void tables(const Arguments& call) {
  const Table formats = formats_table(), lost = underflow();
  workbook::cuda::answer_text(call, "{\"text\": " + quoted(formats.text + lost.text) + ", \"json\": {\"formats\": [" +
                                        formats.json + "], \"underflow\": [" + lost.json + "]}}");
}

const Operations special{{"tables", tables}};

}  // namespace
