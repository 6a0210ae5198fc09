// Replacements for memcpy, memmove, memset, printf and fprintf in kernel files. The compiler's command line includes
// this file first. The instrumentation does not observe these functions, neither explicit calls nor those that the
// library's headers make for std::copy. They are redirected to functions that are observed, with the same effect
// (common/simt/observe.cpp). printf would also write memory (%n), and return what it has read (%s, %m).
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" {
void* memcpy(void* to, const void* from, std::size_t bytes) noexcept __asm__("simt_memcpy");
void* memmove(void* to, const void* from, std::size_t bytes) noexcept __asm__("simt_memmove");
void* memset(void* to, int value, std::size_t bytes) noexcept __asm__("simt_memset");
int printf(const char* format, ...) __asm__("simt_printf");
int fprintf(FILE* file, const char* format, ...) __asm__("simt_fprintf");
}

// NOLINTBEGIN(bugprone-reserved-identifier): names that the library's headers use.
#define __builtin_memcpy ::memcpy
#define __builtin_memmove ::memmove
#define __builtin_memset ::memset
// NOLINTEND(bugprone-reserved-identifier)
