#include "common/cuda/extra_memory.hpp"

namespace workbook::cuda {
namespace {

std::size_t bytes_of(const ScratchArray& array, const Shape& shape) {
  return array.size(shape) * array.element_bytes;
}
std::size_t in_workspace(const ScratchArray& array, const Shape& shape) {
  constexpr std::size_t kAlignment = 256;  // that allocate() has too
  return (bytes_of(array, shape) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

ExtraMemory::ExtraMemory(const std::vector<ScratchArray>& arrays, const Shape& shape) {
  for (const ScratchArray& array : arrays) {
    try {
      void* memory = allocate(bytes_of(array, shape), array.name, array.element_bytes, Role::scratch);
      memory_.try_emplace(array.name, memory, [](void* allocated) { release(allocated); });
    } catch (const Error& error) {
      throw Refused(error.what());
    }
  }
}

ExtraMemory::ExtraMemory(const std::vector<ScratchArray>& arrays, const Shape& shape, void* workspace) {
  auto* next = static_cast<std::byte*>(workspace);
  for (const ScratchArray& array : arrays) {
    memory_.try_emplace(array.name, next, [](void*) {});
    next += in_workspace(array, shape);
  }
}

void* ExtraMemory::find(const char* name) const {
  return memory_.at(name).get();
}

std::size_t workspace_bytes(const std::vector<ScratchArray>& arrays, const Shape& shape) {
  std::size_t bytes = 0;
  for (const ScratchArray& array : arrays) bytes += in_workspace(array, shape);
  return bytes;
}

}  // namespace workbook::cuda
