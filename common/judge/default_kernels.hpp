// What a chapter's stages run with by themselves, as their workers say it, on the GPU whose limits hold.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"

namespace workbook::judge {

/// A stage of kernels for one head dimension, with the tiles that it takes where a call names none.
struct DefaultKernel {
  const book::Chapter* chapter = nullptr;
  std::string pass;
  Element element = float16;
  int compute = 0;            ///< the least compute capability that has its instructions, 80 for 8.0
  bool compute_only = false;  ///< no other has them
  int d = 0;
  std::map<std::string, int> sizes;  ///< none: there are no tiles that fit
  int threads = 0;                   ///< of a block
  std::int64_t shared_bytes = 0;     ///< of a block
};

/// Of the solutions of these chapters, those that have tiles. They are built for the simulator; EnvironmentError where
/// that cannot be.
std::vector<DefaultKernel> default_kernels(const Workspace& workspace,
                                           const std::vector<const book::Chapter*>& chapters);

}  // namespace workbook::judge
