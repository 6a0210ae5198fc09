// What `run --stage 7` shows beside the stage: the number formats, as the chapter's code has them, and what fp16 loses
// of a backward pass.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/cli/session.hpp"
#include "common/training/underflow.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {

/// A format's line of the table.
struct FormatRow {
  std::string name;
  int bits = 0, exponent_bits = 0, mantissa_bits = 0;
  double largest = 0, smallest_normal = 0, smallest_subnormal = 0, epsilon = 0;
};

struct NumberTables {
  std::vector<FormatRow> formats;
  std::vector<training::UnderflowRow> underflow;
};

/// Asks a worker of chapter 7 for the formats and computes the underflow table, which takes half a minute. Throws
/// worker::Failure.
NumberTables number_tables(const Session& session, worker::Worker& worker);

void print_number_tables(const NumberTables& tables);
/// {"formats": […], "underflow": […]}, as notes/json.md documents them.
nlohmann::json to_json(const NumberTables& tables);

}  // namespace workbook::cli
