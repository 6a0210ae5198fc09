// The default configurations of a chapter's stages on the simulated GPU, as their workers report them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"

namespace workbook::judge {

/// A stage's kernel for one head dimension, with the tile sizes that it uses if a call specifies none.
struct DefaultKernel {
  const book::Chapter* chapter = nullptr;
  std::string pass;
  Element element = float16;
  int compute = 0;            ///< the lowest compute capability that supports its instructions; 80 stands for 8.0
  bool compute_only = false;  ///< no other compute capability supports them
  int d = 0;
  std::map<std::string, int> sizes;  ///< empty: no tile sizes fit
  int threads = 0;                   ///< per thread block
  std::int64_t shared_bytes = 0;     ///< per thread block
};

/// The tiled kernels of these chapters' solutions. Builds them for the simulator. EnvironmentError where that is not
/// possible.
std::vector<DefaultKernel> default_kernels(const Workspace& workspace,
                                           const std::vector<const book::Chapter*>& chapters);

}  // namespace workbook::judge
