#include "common/cuda/extra_memory.hpp"

namespace workbook::cuda {

ExtraMemory::ExtraMemory(const std::vector<ScratchArray>& arrays, const Shape& shape) {
  for (const ScratchArray& array : arrays) {
    try {
      memory_[array.name].reset(
          allocate(array.size(shape) * array.element_bytes, array.name, array.element_bytes, Role::scratch));
    } catch (const Error& error) {
      throw Refused(error.what());
    }
  }
}

void* ExtraMemory::find(const char* name) const {
  return memory_.at(name).get();
}

}  // namespace workbook::cuda
