// The exceptions of a failed launch.
#pragma once

#include <stdexcept>
#include <utility>
#include <vector>

#include "common/simt/report.hpp"

namespace simt {

/// Thrown by a launch whose kernel has errors. what() is the text of all reports.
class SIMT_API KernelMistakes : public std::runtime_error {
 public:
  explicit KernelMistakes(std::vector<Report> reports)
      : std::runtime_error(text(reports)), reports_(std::move(reports)) {}
  const std::vector<Report>& reports() const { return reports_; }

 private:
  std::vector<Report> reports_;
};

/// Thrown by a launch in which a thread reached an exercise that is still open.
class SIMT_API OpenExercise : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;  ///< what(): the exercise's id
};

/// Thrown by a launch that CUDA would refuse: too many threads, too much shared memory, a grid too large.
class SIMT_API LaunchRefused : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Thrown by a launch that interrupt() has ended.
class SIMT_API Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("the simulation was interrupted") {}
};

}  // namespace simt
