// The memory that a stage needs in addition to its call's tensors.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/cuda/description.hpp"
#include "common/cuda/device_memory.hpp"

namespace workbook::cuda {

/// A stage's scratch arrays, allocated for one call and counted as the chapter's. A call for which they are too large
/// is refused, rather than failed.
class ExtraMemory {
 public:
  ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting);
  /// Also for the batches of `skipped` before those of `setting`, without memory (skipped_batches.hpp).
  ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting, const Setting& skipped);
  /// Uses the caller's memory: workspace_bytes() bytes, aligned to 256 bytes.
  ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting, void* workspace);
  template <class T>
  T* array(const char* name) const {
    return static_cast<T*>(find(name));
  }

 private:
  void* find(const char* name) const;
  std::map<std::string, std::unique_ptr<void, void (*)(void*)>> memory_;
  std::map<std::string, std::size_t> skipped_ = {};  ///< bytes that precede an array's memory
};

/// The size of all arrays stored consecutively, each at a multiple of 256 bytes.
std::size_t workspace_bytes(const std::vector<ScratchArray>& arrays, const Setting& setting);

}  // namespace workbook::cuda
