// The memory that a stage needs beside its call's tensors.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/cuda/description.hpp"
#include "common/cuda/device_memory.hpp"

namespace workbook::cuda {

/// A stage's scratch arrays, allocated for one call and counted as the chapter's. A call that they are too large for is
/// refused, not failed.
class ExtraMemory {
 public:
  ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting);
  /// In memory that the caller has: workspace_bytes() of it, aligned to 256 bytes.
  ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting, void* workspace);
  template <class T>
  T* array(const char* name) const {
    return static_cast<T*>(find(name));
  }

 private:
  void* find(const char* name) const;
  std::map<std::string, std::unique_ptr<void, void (*)(void*)>> memory_;
};

/// What all arrays take together, one behind the other, each from a multiple of 256 bytes on.
std::size_t workspace_bytes(const std::vector<ScratchArray>& arrays, const Setting& setting);

}  // namespace workbook::cuda
