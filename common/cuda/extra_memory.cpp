#include "common/cuda/extra_memory.hpp"

#include <cstdint>

#include "common/cuda/error.hpp"

namespace workbook::cuda {
namespace {

std::size_t bytes_of(const ScratchArray& array, const Setting& setting) {
  return array.size(setting) * array.element_bytes;
}
std::size_t in_workspace(const ScratchArray& array, const Setting& setting) {
  constexpr std::size_t kAlignment = 256;  // the same as allocate()'s
  return (bytes_of(array, setting) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

ExtraMemory::ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting) {
  for (const ScratchArray& array : arrays) {
    try {
      void* memory = allocate(bytes_of(array, setting), array.name, array.element_bytes, Role::scratch);
      memory_.try_emplace(array.name, memory, [](void* allocated) { release(allocated); });
      if (array.zeroed) clear(memory, bytes_of(array, setting));
    } catch (const Error& error) {
      throw Refused(error.what());
    }
  }
}

ExtraMemory::ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting, const Setting& skipped)
    : ExtraMemory(arrays, setting) {
  Setting all = setting;
  all.shape.B += skipped.shape.B;
  for (const ScratchArray& array : arrays) skipped_[array.name] = bytes_of(array, all) - bytes_of(array, setting);
}

ExtraMemory::ExtraMemory(const std::vector<ScratchArray>& arrays, const Setting& setting, void* workspace) {
  auto* next = static_cast<std::byte*>(workspace);
  for (const ScratchArray& array : arrays) {
    memory_.try_emplace(array.name, next, [](void*) {});
    if (array.zeroed) clear(next, bytes_of(array, setting));
    next += in_workspace(array, setting);
  }
}

void* ExtraMemory::find(const char* name) const {
  const auto skipped = skipped_.find(name);
  const auto memory = reinterpret_cast<std::uintptr_t>(memory_.at(name).get());
  return reinterpret_cast<void*>(memory - (skipped == skipped_.end() ? 0 : skipped->second));
}

std::size_t workspace_bytes(const std::vector<ScratchArray>& arrays, const Setting& setting) {
  std::size_t bytes = 0;
  for (const ScratchArray& array : arrays) bytes += in_workspace(array, setting);
  return bytes;
}

}  // namespace workbook::cuda
