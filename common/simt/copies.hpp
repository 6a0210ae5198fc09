// Copies of whole pieces of memory, as the simulator sees them. Included by the compiler's command line before anything
// else in a file of kernels: the instrumentation notices no memcpy, memmove or memset, whether it is called, or made
// of a std::copy by the library's headers. They are given to functions that do the same and are observed
// (common/simt/observe.cpp).
#pragma once

#include <cstddef>
#include <cstring>

extern "C" {
void* memcpy(void* to, const void* from, std::size_t bytes) noexcept __asm__("simt_memcpy");
void* memmove(void* to, const void* from, std::size_t bytes) noexcept __asm__("simt_memmove");
void* memset(void* to, int value, std::size_t bytes) noexcept __asm__("simt_memset");
}

// NOLINTBEGIN(bugprone-reserved-identifier): what the library's headers call.
#define __builtin_memcpy ::memcpy
#define __builtin_memmove ::memmove
#define __builtin_memset ::memset
// NOLINTEND(bugprone-reserved-identifier)
