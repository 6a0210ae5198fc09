// The measuring of the verb bench: builds the stages, runs them, asks the device, PyTorch and the profiler.
#pragma once

#include <vector>

#include "common/bench/results.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {

/// The chapters that are named and, unless `only`, those before them; all if none is named. InputError for one that the
/// book does not have.
std::vector<const book::Chapter*> wanted_chapters(const Session& session, const BenchOptions& options);

/// Everything that can be measured here; what cannot is in Results::skipped.
bench::Results measure(const Session& session, const BenchOptions& options);

}  // namespace workbook::cli
