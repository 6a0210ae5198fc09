// The exception by which a backend refuses a call or reports what a kernel did wrong.
#pragma once

#include <stdexcept>
#include <utility>
#include <vector>

#include "common/simt/report.hpp"

namespace workbook::cuda {

/// A refusal or report of the backend: CUDA's error text, or the simulator's reports, whose text what() returns.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  explicit Error(std::vector<simt::Report> reports)
      : std::runtime_error(simt::text(reports)), reports_(std::move(reports)) {}
  const std::vector<simt::Report>& reports() const { return reports_; }

 private:
  std::vector<simt::Report> reports_;
};

}  // namespace workbook::cuda
