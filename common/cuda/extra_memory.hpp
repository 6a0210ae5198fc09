// The memory that a stage needs beside its call's tensors.
#pragma once

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
  ExtraMemory(const std::vector<ScratchArray>& arrays, const Shape& shape);
  template <class T>
  T* array(const char* name) const {
    return static_cast<T*>(find(name));
  }

 private:
  struct Release {
    void operator()(void* memory) const noexcept { release(memory); }
  };
  void* find(const char* name) const;
  std::map<std::string, std::unique_ptr<void, Release>> memory_;
};

}  // namespace workbook::cuda
