// Converts addresses to pointers. The simulator keeps addresses as integers, since it looks them up in its memory
// tables. Internal.
#pragma once

#include <cstdint>

namespace simt {

template <class T>
T* at_address(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): see above
}

}  // namespace simt
